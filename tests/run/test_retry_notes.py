"""A run says so when its checkpoint waits for an event that is retried."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from delivery.retry_jobs import Item, WhileFile
from streamwork import Job, ListSource, Retry, SqliteSink
from streamwork.cli.job_commands import stop_line
from streamwork.delivery.retrying import Mark, Marks, marks
from streamwork.run.mode import Mode
from streamwork.run.options import RunOptions
from streamwork.run.retry_notes import RetryNotes
from streamwork.run.runner import run
from streamwork.run.stop_request import request_stop
from streamwork.world import RealClock, RealDisk


def mark(instance: int, since: float, **changed: Any) -> Mark:
    facts: dict[str, Any] = {"times": 5, "within": 60.0, **changed}
    return Mark("work", instance, 7, 3, "Item(x)", "OSError: down", 1, then="drop", since=since, due=since + 1, **facts)


def test_each_retried_event_is_noted_once(tmp_path: Path) -> None:
    noted: list[str] = []
    notes = RetryNotes(RealDisk(), tmp_path, noted.append)
    notes.check(3)
    kept = Marks(RealDisk(), tmp_path, 3, 7, RealClock())
    kept.put(mark(0, 1.0))
    notes.check(4)
    assert noted == [], "another driver's"
    for _ in range(2):
        notes.check(3)
    assert noted == [
        "work[0] retries an event (at most 5 retries or 60 s, then drop); checkpoint 7 waits. "
        "The error: OSError: down; event Item(x)"
    ]
    kept.put(mark(1, 2.0, times=None, within=None))
    notes.check(3)
    assert len(noted) == 2 and noted[1].startswith("work[1] retries an event (without a limit); checkpoint 7 waits")
    kept.put(mark(0, 9.0))
    notes.check(3)
    assert len(noted) == 3, "another event of the same instance"


def items(folder: Path, **chosen: Any) -> Job:
    job = Job("items", checkpoint_every=0, restart=None, lease="1s", **chosen)
    source = job.source(ListSource([Item(name) for name in "abx"], Item, max_events=2), id="items")
    done = source.apply(WhileFile(folder / "down"), id="work", on_error=Retry(within="10min", then="drop"))
    done.sink(SqliteSink(folder / "out.db", "t"), id="out")
    return job


class Noting:
    """Ends the outage at the note about it."""

    def __init__(self, down: Path) -> None:
        self.notes: list[str] = []
        self._down = down

    def on_note(self, line: str) -> None:
        self.notes.append(line)
        if "retries an event" in line:
            self._down.unlink()

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def test_a_run_that_waits_for_a_retry_says_so(tmp_path: Path) -> None:
    """The outage lasts until it is noted: without the note, the test would not end."""
    (tmp_path / "down").touch()
    watcher = Noting(tmp_path / "down")
    options = RunOptions(mode=Mode.LOCAL, root=tmp_path / "root", until_caught_up=True)
    outcome = run(items(tmp_path), options, watcher)  # type: ignore[arg-type]
    assert (outcome.events, outcome.dropped) == (3, 0) and outcome.retried >= 1
    (note,) = [line for line in watcher.notes if "retries an event" in line]
    assert note.startswith("work[0] retries an event (at most 600 s, then drop); checkpoint 2 waits. The error: ")


@pytest.mark.parametrize("semantics", ["exactly-once", "at-most-once"])
def test_a_stop_says_which_checkpoint_it_has_abandoned(tmp_path: Path, semantics: str) -> None:
    """Under at-most-once none is: the policy behind the retry is applied, and the epoch is completed."""
    (tmp_path / "down").touch()
    job = items(tmp_path, semantics=semantics)
    options = RunOptions(mode=Mode.LOCAL, root=tmp_path / "root", until_caught_up=True)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run, job, options)
        while not (running.done() or marks(RealDisk(), tmp_path / "root" / "items")):
            time.sleep(0.01)
        notes: list[str] = []
        stopped = request_stop(tmp_path / "root", "items", 60, RealClock(), notes.append)
        outcome = running.result()
    assert "; work[0] retries an event of checkpoint 2, and stops retrying (waiting 60 s more)" in notes[0]
    if semantics == "exactly-once":
        assert (stopped.checkpoint, stopped.abandoned, outcome.checkpoint) == (1, 2, 1)
        assert stop_line(stopped) == (
            "stopped; checkpoint 2, which waited for a retry, was abandoned: the next start reads its input again; "
            "the last checkpoint is 1"
        )
    else:
        assert (stopped.checkpoint, stopped.abandoned, outcome.dropped) == (2, None, 1)
        assert stop_line(stopped) == "stopped; the last checkpoint is 2"
