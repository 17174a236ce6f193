"""Savepoints as a person meets them: created of a living job and at rest, listed, shown, dropped."""

from __future__ import annotations

from pathlib import Path

import pytest

from savepoint_jobs import ROOT, Place, expected
from streamwork.epoch.savepoints import Savepoint
from streamwork.world import RealDisk


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def opened(place: Place, name: str) -> Savepoint:
    savepoint = Savepoint.open(RealDisk(), place.folder / ROOT / "usage" / "savepoints" / name)
    savepoint.check()
    return savepoint


def test_of_a_living_job_which_goes_on(place: Place) -> None:
    place.give(12)
    with place.running() as run:
        place.wait_for_rows(12)
        made = place.save("before-v2", "--note", "the first")
        assert run.is_alive()
        place.give(8)
        place.wait_for_rows(20)
        again = place.save("later")
    assert (made["was_running"], made["note"], made["name"]) == (True, "the first", "before-v2")
    assert place.journal() == expected(place.given)
    assert opened(place, "before-v2").record.positions.of("payments")
    listed = place.ask("savepoint", "list", "usage.py")["savepoints"]
    assert [one["name"] for one in listed] == ["before-v2", "later"]
    assert [one["state"] for one in listed] == ["complete", "complete"]
    assert listed[0]["by"] == made["by"] and "@" in made["by"] and listed[0]["bytes"] > 0
    assert again["checkpoint"] > made["checkpoint"]


def test_at_rest_the_job_is_rolled_forward_first(place: Place) -> None:
    place.give(12)
    place.catch_up()
    checkpoints = place.folder / ROOT / "usage" / "checkpoints"
    newest = max(path.name for path in checkpoints.glob("*[0-9].json"))
    (checkpoints / newest).unlink()  # as after a crash between commit and completion
    made = place.save("one")
    assert not made["was_running"] and (checkpoints / newest).exists()
    assert made["checkpoint"] == int(newest.partition(".")[0])
    shown = place.ask("savepoint", "show", "usage.py", "one", "--verify")
    assert shown["problems"] == [] and shown["info"]["rows"] == 7
    place.give(3)
    place.catch_up()
    assert place.journal() == expected(place.given)


def test_stop_with_a_savepoint(place: Place) -> None:
    place.give(7)
    with place.running() as run:
        place.wait_for_rows(7)
        stopped = place.ask("stop", "usage.py", "--savepoint", "end", "--note", "for the weekend")
        run.join()
    assert stopped["savepoint"]["name"] == "end" and stopped["text"] == "stopped"
    assert opened(place, "end").record.epoch == stopped["checkpoint"]


def test_drain_reads_the_rest_of_the_input_first(place: Place) -> None:
    place.give(5)
    with place.running() as run:
        place.wait_for_rows(5)
        place.give(83)
        place.ask("stop", "usage.py", "--drain", "--savepoint", "end")
        run.join()
    assert place.journal() == expected(place.given)
    assert opened(place, "end").record.rows == 7


def test_a_drain_of_a_job_that_does_not_run_is_refused(place: Place) -> None:
    place.give(5)
    place.catch_up()
    assert place.refused("stop", "usage.py", "--drain", "--savepoint", "end")["code"] == "SW-STOP-NOT-DRAINED"
    assert place.ask("savepoint", "list", "usage.py")["savepoints"] == []


def test_a_name_that_is_taken_or_unusable_is_refused(place: Place) -> None:
    place.give(5)
    place.catch_up()
    place.save("one")
    assert place.refused("savepoint", "create", "usage.py", "one")["code"] == "SW-SAVEPOINT-EXISTS"
    assert place.refused("savepoint", "create", "usage.py", "a/b")["code"] == "SW-JOB-NAME"
    assert place.refused("stop", "usage.py", "--savepoint", "one")["code"] == "SW-SAVEPOINT-EXISTS"
    assert place.refused("savepoint", "show", "usage.py", "two")["code"] == "SW-SAVEPOINT-UNKNOWN"
    assert place.refused("savepoint", "drop", "usage.py", "two")["code"] == "SW-SAVEPOINT-UNKNOWN"


def test_dropped_and_half_made_ones(place: Place) -> None:
    place.give(5)
    place.catch_up()
    place.save("one")
    place.save("two")
    (place.folder / ROOT / "usage" / "savepoints" / "two" / "savepoint.json").unlink()
    listed = place.ask("savepoint", "list", "--root", place.folder / ROOT, "usage")["savepoints"]
    assert {one["name"]: one["state"] for one in listed} == {"one": "complete", "two": "half-made"}
    assert place.ask("savepoint", "drop", "usage.py", "one")["complete"] is True
    assert place.ask("savepoint", "drop", "usage.py", "two")["complete"] is False
    assert place.ask("savepoint", "list", "usage.py")["savepoints"] == []
    assert not list((place.folder / ROOT / "usage" / "savepoints").iterdir())


def test_savepoints_are_never_pruned_nor_cleaned_up(place: Place) -> None:
    place.give(5)
    place.catch_up()
    place.save("one")
    for _ in range(4):
        place.give(40)
        place.catch_up("--retain", 1)
    opened(place, "one")
