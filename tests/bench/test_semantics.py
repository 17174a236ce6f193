"""The benchmark of the semantics: a small run of what errors cost, and no figure for wrong rows."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from streamwork.bench import semantics_errors as bench
from streamwork.bench.contest import Wrong
from streamwork.bench.open_loop import Use
from streamwork.bench.semantics import SEMANTICS, AppendTarget, SqliteTarget
from streamwork.bench.semantics_errors_job import FAILS, Check


@pytest.mark.slow
@pytest.mark.parametrize("name", SEMANTICS)
def test_a_small_run(tmp_path: Path, name: str) -> None:
    told: list[str] = []
    found = bench.measure(tmp_path / "job", SEMANTICS[name], bench.QUICK, told.append)
    assert found["normal_ms"] > 0 and found["others_ms"] > 0 and found["gap_s"] > 0
    assert (found["event_ms"] is None) == (name == "at_most_once"), "only at-most-once drops it"
    assert found["missing"] == 0 or name == "at_most_once"
    assert found["repeated"] == 0 or name in ("at_least_once", "acknowledging")
    assert len(told) == 1


def test_no_figures_for_losses_and_repetitions_that_are_not_allowed() -> None:
    """The negative control."""
    good = {"missing": 0, "repeated": 0, "event_ms": 1.0}
    for semantics in ("at-most-once", "at-least-once", "exactly-once"):
        bench._check(semantics, good)
    bench._check("at-most-once", {**good, "missing": 5, "event_ms": None})
    bench._check("at-least-once", {**good, "repeated": 5})
    for semantics, change in (
        ("at-most-once", {"repeated": 1}),
        ("at-least-once", {"missing": 1}),
        ("exactly-once", {"missing": 1}),
        ("exactly-once", {"repeated": 1}),
        ("exactly-once", {"event_ms": None}),
    ):
        with pytest.raises(Wrong, match=semantics):
            bench._check(semantics, {**good, **change})


def test_rows_are_compared_with_what_was_sent(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "out.db")) as db:
        db.execute("CREATE TABLE counted (number INTEGER, due REAL)")
        db.executemany("INSERT INTO counted VALUES (?, 0.0)", [(0,), (1,), (1,), (3,)])
        db.commit()
    assert bench._compare(tmp_path, 4) == (1, 1)


def test_the_check_fails_once(tmp_path: Path) -> None:
    passed: list[Use] = []

    class Collector:
        def emit(self, event: Use) -> None:
            passed.append(event)

    event = Use(1, FAILS, 0.0)
    with pytest.raises(RuntimeError, match="fails once"):
        Check(tmp_path).apply(event, Collector())
    Check(tmp_path).apply(event, Collector())
    assert passed == [event], "also after a restart"


def test_an_appended_count_that_is_missing_or_repeated_is_found(tmp_path: Path) -> None:
    target = AppendTarget(tmp_path)
    with closing(sqlite3.connect(tmp_path / "one-appended.db")) as db:
        db.execute("CREATE TABLE usage (card TEXT, count INTEGER, total REAL)")
        rows = [("a", 1, 1.0), ("a", 2, 3.0), ("b", 1, 1.0), ("b", 1, 1.0), ("c", 2, 2.0)]
        db.executemany("INSERT INTO usage VALUES (?, ?, ?)", rows)
        db.commit()
    assert target.rows("one") == {"a": (2, 3.0), "b": (-2, 1.0), "c": (-1, 2.0)}
    assert target.sink("one") and isinstance(target, SqliteTarget)
