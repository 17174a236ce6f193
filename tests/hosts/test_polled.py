"""Sources that can only be asked: when an epoch of theirs ends, and when a run that catches up does."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from contract_jobs import Counted, Endless, Place, Seeking
from sample import Payment, Summing, payments, run_job
from streamwork import Job, JsonLines, SqliteSink, StatefulSource
from streamwork.epoch import Phase
from streamwork.run.mode import Mode
from streamwork.run.options import RunOptions
from streamwork.run.runner import run
from streamwork.testing import run as simulate
from streamwork.testing.clock import VirtualClock


def rows(folder: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder / "out.db")) as db:
        return db.execute("SELECT * FROM out ORDER BY rowid").fetchall()


def polling(folder: Path, source: Any, **settings: Any) -> Job:
    job = Job("polling", **{"checkpoint_every": 0, **settings})
    job.source(source, id="numbers").sink(SqliteSink(folder / "out.db", "out"), id="out")
    return job


def newest(folder: Path) -> dict[str, Any]:
    path = max((folder / "root" / "polling" / "checkpoints").glob("????????????.json"))
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.mark.slow(mode="microbatch")
@pytest.mark.proves("a source with state that advances and emits nothing")
def test_a_source_that_advances_without_giving_anything_advances(tmp_path: Path, mode: str) -> None:
    limit = 20 if mode == "local" else 11
    outcome = run_job(polling(tmp_path, Seeking(limit)), tmp_path / "root", mode)
    assert rows(tmp_path) == [(number, "s") for number in range(10, limit + 1, 10)]
    again = run_job(polling(tmp_path, Seeking(limit)), tmp_path / "root", mode)
    if mode == "live":  # an epoch has many calls, and the one that shows that nothing has changed is completed, too
        assert newest(tmp_path)["positions"] == {"numbers/0": limit // 10} and again.checkpoints <= 2
    else:
        assert outcome.checkpoint == outcome.checkpoints == limit, "each call has changed the state"
        assert again.checkpoints == 0, "nothing has changed"


def test_in_a_simulation_too() -> None:
    assert simulate(polling(Path(), Seeking(12))).states["numbers"] == {0: Place(12)}


@pytest.mark.slow(mode="microbatch")
@pytest.mark.proves("a polled source that always has events, with --until-caught-up")
def test_a_source_that_always_has_something_is_caught_up_with_after_one_epoch(tmp_path: Path, mode: str) -> None:
    job = polling(tmp_path, Endless(), checkpoint_every="50ms")
    for run_number in (1, 2):
        outcome = run_job(job, tmp_path / "root", mode)
        assert outcome.events > 0
        if mode == "live":  # the next epoch is open before the first is completed
            assert outcome.checkpoints <= 2
        else:
            assert outcome.checkpoints == 1 and outcome.checkpoint == run_number
    assert [number for number, _ in rows(tmp_path)] == list(range(1, len(rows(tmp_path)) + 1))


class Appending:
    """A watcher that appends a line to the input at each checkpoint, as often as `most`."""

    def __init__(self, path: Path, most: int = 60) -> None:
        self.appended = 0
        self._path, self._most = path, most

    def on_phase(self, step: Phase, epoch: int, manifest: Any) -> None:
        if step is Phase.COMPLETE:
            self.appended += 1
            assert self.appended < self._most, "it never ends"
            with self._path.open("a") as file:
                file.write('{"card": "late", "amount": 1}\n')

    def on_starting(self, *_: Any) -> None: ...
    def on_started(self, *_: Any) -> None: ...
    def on_note(self, line: str) -> None: ...
    def on_end(self, outcome: Any) -> None: ...
    def close(self) -> None: ...


def test_input_that_grows_is_caught_up_with_where_it_ended_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text("".join(f'{{"card": "{one.card}", "amount": {one.amount}}}\n' for one in payments(30)))
    job = Job("growing", checkpoint_every=0)
    lines = job.source(JsonLines(path, Payment, max_events=10), id="in")
    lines.apply(Summing(), key="card", id="sums").sink(SqliteSink(tmp_path / "out.db", "out"), id="out")
    first = run_job(job, tmp_path / "root", watcher=Appending(path))
    assert first.events == 30 and first.checkpoints == 3
    assert run_job(job, tmp_path / "root").events == 3, "what came meanwhile is there for the next run"


def test_a_line_that_is_not_complete_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('{"card": "a", "amount": 1}\n{"card": "b", "am')
    job = Job("unfinished", checkpoint_every=0)
    lines = job.source(JsonLines(path, Payment), id="in")
    lines.apply(Summing(), key="card", id="sums").sink(SqliteSink(tmp_path / "out.db", "out"), id="out")
    assert run_job(job, tmp_path / "root").events == 1


CLOCK = VirtualClock()


class Slow(StatefulSource[Counted, Place]):
    """Each call takes 300 ms, and gives one number."""

    replayable = True
    bounded = True

    def setup_instance(self, instance: int, state: Place | None) -> None:
        self.place = Place() if state is None else state

    def get_events(self, collector: Any) -> None:
        CLOCK.sleep(0.3)
        if self.place.at < 12:
            self.place.at += 1
            collector.emit(Counted(self.place.at, "s"))

    def get_state(self) -> Place:
        return self.place


@pytest.mark.parametrize(
    ("every", "most", "epochs"), [("1s", 100, 3), ("1s", 3, 4), ("1h", 100, 1), ("1h", 5, 3), (0, 100, 12)]
)
def test_an_epoch_is_bounded_by_max_events_and_by_checkpoint_every(
    tmp_path: Path, every: str | float, most: int, epochs: int
) -> None:
    source = Slow()
    source.max_events = most
    job = polling(tmp_path, source, checkpoint_every=every)
    options = RunOptions(mode=Mode.LOCAL, root=tmp_path / "root", until_caught_up=True, restart=False)
    assert run(job, options, clock=CLOCK).checkpoints == epochs
    assert [number for number, _ in rows(tmp_path)] == list(range(1, 13))
