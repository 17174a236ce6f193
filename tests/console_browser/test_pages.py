"""Each page shows what the server answers, has an address of its own, a table for each chart, and a command beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from urllib.parse import quote, urlencode

import pytest
from playwright.sync_api import expect

from console.console_world import SECRET, Served, showing
from console_browser.tab import Tab
from console_browser.worlds import SALES, quiet_root
from query.query_jobs import fold

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with showing(quiet_root(tmp_path_factory.mktemp("pages"))) as found:
        yield found


def test_the_overview_shows_the_verdict_of_each_job(served: Served, tab: Tab) -> None:
    tab.enter(served)
    expect(tab.page.locator("h1")).to_have_text("All 2 jobs are at rest.")
    overview = served.get("/api/overview")
    for job in overview["jobs"]:
        row = tab.page.get_by_role("row", name=job["job"])
        expect(row).to_contain_text(job["verdict"]["text"][1:])
        expect(row).to_contain_text(job["semantics"])
    expect(tab.page.locator(".cli code")).to_have_text(overview["cli"])
    tab.page.get_by_role("link", name="sales").click()
    expect(tab.page.locator("h1")).to_have_text("sales")
    assert tab.page.url.endswith("/#/jobs/sales")


def test_the_token_leaves_the_address(served: Served, tab: Tab) -> None:
    tab.enter(served)
    assert SECRET not in tab.page.url
    tab.page.reload()
    expect(tab.page.locator("#link")).to_have_text("live")


def test_without_a_session_the_page_asks_for_the_token(served: Served, tab: Tab) -> None:
    tab.page.goto(served.url)
    field = tab.page.get_by_label("Token")
    field.fill("wrong")
    field.press("Enter")
    expect(tab.page.get_by_role("alert")).to_contain_text("SW-SERVE-TOKEN")
    field.fill(SECRET)
    field.press("Enter")
    expect(tab.page.locator("h1")).to_have_text("All 2 jobs are at rest.")


def test_the_graph_of_a_job_and_its_table(served: Served, tab: Tab) -> None:
    tab.enter(served, "jobs/sales")
    graph = served.get("/api/jobs/sales")["graph"]
    card = tab.page.locator("#graph")
    expect(card.locator(".node .name")).to_have_text([node["id"] for node in graph["nodes"]])
    expect(card.locator("path.edge")).to_have_count(len(graph["edges"]))
    card.get_by_role("button", name="Table").click()
    expect(card.locator("table").first.locator("tbody tr")).to_have_count(len(graph["nodes"]))
    expect(card.locator("table").last.locator("tbody tr")).to_have_count(len(graph["edges"]))
    expect(card.locator(".cli code")).to_have_text(served.get("/api/jobs/sales")["cli"])


def test_the_timeline_of_epochs_leads_to_one_of_them(served: Served, tab: Tab) -> None:
    tab.enter(served, "jobs/sales/epochs")
    rows = served.get("/api/jobs/sales/epochs?limit=120")["epochs"]
    bars = tab.page.locator(".bar-link")
    expect(bars).to_have_count(len(rows))
    tab.page.locator(f'.bar-link[aria-label^="Epoch {rows[1]["epoch"]},"]').click()
    expect(tab.page.locator("#epoch h2").first).to_have_text(f"Epoch {rows[1]['epoch']}")
    assert tab.page.url.endswith(f"/epochs/{rows[1]['epoch']}")


def test_an_epoch_shows_its_files_positions_hashes_and_counters(served: Served, tab: Tab) -> None:
    newest = served.get("/api/jobs/sales")["status"]["checkpoint"]
    epoch = served.get(f"/api/jobs/sales/epochs/{newest}")
    tab.enter(served, f"jobs/sales/epochs/{newest}")
    card = tab.page.locator("#epoch")
    expect(card).to_contain_text(epoch["manifest"]["sha256"])
    for file in epoch["files"]:
        expect(card.get_by_role("row").filter(has_text=file["path"])).to_contain_text(f"{file['bytes']:,}")
    for partition, position in epoch["manifest"]["positions"].items():
        expect(card.get_by_role("row").filter(has_text=partition).first).to_contain_text(f"{position:,}")
    expect(card.get_by_role("table", name="What each instance counted").locator("tbody tr")).to_have_count(
        len(epoch["instances"])
    )
    expect(card.locator(".cli code")).to_have_text(epoch["cli"])


def test_a_component_shows_its_instances(served: Served, tab: Tab) -> None:
    tab.enter(served, "jobs/sales/components/by-shop")
    (node,) = [one for one in served.get("/api/jobs/sales")["graph"]["nodes"] if one["id"] == "by-shop"]
    card = tab.page.get_by_role("region", name="Instances")
    expect(card.locator(".spread li")).to_have_count(2)
    card.get_by_role("button", name="Table").click()
    for one in node["instances"]:
        expect(card.locator("tbody tr").nth(one["instance"])).to_contain_text(f"{one['processed']:,}")


def test_a_key_has_an_address(served: Served, tab: Tab) -> None:
    shop = "shop-03"
    count, total, last = fold(SALES, lambda sale: sale.shop)[shop]
    tab.enter(served, f"jobs/sales/components/by-shop/keys/{quote(json.dumps({'shop': shop}), safe='')}")
    facts = tab.page.locator("#key .facts dd")
    expect(facts).to_have_text([str(count), str(total), re.sub(r"\s", "", json.dumps(last))])


def test_the_state_is_browsed_by_key_and_by_sql(served: Served, tab: Tab) -> None:
    wanted = fold(SALES, lambda sale: sale.shop)
    tab.enter(served, "jobs/sales/state")
    tab.page.get_by_label("Component", exact=True).select_option("by-shop")
    keys = tab.page.get_by_role("table", name="Keys of by-shop").locator("tbody th")
    expect(keys).to_have_text(sorted(wanted))
    tab.page.get_by_label("Keys that begin with").fill("shop-0")
    expect(keys).to_have_text(sorted(shop for shop in wanted if shop.startswith("shop-0")))
    tab.page.locator("#statement").fill('SELECT sum(count) AS events FROM "by-shop"')
    tab.page.get_by_role("button", name="Run").click()
    expect(tab.page.locator("#answer tbody td")).to_have_text([str(sum(count for count, _, _ in wanted.values()))])
    tab.page.locator("#statement").fill("SELECT * FROM read_csv('/etc/passwd')")
    tab.page.get_by_role("button", name="Run").click()
    expect(tab.page.get_by_role("alert")).to_contain_text("SW-")


def test_dead_letters_are_listed_and_shown(served: Served, tab: Tab) -> None:
    letters = served.get("/api/jobs/squeamish/dead-letters")
    tab.enter(served, "jobs/squeamish/letters")
    rows = tab.page.get_by_role("table", name="Dead letters, newest checkpoint first").locator("tbody tr")
    expect(rows).to_have_count(letters["count"])
    rows.first.locator("a").first.click()
    letter = tab.page.locator("#letter")
    expect(letter).to_contain_text(letters["dead_letters"][0]["error"])
    expect(letter.locator("pre")).to_contain_text('"amount"')


def test_savepoints_runs_and_the_explanation_have_pages(served: Served, tab: Tab) -> None:
    tab.enter(served, "jobs/sales/savepoints")
    expect(tab.page.locator("main")).to_contain_text("This job has no savepoint.")
    tab.go("jobs/sales/runs")
    expect(tab.page.locator("main")).to_contain_text("No driver of this job has failed lately.")
    names = tab.page.get_by_role("navigation", name="Parts of this job").get_by_role("link")
    expect(names.last).to_have_text("How a checkpoint works")


def test_an_unknown_job_component_and_page_say_so(served: Served, tab: Tab) -> None:
    tab.enter(served, "jobs/nothing")
    expect(tab.page.get_by_role("alert")).to_contain_text("SW-")
    tab.go("jobs/sales/components/nothing")
    expect(tab.page.locator("main")).to_contain_text("has no component nothing")
    tab.go("elsewhere")
    expect(tab.page.locator("h1")).to_have_text("There is no such page.")


def test_an_address_holds_a_question_to_the_state(served: Served, tab: Tab) -> None:
    newest = served.get("/api/jobs/sales")["status"]["checkpoint"]
    query = {"component": "by-shop", "at": f"checkpoint:{newest}", "sql": 'SELECT count(*) AS shops FROM "by-shop"'}
    tab.enter(served, f"jobs/sales/state?{urlencode(query)}")
    expect(tab.page.get_by_label("Component", exact=True)).to_have_value("by-shop")
    expect(tab.page.locator("#at")).to_have_value(query["at"])
    expect(tab.page.locator("#answer tbody td")).to_have_text([str(len(fold(SALES, lambda sale: sale.shop)))])


def test_each_chart_has_its_command(served: Served, tab: Tab) -> None:
    for place in ("jobs/sales", "jobs/sales/epochs", "jobs/sales/components/by-shop"):
        tab.enter(served, place)
        tab.settle()
        charts = tab.page.locator(".card").filter(has=tab.page.locator(".switch"))
        commands = charts.locator(".cli code")
        assert charts.count() == commands.count() > 0
        expect(commands).to_contain_text(["streamwork "] * charts.count())


def test_broken_epochs_are_marked(served: Served, tab: Tab) -> None:
    found = served.get("/api/jobs/sales/epochs?limit=120")
    for row, outcome in zip(found["epochs"], ("failed", "abandoned", "rolled-forward"), strict=False):
        row["outcome"] = outcome
    tab.page.route(re.compile(r"/epochs\?"), lambda route: route.fulfill(json=found))
    tab.enter(served, "jobs/sales/epochs")
    legend = tab.page.get_by_role("list", name="Legend")
    for outcome, mark, text in (
        ("failed", ".cross", "failed \u00d7"),
        ("abandoned", ".dash", "abandoned \u2013"),
        ("rolled-forward", ".arrow", "rolled forward ▴"),
    ):
        expect(tab.page.locator(f".bar-of.{outcome} {mark}")).to_have_count(1)
        expect(tab.page.locator(mark)).to_have_count(1)
        expect(legend).to_contain_text(text)
    expect(tab.page.locator(".bar-of .broken")).to_have_count(2)


def test_what_only_some_jobs_have(served: Served, tab: Tab) -> None:
    """Latencies, events in retry, input in doubt: figures as the server gives them for such a job."""
    job = served.get("/api/jobs/sales")
    sink = {"component": "a", "p50": 0.004, "p99": 0.006, "p999": 0.011, "max": 0.2, "events": 1000, "staged": True}
    job["status"]["latency"] = {"at": 1.0, "window_seconds": 9.7, "sinks": [sink]}
    job["status"]["retrying"] = [
        {"component": "by-shop", "instance": 1, "event": "Sale 7", "error": "no answer", "failures": 3}
        | {"for_seconds": 2.0, "then": "dead-letter"}
    ]
    job["status"]["in_doubt"] = [{"epoch": 4, "source": "sales/0", "start": 10, "end": 25, "unit": "events"}]
    tab.page.route(re.compile("/api/jobs/sales$"), lambda route: route.fulfill(json=job))
    tab.page.route(re.compile("/api/jobs/sales/events$"), lambda route: route.abort())
    tab.enter(served, "jobs/sales")
    card = tab.page.get_by_role("region", name="Latency to sinks")
    expect(card.locator(".figure")).to_have_text(["4 ms", "6 ms", "11 ms", "200 ms"])
    expect(card).to_contain_text("over the last 10 s")
    expect(card).to_contain_text("visible with their checkpoint")
    card.get_by_role("button", name="Table").click()
    expect(card.locator("tbody td")).to_have_text(["4 ms", "6 ms", "11 ms", "200 ms", "1,000"])
    tab.go("jobs/sales/runs")
    retried = tab.page.get_by_role("table", name="Events that are retried in place")
    expect(retried.locator("tbody tr")).to_contain_text("by-shop[1]Sale 7no answer3")
    doubtful = tab.page.get_by_role("table", name="Input of epochs that broke off")
    expect(doubtful.locator("tbody td")).to_have_text(["4", "10", "25", "events"])
