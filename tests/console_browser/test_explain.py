"""The page "How a checkpoint works": an epoch step by step, and a run in the simulator, by mouse and by keyboard."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, expect

from console.console_world import Served, showing
from console_browser.tab import Tab
from console_browser.worlds import quiet_root

pytestmark = pytest.mark.slow
PLACE = "jobs/sales/explain"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with showing(quiet_root(tmp_path_factory.mktemp("explain"))) as found:
        yield found


def opened(tab: Tab, served: Served, place: str = PLACE) -> tuple[Locator, Locator]:
    """The part about an epoch, and that about the simulator."""
    tab.enter(served, place)
    expect(tab.page.locator(".scene")).to_be_visible()
    return tab.page.locator(".epoch-steps"), tab.page.locator(".player")


def test_each_point_of_an_epoch_by_keyboard(served: Served, tab: Tab) -> None:
    steps, _ = opened(tab, served)
    found = served.get("/api/jobs/sales/explain")
    expect(steps.locator(".rail li")).to_have_count(len(found["steps"]))
    steps.locator(".rail button").first.focus()
    for place, row in enumerate(found["crash_table"]):
        expect(steps.locator(".kill .answer")).to_have_text(row["does"])
        expect(steps.locator("tr.present th button")).to_have_text(row["killed"])
        (step,) = [one for one in found["steps"] if one["name"] == row["step"]]
        expect(steps.locator('[aria-current="step"]')).to_contain_text(step["name"])
        expect(steps.locator("tbody th code")).to_have_text([file["path"] for file in step["files"]])
        assert tab.page.url.endswith(f"/explain/{found['checkpoint']}?row={place}") or place == 0
        tab.page.keyboard.press("ArrowRight")
    tab.page.keyboard.press("Home")
    expect(steps.locator(".kill .answer")).to_have_text(found["crash_table"][0]["does"])
    expect(steps.locator(".cli code")).to_have_text(found["cli"])


def test_an_address_leads_to_a_point_of_an_epoch(served: Served, tab: Tab) -> None:
    number = served.get("/api/jobs/sales/explain")["kept"][-1]
    found = served.get(f"/api/jobs/sales/explain/epochs/{number}")
    steps, _ = opened(tab, served, f"{PLACE}/{number}?row=3")
    expect(steps.locator("h2")).to_contain_text(f"Epoch {number} ")
    expect(steps.locator(".kill .answer")).to_have_text(found["crash_table"][3]["does"])
    steps.get_by_label("Epoch", exact=True).select_option(str(found["kept"][0]))
    expect(steps.locator("h2")).to_contain_text(f"Epoch {found['kept'][0]} ")


def test_an_epoch_that_is_not_there(served: Served, tab: Tab) -> None:
    tab.enter(served, f"{PLACE}/999")
    expect(tab.page.get_by_role("alert")).to_contain_text("SW-CHECKPOINT-UNKNOWN")


def test_the_run_shows_blocked_inputs_and_survives_a_crash(served: Served, tab: Tab) -> None:
    _, player = opened(tab, served)
    frames = served.get("/api/explain/playback?seed=1")["frames"]
    first = next(one for one in frames if one["kind"] == "block")
    player.get_by_role("button", name="Next blocked input").click()
    expect(player.locator(".caption .what")).to_have_text(first["caption"])
    expect(player.locator(".channel.blocked")).to_have_count(1)
    waiting = [token for tokens in first["edges"].values() for token in tokens]
    expect(player.locator(".token:not(.leaves)")).to_have_count(len(waiting))
    expect(player.locator(".token.checkpoint:not(.leaves)")).to_have_count(sum(one["checkpoint"] for one in waiting))
    player.get_by_role("button", name="Crash the machine here").click()
    expect(player.locator(".caption.crash")).to_be_visible()
    played = served.get(f"/api/explain/playback?seed=1&crash={first['crash_at']}")
    expect(player.locator(".cli code")).to_have_text(played["cli"])
    player.locator("summary").click()
    expect(player.locator("table.frames tbody tr")).to_have_count(len(played["frames"]))
    expect(player.locator("table.frames tbody th")).to_have_text([one["caption"] for one in played["frames"]])
    player.get_by_role("button", name="Without crashes").click()
    expect(player.locator(".caption.start")).to_be_visible()


def test_the_run_by_keyboard(served: Served, tab: Tab) -> None:
    _, player = opened(tab, served)
    frames = served.get("/api/explain/playback?seed=1")["frames"]
    player.locator(".screen").focus()
    tab.page.keyboard.press("ArrowRight")
    expect(player.locator(".caption .what")).to_have_text(frames[1]["caption"])
    tab.page.keyboard.press("End")
    expect(player.locator(".caption .what")).to_have_text(frames[-1]["caption"])
    tab.page.keyboard.press("Home")
    tab.page.keyboard.press(" ")
    expect(player.get_by_role("button", name="Pause")).to_be_visible()
    expect(player.locator(".caption .what")).to_have_text(frames[2]["caption"])


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
def test_it_is_readable(served: Served, browser: Browser, width: int, scheme: str) -> None:
    with Tab.opened(browser, width, scheme) as tab:
        _, player = opened(tab, served)
        player.get_by_role("button", name="Next blocked input").click()
        assert tab.axe() == []
        assert tab.outside() == []
        assert tab.problems == []
