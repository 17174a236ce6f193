"""What a failure costs under each of the semantics, with a crash at every step and in the middle of every write."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from crashes import Crash, CrashAt
from sample import Payment, Seen, Summing, run_job
from streamwork import Job, KeyedOperator, ListSource, Record, Refused, SqliteSink
from streamwork.epoch import Phase

EVENTS = [Payment(f"card-{i % 3}", i) for i in range(40)]
PER_EPOCH = 10
STEPS = 4 + 4 * 6  # of a start, and of each epoch


class Last(Record):
    number: int = 0
    amount: int = 0


class Echo(KeyedOperator[Payment, Last, Seen]):
    """Tells which event it was, and the how many-th of its card."""

    def apply(self, event: Payment, state: Last, collector: Any) -> None:
        state.number += 1
        state.amount = event.amount
        collector.emit(Seen(event.card, state.number, event.amount))


class Breaking(SqliteSink[Any]):
    """Crashes at its n-th write, before or after it has written."""

    def __init__(self, path: Path, table: str, at: int, after: bool) -> None:
        super().__init__(path, table)
        self.at, self.after = at, after

    def write(self, batch: pa.RecordBatch) -> None:
        self.at -= 1
        if self.at == 0 and not self.after:
            raise Crash
        super().write(batch)
        if self.at == 0:
            raise Crash


def echo_job(sink: SqliteSink[Any], **settings: Any) -> Job:
    job = Job("echo", checkpoint_every=0, retry_after=0, **settings)
    source = job.source(ListSource(EVENTS, Payment, max_events=PER_EPOCH), id="payments")
    source.apply(Echo(), key="card", id="echo").sink(sink, id="out")
    return job


def amounts(database: Path) -> Counter[int]:
    with closing(sqlite3.connect(database)) as db:
        return Counter(amount for (amount,) in db.execute("SELECT total FROM out"))


class Opened(CrashAt):
    """Remembers which epochs were under way at the crash."""

    open_epochs: set[int]

    def __init__(self, steps: int) -> None:
        super().__init__(steps)
        self.open_epochs = set()

    def on_phase(self, step: Phase, epoch: int, manifest: Any) -> None:
        if step is Phase.PLAN:
            self.open_epochs.add(epoch)
        if step is Phase.COMPLETE:
            self.open_epochs.discard(epoch)
        super().on_phase(step, epoch, manifest)


def crashed(folder: Path, sink: SqliteSink[Any], steps: int, **settings: Any) -> set[int]:
    """Run, crash, run again. Returns the ids in epochs that were open at the crash."""
    watcher = Opened(steps)
    job = echo_job(sink, **settings)
    with pytest.raises(Crash):
        run_job(job, folder / "root", watcher=watcher)
    plans = [
        p
        for p in (folder / "root" / "echo" / "checkpoints").glob("*.plan.json")
        if int(p.name[:12]) in watcher.open_epochs
    ]
    lost: set[int] = set()
    for plan in plans:
        told = json.loads(plan.read_text())
        lost |= {EVENTS[i].amount for i in range(told["from"].get("payments/0", 0), told["to"]["payments/0"])}
    run_job(echo_job(SqliteSink(folder / "out.db", "out"), **settings), folder / "root")
    return lost


def crash_points(folder: Path, **settings: Any) -> Iterator[tuple[Counter[int], set[int]]]:
    for steps in range(STEPS):
        here = folder / f"step-{steps}"
        here.mkdir()
        yield check_point(here, SqliteSink(here / "out.db", "out"), steps, settings)
    for at in range(1, 5):
        for after in (False, True):
            here = folder / f"write-{at}-{after}"
            here.mkdir()
            yield check_point(here, Breaking(here / "out.db", "out", at, after), 10**9, settings)


def check_point(
    here: Path, sink: SqliteSink[Any], steps: int, settings: dict[str, Any]
) -> tuple[Counter[int], set[int]]:
    lost = crashed(here, sink, steps, **settings)
    return amounts(here / "out.db"), lost


IDS = {event.amount for event in EVENTS}


def test_at_most_once(tmp_path: Path) -> None:
    missing = 0
    for out, in_doubt in crash_points(tmp_path, semantics="at-most-once"):
        assert set(out) <= IDS and max(out.values()) == 1, out
        assert IDS - set(out) <= in_doubt
        missing += len(IDS - set(out))
    assert missing, "a crash must cost something somewhere, or nothing was tested"


@pytest.mark.parametrize("tracking", ["checkpoint", "acknowledge"])
def test_at_least_once(tmp_path: Path, tracking: str) -> None:
    repeated = 0
    for out, in_doubt in crash_points(tmp_path, semantics="at-least-once", tracking=tracking):
        assert set(out) == IDS, IDS - set(out)
        assert {amount for amount, count in out.items() if count > 1} <= in_doubt
        repeated += sum(count > 1 for count in out.values())
    assert repeated, "an appending sink shows the duplicates"


def test_semantics_are_changed_only_if_that_is_meant(tmp_path: Path) -> None:
    sink = SqliteSink(tmp_path / "out.db", "out")
    run_job(echo_job(sink, semantics="at-least-once"), tmp_path / "root")
    with pytest.raises(Refused, match="SW-SEMANTICS-CHANGED"):
        run_job(echo_job(sink, semantics="at-most-once"), tmp_path / "root")
    run_job(echo_job(sink, semantics="at-most-once"), tmp_path / "root", change_semantics=True)
    run_job(echo_job(sink, semantics="at-most-once"), tmp_path / "root")
    assert amounts(tmp_path / "out.db") == Counter(IDS)


@pytest.mark.parametrize("between", ["at-most-once", "at-least-once"])
def test_from_exactly_once_and_back(tmp_path: Path, between: str) -> None:
    """Each time a third of the input: what the sinks have is the sum."""

    def live(semantics: str, until: int) -> None:
        job = Job("echo", semantics=semantics, checkpoint_every=0)
        source = job.source(ListSource(EVENTS[:until], Payment, max_events=PER_EPOCH), id="payments")
        source.apply(Echo(), key="card", id="echo").sink(SqliteSink(tmp_path / "out.db", "out"), id="out")
        run_job(job, tmp_path / "root", change_semantics=True)

    for semantics, until in [("exactly-once", 10), (between, 20), ("exactly-once", 30), (between, 40)]:
        live(semantics, until)
    assert amounts(tmp_path / "out.db") == Counter(IDS)


def test_a_prepared_checkpoint_is_still_committed_when_the_semantics_change(tmp_path: Path) -> None:
    database = tmp_path / "out.db"
    with pytest.raises(Crash):
        run_job(echo_job(SqliteSink(database, "out")), tmp_path / "root", watcher=CrashAt(0, Phase.PREPARE))
    job = echo_job(SqliteSink(database, "out"), semantics="at-most-once")
    run_job(job, tmp_path / "root", change_semantics=True)
    assert amounts(database) == Counter(IDS)


def test_the_same_on_every_host(tmp_path: Path, mode: str) -> None:
    for number, settings in enumerate(
        [
            {"semantics": "at-most-once"},
            {"semantics": "at-least-once"},
            {"semantics": "at-least-once", "tracking": "acknowledge"},
        ]
    ):
        job = Job(f"echo-{number}", checkpoint_every=0, parallelism=2, **settings)  # type: ignore[arg-type]
        source = job.source(ListSource(EVENTS, Payment, max_events=PER_EPOCH), id="payments", parallelism=1)
        source.apply(Summing(), key="card", id="sums").sink(SqliteSink(tmp_path / f"{number}.db", "out"), id="out")
        run_job(job, tmp_path / "root", mode)
        with closing(sqlite3.connect(tmp_path / f"{number}.db")) as db:
            rows = db.execute("SELECT card, max(number), count(*), max(total) FROM out GROUP BY card").fetchall()
        wanted = {card: [e.amount for e in EVENTS if e.card == card] for card in {e.card for e in EVENTS}}
        assert sorted(rows) == sorted((card, len(a), len(a), sum(a)) for card, a in wanted.items())
