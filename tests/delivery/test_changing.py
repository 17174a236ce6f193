"""From acknowledging to other semantics, and back: what waits is not forgotten, and goes in once."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from crashes import Crash, CrashAt
from delivery.failing_jobs import Finite, Fountain, Item, Result, Tries
from delivery.test_acknowledging import written
from inbox_files import too_many
from sample import run_job
from streamwork import Job, KeyedOperator, ListSource, Operator, SqliteSink
from streamwork.delivery import Inbox
from streamwork.epoch import Phase
from streamwork.epoch.redelivery import Redelivery
from streamwork.world import RealDisk

ITEMS = [Item(f"{i:03d}") for i in range(9)]
BROKEN = {"001", "004"}
ACKNOWLEDGING = {"semantics": "at-least-once", "tracking": "acknowledge", "retry_after": "60s", "max_attempts": 5}
SOON = {**ACKNOWLEDGING, "retry_after": "3s", "ack_timeout": "10ms"}
TARGETS: dict[str, dict[str, Any]] = {
    "exactly-once": {"semantics": "exactly-once"},
    "at-least-once": {"semantics": "at-least-once"},
    "at-most-once": {"semantics": "at-most-once"},
}
STEPS = 4 + 6  # of a start, and of the epoch that takes what waited


class Broken(KeyedOperator[Item, Tries, Result]):
    """Cannot do some, until it is mended."""

    def __init__(self, mended: Path) -> None:
        self.mended = mended

    def apply(self, event: Item, state: Tries, collector: Any) -> None:
        state.tries += 1
        if event.name in BROKEN and not self.mended.exists():
            collector.fail("down")
        collector.emit(Result(event.name, str(state.tries)))


def live(folder: Path, chosen: dict[str, Any], watcher: Any = None, mode: str = "local", change: bool = True) -> None:
    job = Job("items", checkpoint_every=0, **chosen)
    source = job.source(ListSource(ITEMS, Item, max_events=3), id="items", parallelism=1)
    done = source.apply(Broken(folder / "mended"), key="name", id="work", parallelism=2)
    done.sink(SqliteSink(folder / "out.db", "out"), id="out")
    run_job(job, folder / "root", mode, watcher=watcher, change_semantics=change)


class CrashWhenRead(CrashAt):
    """Crashes at the first checkpoint with all events."""

    def __init__(self) -> None:
        super().__init__(10**9)

    def on_phase(self, step: Phase, epoch: int, manifest: Any) -> None:
        if step is Phase.COMPLETE and sum(manifest.positions.of("items").values()) == len(ITEMS):
            raise Crash


def with_two_that_wait(folder: Path, mode: str = "local", chosen: dict[str, Any] = ACKNOWLEDGING) -> None:
    folder.mkdir(exist_ok=True)
    with pytest.raises(Crash):
        live(folder, chosen, CrashWhenRead(), mode)
    (folder / "mended").touch()
    assert set(written(folder / "out.db")) == {item.name for item in ITEMS} - BROKEN


def rows(folder: Path) -> Counter[tuple[str, str]]:
    with closing(sqlite3.connect(folder / "out.db")) as db:
        return Counter(db.execute("SELECT name, by FROM out").fetchall())


ONCE = Counter({(item.name, "1"): 1 for item in ITEMS})


class Told(CrashAt):
    """Remembers what a start told."""

    def on_started(self, *told: Any) -> None:
        self.story = told[1].story


@pytest.mark.parametrize("target", TARGETS)
def test_what_waits_comes_again_at_once(tmp_path: Path, target: str) -> None:
    with_two_that_wait(tmp_path)
    told = Told(10**9)
    live(tmp_path, TARGETS[target], told)
    assert rows(tmp_path) == ONCE
    assert told.story == ("events are no longer acknowledged: 2 that waited come again, through the inbox",)


def test_on_every_host(tmp_path: Path, mode: str) -> None:
    with_two_that_wait(tmp_path, mode)
    live(tmp_path, TARGETS["exactly-once"], mode=mode)
    assert rows(tmp_path) == ONCE


@pytest.mark.parametrize("target", ["exactly-once", "at-least-once"])
def test_wherever_the_change_breaks_off(tmp_path: Path, target: str) -> None:
    for steps in range(STEPS):
        here = tmp_path / str(steps)
        with_two_that_wait(here)
        with pytest.raises(Crash):
            live(here, TARGETS[target], CrashAt(steps))
        live(here, TARGETS[target])
        found = rows(here)
        if target == "exactly-once":
            assert found == ONCE, steps
        else:
            assert found.keys() == ONCE.keys() and sum(found.values()) <= len(ONCE) + len(BROKEN), steps


def test_there_and_back_again(tmp_path: Path) -> None:
    """The change breaks off when the inbox has what waits, and is taken back."""
    with_two_that_wait(tmp_path, chosen=SOON)
    with pytest.raises(Crash):
        live(tmp_path, TARGETS["exactly-once"], CrashAt(0, Phase.PRUNE))
    assert Inbox(RealDisk(), tmp_path / "root" / "items").numbers() == [1]
    live(tmp_path, SOON)
    assert rows(tmp_path) == ONCE


@pytest.mark.parametrize("steps", range(4 + 3 * 6))
def test_to_acknowledging(tmp_path: Path, steps: int) -> None:
    (tmp_path / "mended").touch()
    with pytest.raises(Crash):
        live(tmp_path, TARGETS["exactly-once"], CrashAt(steps))
    live(tmp_path, ACKNOWLEDGING)
    assert rows(tmp_path) == ONCE


# ---- a source without offsets ---------------------------------------------------------------------------------------


class Holding(Operator[Item, Result]):
    """Acknowledges nothing that ends in a seven."""

    manual_ack = True

    def apply(self, event: Item, collector: Any) -> None:
        if not event.name.endswith("7"):
            collector.ack()
        collector.emit(Result(event.name))


def polled(folder: Path, chosen: dict[str, Any], watcher: Any = None, source: str = "items") -> None:
    job = Job("items", checkpoint_every="1h", **chosen)  # so `max_events` bounds an epoch, not time
    done = job.source(Finite(), id=source).apply(Holding(), id="work")
    done.sink(SqliteSink(folder / "out.db", "out"), id="out")
    run_job(job, folder / "root", watcher=watcher, change_semantics=True)


@pytest.mark.parametrize("breaks_off", [False, True])
def test_what_a_source_without_offsets_gave(tmp_path: Path, breaks_off: bool) -> None:
    """Of the first epoch some are not acknowledged, the second comes to nothing; then acknowledging ends."""
    Fountain.left[:] = [Item(f"{i:03d}") for i in range(60)]
    with pytest.raises(Crash):
        polled(tmp_path, ACKNOWLEDGING, CrashAt(1, Phase.COMPUTE))
    assert len(Fountain.left) == 20
    if breaks_off:
        with pytest.raises(Crash):
            polled(tmp_path, TARGETS["at-most-once"], CrashAt(0, Phase.PRUNE))
    polled(tmp_path, TARGETS["at-most-once"])
    found = Counter(written(tmp_path / "out.db"))
    assert found.keys() == {f"{i:03d}" for i in range(60)}
    assert {name for name, count in found.items() if count > 1} == {"007", "017"} | {f"{i:03d}" for i in range(20, 40)}
    assert max(found.values()) == 2
    assert not too_many(tmp_path / "root" / "items", "items")


@pytest.mark.parametrize("source", ["waiting", "000000000001", "letters"])
def test_no_id_of_a_source_is_in_the_way(tmp_path: Path, source: str) -> None:
    Fountain.left[:] = [Item(f"{i:03d}") for i in range(60)]
    chosen = {**SOON, "retry_after": 0, "max_attempts": 1}
    for breaks in (CrashAt(1, Phase.COMPUTE), CrashAt(1, Phase.COMPLETE), CrashAt(0, Phase.REPORT)):
        with pytest.raises(Crash):
            polled(tmp_path, chosen, breaks, source)
    polled(tmp_path, chosen, source=source)
    assert set(written(tmp_path / "out.db")) == {f"{i:03d}" for i in range(60)}


# ---- negative controls ----------------------------------------------------------------------------------------------


def test_without_the_way_into_the_inbox_it_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Redelivery, "_move_waiting", lambda self, at: setattr(self, "waiting", ()) or ())
    with pytest.raises(AssertionError):
        test_what_waits_comes_again_at_once(tmp_path, "exactly-once")


def test_if_what_is_in_the_inbox_were_not_known_it_would_go_in_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Inbox, "_ids_of", lambda self, number: frozenset())
    with pytest.raises(AssertionError):
        test_wherever_the_change_breaks_off(tmp_path, "exactly-once")
