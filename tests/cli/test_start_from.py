"""`run --from`: a start from a savepoint or an older checkpoint, and what it refuses."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest

from savepoint_jobs import ROOT, Place, expected, last


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A job that has read 12 events, and has a savepoint of that."""
    place = Place(tmp_path / "here")
    place.give(12)
    place.catch_up()
    place.save("one")
    return place


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_from_a_savepoint_that_every_sink_is_at(place: Place) -> None:
    """A code upgrade: the state goes on under other code."""
    place.give(9)
    place.write("usage.py", factor=10)
    started = place.catch_up("--from", "savepoint:one")
    assert started["events"] == 9
    rows = expected(place.given[:12])
    totals = {card: (number, total) for card, number, total in last(rows)}
    for card, amount in place.given[12:]:
        number, total = totals.get(card, (0, 0))
        totals[card] = number + 1, total + 10 * amount
        rows.append((card, *totals[card]))
    assert place.journal() == sorted(rows)
    assert place.latest() == sorted((card, *found) for card, found in totals.items())


def test_again_and_again_as_long_as_nothing_was_read(place: Place) -> None:
    for _ in range(3):
        assert place.catch_up("--from", "savepoint:one")["events"] == 0
    place.give(3)
    place.catch_up()
    assert place.journal() == expected(place.given)


@pytest.mark.parametrize("kind", ["savepoint:one", "checkpoint:newest"])
def test_the_input_is_not_read_twice(place: Place, kind: str) -> None:
    place.give(20)
    place.catch_up("--from", kind)
    place.give(3)
    place.catch_up()
    assert place.journal() == expected(place.given) and place.latest() == last(expected(place.given))


def test_a_sink_that_is_ahead_is_refused(place: Place) -> None:
    place.give(9)
    place.catch_up()
    before = files_of(place.folder)
    refused = place.refused("run", "usage.py", "--mode", "local", "--until-caught-up", "--from", "savepoint:one")
    assert refused["code"] == "SW-SINK-AHEAD" and "fork" in refused["action"]
    assert files_of(place.folder) == before, "nothing was written"


def test_moved_to_another_root_and_the_old_one_is_fenced(place: Place, tmp_path: Path) -> None:
    """The savepoint is copied to another machine; the databases are where they were."""
    shutil.copytree(place.folder / ROOT / "usage" / "savepoints" / "one", tmp_path / "copy")
    place.give(9)
    moved = place.catch_up("--from", tmp_path / "copy", "--root", tmp_path / "new-root")
    assert moved["events"] == 9
    assert place.journal() == expected(place.given)
    place.give(4)
    refused = place.refused("run", "usage.py", "--mode", "local", "--until-caught-up", "--no-restart")
    assert refused["code"] == "SW-ROOT-MOVED"
    place.catch_up("--root", tmp_path / "new-root")
    assert place.journal() == expected(place.given) and place.latest() == last(expected(place.given))


def test_of_another_job_or_another_life_is_refused(place: Place, tmp_path: Path) -> None:
    other = Place(tmp_path / "other")
    other.give(3)
    other.catch_up()
    before = files_of(tmp_path)
    theirs = place.folder / ROOT / "usage" / "savepoints" / "one"
    assert other.refused("run", "usage.py", "--mode", "local", "--from", theirs)["code"] == "SW-SAVEPOINT-FOREIGN"
    (other.folder / "named.py").write_text((other.folder / "usage.py").read_text().replace('"usage"', '"named"'))
    assert other.refused("run", "named.py", "--mode", "local", "--from", theirs)["code"] == "SW-SAVEPOINT-FOREIGN"
    (other.folder / "named.py").unlink()
    assert files_of(tmp_path) == before, "nothing was written"


@pytest.mark.parametrize("what", ["half", "last", "damaged", "newer"])
def test_a_bad_savepoint_is_refused_and_nothing_is_written(place: Place, tmp_path: Path, what: str) -> None:
    """Neither a start nor a fork takes it."""
    copy = tmp_path / "copy"
    shutil.copytree(place.folder / ROOT / "usage" / "savepoints" / "one", copy)
    if what == "half":
        next(copy.rglob("*.parquet")).unlink()
    elif what == "last":
        (copy / "savepoint.json").unlink()
    elif what == "damaged":
        path = next(copy.rglob("*.parquet"))
        path.write_bytes(path.read_bytes()[:-1] + b"x")
    else:
        path = copy / "savepoint.json"
        path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
    before = files_of(tmp_path)
    expected_code = {"newer": "SW-SAVEPOINT-FORMAT", "last": "SW-SAVEPOINT-INCOMPLETE"}.get(
        what, "SW-SAVEPOINT-DAMAGED"
    )
    run = ("run", "usage.py", "--mode", "local", "--from", copy, "--root", tmp_path / "new")
    targets = ("--target", "journal=journal_b.db", "--target", "latest=latest_b.db")
    for command in (run, ("savepoint", "fork", "usage.py", copy, "--as", "b", *targets)):
        refused = place.refused(*command)
        assert refused["code"] == expected_code and "copy" in refused["cause"] + refused["action"], "it is named"
        assert files_of(tmp_path) == before


