"""Every route answers with the read model that its command line (`cli`) prints with --json."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from click.testing import CliRunner

from console.console_world import Served, showing
from letter_jobs import POISON, squeamish_job
from query.query_jobs import by_shop, fold, sales, sales_job
from sample import run_job
from streamwork import Job
from streamwork.cli.main import cli
from streamwork.epoch.job_folder import open_store
from streamwork.run.savepoints import create_savepoint
from streamwork.world import RealClock

EVENTS = sales(range(0, 8_000, 97))


def savepoint(job: Job, root: Path, name: str) -> None:
    create_savepoint(job, open_store(root, job.name), name, "why <b>not</b>", 60, RealClock())


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("console")
    run_job(sales_job(EVENTS, path, 2), path / "root")
    savepoint(sales_job(EVENTS, path, 2), path / "root", "first")
    savepoint(sales_job(EVENTS, path, 2), path / "root", "second")
    run_job(squeamish_job(path, parallelism=2), path / "root")
    with showing(path / "root") as found:
        yield found


def printed(line: str) -> Any:
    """What a command line prints."""
    words = shlex.split(line)
    assert words[0] == "streamwork" and words[-1] == "--json"
    result = CliRunner().invoke(cli, words[1:], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def without_ages(found: Any) -> Any:
    """Two readings differ in the ages that they show."""
    if isinstance(found, dict):
        return {name: without_ages(value) for name, value in found.items() if name != "age_seconds"}
    return [without_ages(one) for one in found] if isinstance(found, list) else found


@pytest.mark.parametrize(
    "path",
    [
        "overview",
        "jobs/sales",
        "jobs/sales/history",
        "jobs/sales/history?points=3",
        "jobs/sales/epochs",
        "jobs/sales/epochs?limit=3",
        "jobs/sales/epochs?limit=2&before=5",
        "jobs/sales/epochs?outcome=completed",
        "jobs/sales/epochs/3",
        "jobs/sales/log",
        "jobs/sales/log?last=2",
        "jobs/sales/log?errors=1",
        "jobs/sales/savepoints",
        "jobs/sales/savepoints/first",
        "jobs/sales/dead-letters",
        "jobs/squeamish",
        "jobs/squeamish/dead-letters",
        "jobs/squeamish/dead-letters?limit=2",
        "jobs/squeamish/dead-letters?limit=1&component=squeamish",
    ],
)
def test_a_route_answers_what_its_command_prints(served: Served, path: str) -> None:
    answer = served.get(f"/api/{path}")
    cli = answer.pop("cli")
    assert without_ages(answer) == without_ages(printed(cli))


def test_the_status_of_a_job_is_that_of_the_command(served: Served) -> None:
    status = served.get("/api/jobs/sales")["status"]
    line = shlex.join(["streamwork", "status", "--root", str(served.root), "sales", "--json"])
    assert without_ages(status) == without_ages(printed(line))


def test_the_overview_agrees_with_the_status(served: Served) -> None:
    summary = next(one for one in served.get("/api/overview")["jobs"] if one["job"] == "sales")
    job = served.get("/api/jobs/sales")
    status = job["status"]
    assert (summary["job"], summary["running"], summary["checkpoint"]) == ("sales", False, status["checkpoint"])
    assert summary["verdict"] == status["verdicts"][0] and summary["verdicts"] == len(status["verdicts"])
    assert summary["completed_at"] == status["completed_at"] and summary["abandoned"] == status["abandoned"]
    assert summary["lag"]["total"] == sum(one["total"] for one in status["lag"].values())
    assert (summary["semantics"], summary["mode"]) == (job["semantics"], job["run"]["mode"])


def test_the_graph_is_that_of_the_job(served: Served) -> None:
    graph = served.get("/api/jobs/sales")["graph"]
    assert [node["id"] for node in graph["nodes"]] == ["sales", "watching", "by-shop", "a", "by-order", "b"]
    nodes = {node["id"]: node for node in graph["nodes"]}
    assert nodes["sales"]["processed"] == len(EVENTS) and nodes["by-shop"]["key"] == ["shop"]
    by_shop = nodes["by-shop"]
    assert [one["instance"] for one in by_shop["instances"]] == [0, 1]
    assert sum(one["processed"] for one in by_shop["instances"]) == len(EVENTS)
    assert by_shop["state"]["keys"] > 0 and by_shop["state"]["bytes"] > 0 and nodes["a"]["state"] is None
    edges = [(edge["from"], edge["to"]) for edge in graph["edges"]]
    assert sorted(edges) == [
        ("by-order", "b"),
        ("by-shop", "a"),
        ("sales", "watching"),
        ("watching", "by-order"),
        ("watching", "by-shop"),
    ]


def test_pages_of_epochs_are_the_whole_history(served: Served) -> None:
    whole = served.get("/api/jobs/sales/epochs?limit=1000")
    assert whole["next"] is None and whole["kept"] == len(whole["epochs"]) > 4
    found: list[Any] = []
    path = "/api/jobs/sales/epochs?limit=2"
    while True:
        page = served.get(path)
        found += page["epochs"]
        if page["next"] is None:
            break
        path = f"/api/jobs/sales/epochs?limit=2&before={page['next']}"
    assert found == whole["epochs"]


def test_an_epoch_names_its_files(served: Served) -> None:
    newest = served.get("/api/jobs/sales")["status"]["checkpoint"]
    epoch = served.get(f"/api/jobs/sales/epochs/{newest}")
    assert epoch["state"] == "completed" and epoch["manifest"]["positions"] == {"sales/0": len(EVENTS)}
    assert {file["kind"] for file in epoch["files"]} == {"state", "output"} and epoch["plan"]["parent"] == newest - 1
    for file in epoch["files"]:
        path: Path = served.root / "sales" / file["path"]
        assert file["present"] and path.stat().st_size == file["bytes"]
    assert served.ask("/api/jobs/sales/epochs/999").code == "SW-EPOCH-UNKNOWN"
    assert served.ask("/api/jobs/sales/epochs/999").status == 404


def test_pages_of_dead_letters_are_all_of_them(served: Served) -> None:
    whole = served.get("/api/jobs/squeamish/dead-letters")
    assert (whole["count"], whole["replayed"], whole["next"]) == (len(POISON), 0, None)
    assert [one["epoch"] for one in whole["dead_letters"]] == [3, 2, 1]
    found, path = [], "/api/jobs/squeamish/dead-letters?limit=2"
    while True:
        page = served.get(path)
        found += page["dead_letters"]
        assert without_ages(page) == {**without_ages(printed(page["cli"])), "cli": page["cli"]}
        if page["next"] is None:
            break
        path = f"/api/jobs/squeamish/dead-letters?limit=2&after={quote(page['next'])}"
    assert found == whole["dead_letters"]


def test_a_dead_letter_shows_its_event(served: Served) -> None:
    for one in served.get("/api/jobs/squeamish/dead-letters")["dead_letters"]:
        letter = served.get(f"/api/jobs/squeamish/dead-letters/one?id={quote(one['id'])}")
        assert letter["event"]["amount"] in POISON and without_ages(letter) == {
            **printed(letter["cli"]),
            "cli": letter["cli"],
        }
    assert served.ask("/api/jobs/squeamish/dead-letters/one?id=squeamish/9/0-1").code == "SW-LETTERS-UNKNOWN"
    assert served.ask("/api/jobs/squeamish/dead-letters/one?id=../../x").code == "SW-JOB-NAME"
    assert served.ask("/api/jobs/squeamish/dead-letters?component=../x").code == "SW-JOB-NAME"


def test_savepoints_are_listed(served: Served) -> None:
    found = served.get("/api/jobs/sales/savepoints")["savepoints"]
    assert [one["name"] for one in found] == ["first", "second"] and found[0]["note"] == "why <b>not</b>"
    assert served.ask("/api/jobs/sales/savepoints/none").code == "SW-SAVEPOINT-UNKNOWN"
    assert served.ask("/api/jobs/sales/savepoints/..").code in ("SW-JOB-NAME", "SW-SERVE-ROUTE")


def test_the_state_is_browsed_by_key_by_range_and_by_sql(served: Served) -> None:
    ask = "/api/jobs/sales/query"
    assert set(served.get(f"{ask}/state")["components"]) == {"watching", "by-shop", "by-order"}
    wanted = fold(EVENTS, by_shop)
    assert served.get(f"{ask}/count/by-shop")["count"] == len(wanted)
    shop = min(wanted)
    assert served.get(f"{ask}/state/by-shop/{shop}")["record"]["total"] == wanted[shop][1]
    rows = served.get(f"{ask}/range/by-shop?prefix=shop-&limit=3")["rows"]
    assert [row["key"]["shop"] for row in rows] == sorted(wanted)[:3]
    sql = {"sql": "SELECT CAST(sum(total) AS BIGINT) AS total FROM by_shop"}
    assert served.ask(f"{ask}/sql", "POST", sql).json["rows"] == [[sum(one[1] for one in wanted.values())]]
    assert served.ask(f"{ask}/sql", "POST", {"sql": "SELECT * FROM read_csv('/etc/passwd')"}).status == 400
    older = served.get(f"{ask}/count/by-shop?at=savepoint:first")
    assert older["count"] == len(wanted)
    for path in ("watch/by-shop", "scan/by-shop", "", "jobs", "../sales"):
        assert served.ask(f"{ask}/{path}").code == "SW-SERVE-ROUTE"
    assert served.ask("/api/jobs/none/query/state").code == "SW-QUERY-JOB"
    assert served.ask(f"{ask}/state", token=None).code == "SW-SERVE-TOKEN"
