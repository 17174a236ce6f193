"""Two lives from one savepoint: a fork has a uid, a root and targets of its own; both go on, and take their own savepoints."""

from __future__ import annotations

from pathlib import Path

import pytest

from savepoint_jobs import ROOT, Place, expected, last

TARGETS = ("--target", "journal=journal_b.db", "--target", "latest=latest_b.db")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    place.give(12)
    place.catch_up()
    place.save("one")
    return place


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def with_factor(given: list[tuple[str, int]], since: int, factor: int) -> list[tuple[str, int, int]]:
    """What a version with this factor adds to the journal, from the state after so many events on."""
    state = {card: (number, total) for card, number, total in last(expected(given[:since]))}
    rows = []
    for card, amount in given[since:]:
        number, total = state.get(card, (0, 0))
        state[card] = number + 1, total + amount * factor
        rows.append((card, *state[card]))
    return sorted(rows)


def test_both_go_on_side_by_side(place: Place) -> None:
    place.write("usage_v2.py", factor=10)
    forked = place.ask("savepoint", "fork", "usage_v2.py", "one", "--as", "usage-b", *TARGETS)
    assert forked["targets"] == {"journal": "journal_b.db", "latest": "latest_b.db"}
    place.give(9)
    place.catch_up()
    place.catch_up("--as", "usage-b", job="usage_v2.py")
    place.give(4)
    place.catch_up("--as", "usage-b", job="usage_v2.py")
    place.catch_up()
    assert place.journal() == expected(place.given)
    assert place.journal("journal_b.db") == with_factor(place.given, 12, 10)
    assert place.ask("status", "--root", place.folder / ROOT, "usage-b")["job"] == "usage-b"


def test_the_story_of_two_versions(place: Place) -> None:
    """Version 0 saves at t1 and t2; version 0.1 starts from t2 while 0 goes on; both save later; t1 can still be used."""
    place.save("t1")
    place.give(8)
    place.catch_up()
    place.save("t2")
    at_t2 = len(place.given)
    place.write("usage_v01.py", factor=10)
    place.ask("savepoint", "fork", "usage_v01.py", "t2", "--as", "v01", *TARGETS)
    with place.running():
        place.give(11)
        place.wait_for_rows(len(place.given))
        place.catch_up("--as", "v01", job="usage_v01.py")
        place.save("t3")
        place.ask("savepoint", "create", "usage_v01.py", "t3", "--as", "v01")
    assert place.journal() == expected(place.given)
    assert place.journal("journal_b.db") == with_factor(place.given, at_t2, 10)
    mine = {one["name"]: one["state"] for one in place.ask("savepoint", "list", "usage.py")["savepoints"]}
    assert mine == dict.fromkeys(("one", "t1", "t2", "t3"), "complete")
    theirs = place.ask("savepoint", "list", "--root", place.folder / ROOT, "v01")["savepoints"]
    assert [one["name"] for one in theirs] == ["t3"]
    more = ("--target", "journal=journal_c.db", "--target", "latest=latest_c.db")
    place.ask("savepoint", "fork", "usage.py", "t1", "--as", "again", *more)
    place.catch_up("--as", "again")
    assert place.journal("journal_c.db") == with_factor(place.given, 12, 1)


@pytest.mark.parametrize(
    ("targets", "code"),
    [
        ((), "SW-FORK-SHARED"),
        (("--target", "journal=journal_b.db"), "SW-FORK-SHARED"),
        (("--target", "journal=journal.db", "--target", "latest=latest_b.db"), "SW-FORK-SHARED"),
        (("--target", "journal=used.db", "--target", "latest=latest_b.db"), "SW-FORK-TARGET"),
        ((*TARGETS, "--target", "other=x.db"), "SW-FORK-TARGET"),
        (("--target", "journal"), "SW-USAGE"),
    ],
)
def test_a_shared_or_used_target_is_refused(place: Place, tmp_path: Path, targets: tuple[str, ...], code: str) -> None:
    other = Place(tmp_path / "other")
    other.give(3)
    other.catch_up()
    (other.folder / "journal.db").rename(place.folder / "used.db")
    before = files_of(place.folder)
    assert place.refused("savepoint", "fork", "usage.py", "one", "--as", "b", *targets)["code"] == code
    assert files_of(place.folder) == before, "nothing was written"


def test_a_name_that_is_taken_or_unknown_is_refused(place: Place) -> None:
    place.ask("savepoint", "fork", "usage.py", "one", "--as", "b", *TARGETS)
    more = ("--target", "journal=journal_c.db", "--target", "latest=latest_c.db")
    before = files_of(place.folder)
    for name in ("b", "usage"):
        refused = place.refused("savepoint", "fork", "usage.py", "one", "--as", name, *more)
        assert refused["code"] == "SW-FORK-EXISTS"
    assert place.refused("run", "usage.py", "--mode", "local", "--as", "unknown")["code"] == "SW-FORK-UNKNOWN"
    assert place.refused("run", "usage.py", "--mode", "local", "--as", "usage")["code"] == "SW-FORK-UNKNOWN"
    assert place.refused("savepoint", "fork", "usage.py", "two", "--as", "c", *more)["code"] == "SW-SAVEPOINT-UNKNOWN"
    assert files_of(place.folder) == before, "nothing was written"


def test_a_fork_that_was_interrupted_is_not_run_and_can_be_completed(place: Place) -> None:
    place.ask("savepoint", "fork", "usage.py", "one", "--as", "b", *TARGETS)
    folder = place.folder / ROOT / "b"
    for path in [*folder.rglob("*.start.json"), *folder.rglob("*.prepared.json")]:
        path.unlink()
    refused = place.refused("run", "usage.py", "--mode", "local", "--until-caught-up", "--as", "b", "--no-restart")
    assert refused["code"] == "SW-ROOT-UNFINISHED"
    place.ask("savepoint", "fork", "usage.py", "one", "--as", "b", *TARGETS)
    place.give(5)
    place.catch_up("--as", "b")
    assert place.journal("journal_b.db") == with_factor(place.given, 12, 1)