def test_another_place_in_the_input_is_confirmed(place: Place) -> None:
    place.give(5)
    options = ("--from", "savepoint:one", "--input", "payments=latest")
    refused = place.refused("run", "usage.py", "--mode", "local", "--until-caught-up", *options)
    assert refused["code"] == "SW-INPUT-CHANGED" and "skipped" in refused["cause"]
    assert place.catch_up(*options, "--accept-input")["events"] == 0
    place.give(4)
    place.catch_up()
    assert place.journal() == expected([*place.given[:12], *place.given[17:]])


def test_from_the_beginning_with_the_state_of_a_savepoint(place: Place) -> None:
    options = ("--from", "savepoint:one", "--input", "payments=earliest")
    refused = place.refused("run", "usage.py", "--mode", "local", "--until-caught-up", *options)
    assert refused["code"] == "SW-INPUT-CHANGED" and "counted twice" in refused["cause"]
    assert place.catch_up(*options, "--accept-input")["events"] == 12
    assert place.journal() == expected([*place.given, *place.given])


@pytest.mark.parametrize("options", [("--input", "payments=latest"), ("--rewind-output",)])
def test_what_needs_an_origin(place: Place, options: tuple[str, ...]) -> None:
    assert place.refused("run", "usage.py", "--mode", "local", *options)["code"] == "SW-USAGE"


def bad_upgrade(place: Place) -> None:
    """Savepoint "before" after 12 events; then a version that multiplies by ten processes 9 more."""
    place.give(12)
    place.catch_up()
    place.save("before", "--note", "the last good version")
    place.write("usage.py", factor=10)
    place.give(9)
    place.catch_up("--from", "savepoint:before")


def test_a_bad_upgrade_is_rolled_back_with_its_output(tmp_path: Path) -> None:
    place = Place(tmp_path, latest="")
    bad_upgrade(place)
    assert place.journal() != expected(place.given)
    place.write("usage.py")
    back = ("--from", "savepoint:before")
    assert place.refused("run", "usage.py", "--mode", "local", *back)["code"] == "SW-SINK-AHEAD"
    assert place.catch_up(*back, "--rewind-output")["events"] == 9
    assert place.journal() == expected(place.given)
    place.give(5)
    place.catch_up()
    assert place.journal() == expected(place.given)


@pytest.mark.parametrize("folder_bytes", [0, 1 << 27])
def test_a_bad_upgrade_is_rolled_back_with_its_parquet_files(tmp_path: Path, folder_bytes: int) -> None:
    sink = f'streamwork.ParquetSink("journal", folder_bytes={folder_bytes})'
    place = Place(tmp_path, latest="", sink=sink)

    def version(factor: int) -> None:
        place.write("usage.py", factor, sink)
        (tmp_path / "usage.py").write_text("import streamwork\n" + (tmp_path / "usage.py").read_text())

    def rows() -> list[Any]:
        files = [str(path) for path in (tmp_path / "journal").glob("epoch=*/*.parquet")]
        return sorted(duckdb.read_parquet(files, hive_partitioning=False).fetchall())

    version(1)
    place.give(12)
    place.catch_up()
    place.save("before")
    version(10)
    place.give(9)
    place.catch_up("--from", "savepoint:before")
    assert rows() != expected(place.given)
    version(1)
    assert place.refused("run", "usage.py", "--mode", "local", "--from", "savepoint:before")["code"] == "SW-SINK-AHEAD"
    assert place.catch_up("--from", "savepoint:before", "--rewind-output")["events"] == 9
    assert rows() == expected(place.given)
    place.give(5)
    place.catch_up()
    assert rows() == expected(place.given)


def test_a_sink_that_cannot_be_rewound_says_so(tmp_path: Path) -> None:
    place = Place(tmp_path)
    bad_upgrade(place)
    before = place.journal(), place.latest()
    options = ("--mode", "local", "--from", "savepoint:before", "--rewind-output")
    refused = place.refused("run", "usage.py", *options)
    assert refused["code"] == "SW-SINK-AHEAD" and "latest" in refused["cause"] and "key" in refused["cause"]
    assert (place.journal(), place.latest()) == before, "no sink was rewound"
