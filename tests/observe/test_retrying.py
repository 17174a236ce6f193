"""A run whose operator tries an event again: what `status` shows, and how it is stopped meanwhile."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from delivery.retry_jobs import Item, WhileFile
from streamwork import Job, JobFailed, ListSource, Retry, Source, SqliteSink, WrongUse
from streamwork.cli.progress import end_lines
from streamwork.cli.status_text import status_lines
from streamwork.components.position import plain
from streamwork.delivery.retrying import FOLDER
from streamwork.epoch.control import Control, Kind
from streamwork.observe.metrics import exposition
from streamwork.observe.status import read_status
from streamwork.run.mode import Mode
from streamwork.run.options import RunOptions
from streamwork.run.outcome import Outcome
from streamwork.run.runner import run
from streamwork.run.stop_request import request_stop
from streamwork.testing.clock import VirtualClock
from streamwork.world import RealClock, RealDisk
from waiting import wait_for

NAMES = [*"abcdefgh", "x", *"ijkl"]
SEMANTICS: list[dict[str, str]] = [
    {"semantics": "at-most-once"},
    {"semantics": "at-least-once"},
    {"semantics": "at-least-once", "tracking": "acknowledge"},
    {"semantics": "exactly-once"},
]


class Acting(VirtualClock):
    """Does something at the first wait after an event is marked as one that is tried again, and then at each."""

    def __init__(self, folder: Path, act: Callable[[Acting], None]) -> None:
        super().__init__(RealClock().now())
        self._marks, self._act = folder / FOLDER, act

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self._marks.exists() and any(self._marks.glob("*.json")):
            self._act(self)


def looking(folder: Path, then: Any = None, **chosen: Any) -> Job:
    job = Job("items", checkpoint_every=0, restart=None, **chosen)
    source = job.source(ListSource([Item(name) for name in NAMES], Item, max_events=6), id="items")
    done = source.apply(WhileFile(folder / "down"), id="work", on_error=Retry(within="10min", then=then))
    done.sink(SqliteSink(folder / "out.db", "t"), id="out")
    return job


def rows(folder: Path) -> list[str]:
    with closing(sqlite3.connect(folder / "out.db")) as db:
        return [name for (name,) in db.execute("SELECT name FROM t ORDER BY rowid")]


def asking(folder: Path) -> tuple[list[float], Callable[[Acting], None]]:
    asked: list[float] = []

    def ask(clock: Acting) -> None:
        if not asked:
            asked.append(clock.monotonic())
            Control(RealDisk(), folder, RealClock()).ask(Kind.STOP, fence=1)

    return asked, ask


def go(tmp_path: Path, job: Job, act: Callable[[Acting], None]) -> tuple[Outcome, Acting]:
    clock = Acting(tmp_path / "root" / "items", act)
    return run(job, RunOptions(mode=Mode.LOCAL, root=tmp_path / "root", until_caught_up=True), clock=clock), clock


@pytest.mark.parametrize("chosen", SEMANTICS[1:], ids=lambda chosen: "-".join(chosen.values()))
@pytest.mark.proves("a stop during a retry")
def test_a_stop_is_answered_soon_and_cancels_the_epoch(tmp_path: Path, chosen: dict[str, str]) -> None:
    (tmp_path / "down").touch()
    asked, ask = asking(tmp_path / "root" / "items")
    outcome, clock = go(tmp_path, looking(tmp_path, **chosen), ask)
    assert clock.monotonic() - asked[0] < 5
    assert (outcome.checkpoint, outcome.events, outcome.dropped, outcome.dead_letters) == (1, 6, 0, 0)
    assert not any((tmp_path / "root" / "items" / FOLDER).iterdir()), "nothing waits any more"
    (tmp_path / "down").unlink()
    outcome, _ = go(tmp_path, looking(tmp_path, **chosen), lambda clock: None)
    assert sorted(set(rows(tmp_path))) == sorted(NAMES), "the next start reads the same slice again"
    if chosen["semantics"] == "exactly-once":
        assert rows(tmp_path) == NAMES


def test_under_at_most_once_a_stop_applies_then_and_loses_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "down").touch()
    asked, ask = asking(tmp_path / "root" / "items")
    outcome, clock = go(tmp_path, looking(tmp_path, **SEMANTICS[0]), ask)
    assert clock.monotonic() - asked[0] < 5
    assert (outcome.checkpoint, outcome.events, outcome.dropped) == (2, 12, 1), "the epoch was completed"
    assert rows(tmp_path) == [name for name in NAMES[:12] if name != "x"]
    outcome, _ = go(tmp_path, looking(tmp_path, **SEMANTICS[0]), lambda clock: None)
    assert rows(tmp_path) == [name for name in NAMES if name != "x"]


def test_under_at_most_once_then_fail_is_the_end(tmp_path: Path) -> None:
    (tmp_path / "down").touch()
    _, ask = asking(tmp_path / "root" / "items")
    with pytest.raises(JobFailed, match="SW-OPERATOR-FAILED.*no answer"):
        go(tmp_path, looking(tmp_path, then="fail", **SEMANTICS[0]), ask)


@pytest.mark.proves("the check for a stop during an epoch")
def test_if_the_driver_did_not_look_the_stop_would_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control."""
    monkeypatch.setattr("streamwork.epoch.requests.Requests.stop_requested_now", lambda self, fences: False)
    (tmp_path / "down").touch()
    asked, ask = asking(tmp_path / "root" / "items")

    def act(clock: Acting) -> None:
        ask(clock)
        if clock.monotonic() - asked[0] > 60:
            (tmp_path / "down").unlink(missing_ok=True)

    _, clock = go(tmp_path, looking(tmp_path), act)
    assert clock.monotonic() - asked[0] > 60


def test_status_and_metrics_say_what_waits_for_what(tmp_path: Path) -> None:
    (tmp_path / "down").touch()
    seen: list[tuple[Any, bytes]] = []

    def act(clock: Acting) -> None:
        now = read_status(tmp_path / "root", "items", clock)
        if now.retrying[0].failures == 3:
            seen.append((now, exposition(now)))
            (tmp_path / "down").unlink(missing_ok=True)

    outcome, _ = go(tmp_path, looking(tmp_path, then="dead-letter"), act)
    status, metrics = seen[0]
    (one,) = status.retrying
    assert (one.component, one.instance, one.checkpoint, one.failures, one.then) == ("work", 0, 2, 3, "dead-letter")
    assert (one.times, one.within, one.error) == (None, 600.0, "ConnectionError: no answer")
    assert one.event.startswith("Item(name='x'") and 0.29 < one.for_seconds < 0.41 and 0 <= one.next_seconds <= 0.4
    line = next(line for line in status_lines(status) if line.startswith("retrying"))
    assert line.startswith("retrying: work[0] has failed 3 times in 0.3 s, next attempt in 0.")
    assert line.endswith("(after 600 s: dead-letter); checkpoint 2 waits")
    assert json.loads(msgspec.json.encode(status, enc_hook=plain))["retrying"][0]["component"] == "work"
    assert b'streamwork_retrying_events{component="work",job="items"} 1.0' in metrics
    assert outcome.retried == 3 and "3 retries" in end_lines(outcome)[-1]
    after = read_status(tmp_path / "root", "items", RealClock())
    assert after.retrying == [] and after.counts["work"].committed["retried"] == 3
    assert b'kind="retried"} 3.0' in exposition(after)


# ---- where it can be said -------------------------------------------------------------------------------------------


def test_it_can_be_chosen_for_one_run(tmp_path: Path) -> None:
    job = Job("items", checkpoint_every=0, restart=None)
    source = job.source(ListSource([Item(name) for name in NAMES], Item, max_events=6), id="items")
    source.apply(WhileFile(tmp_path / "down"), id="work").sink(SqliteSink(tmp_path / "out.db", "t"), id="out")
    (tmp_path / "down").touch()
    options = RunOptions(
        mode=Mode.LOCAL,
        root=tmp_path / "root",
        until_caught_up=True,
        on_error={"work": "retry:times=3,within=1min,then=drop"},
    )
    outcome = run(job, options, clock=Acting(tmp_path / "root" / "items", lambda clock: None))
    assert (outcome.dropped, outcome.retried) == (1, 3)
    (tmp_path / "out.db").unlink()
    again = job.run(root=str(tmp_path / "other"), on_error={"work": Retry(times=1, then="drop", first="1ms")})
    assert (again.dropped, again.retried) == (1, 1)


@pytest.mark.parametrize(
    "given",
    ["retry:,", "retry:times=x", "retry:often=3", "retry:times=0", "retry:within=soon", "retry:then=pray", "again"],
)
def test_what_is_not_understood_is_refused(tmp_path: Path, given: str) -> None:
    with pytest.raises(WrongUse, match="SW-JOB-SETTING"):
        RunOptions(mode=Mode.LOCAL, root=tmp_path / "root", on_error={"work": given})


class Asked(Source[Item]):
    def setup_instance(self, instance: int) -> None: ...

    def get_events(self, collector: Any) -> None: ...


def test_sources_and_sinks_refuse_it_and_say_what_happens_there(tmp_path: Path) -> None:
    for component in ("items", "out"):
        with pytest.raises(WrongUse, match="fails the job, which restarts"):
            run(looking(tmp_path), RunOptions(mode=Mode.LOCAL, root=tmp_path / "root", on_error={component: "retry"}))
    job = Job("j")
    with pytest.raises(WrongUse, match=r"sink 'out' has on_error=retry:times=2, but only operators retry"):
        job.source(ListSource([], Item), id="s").sink(SqliteSink("o.db", "t"), id="out", on_error=Retry(times=2))  # type: ignore[arg-type]


# ---- on Spark -------------------------------------------------------------------------------------------------------


class Running(threading.Thread):
    def __init__(self, job: Job, folder: Path) -> None:
        super().__init__(daemon=True)
        self.outcome: Outcome | None = None
        self._run = lambda: run(job, RunOptions(mode=Mode.MICROBATCH, root=folder / "root", until_caught_up=True))
        self.start()

    def run(self) -> None:
        self.outcome = self._run()


@pytest.mark.slow
@pytest.mark.spark
def test_a_real_outage_on_spark_and_a_stop_in_the_middle_of_it(tmp_path: Path, spark: Any) -> None:
    """The outage lasts until the file is removed; the stop comes while it is there, and is answered although it stays."""
    (tmp_path / "down").touch()
    asked = tmp_path / "down.asked"
    marks = tmp_path / "root" / "items" / FOLDER

    def is_kept_fresh() -> bool:
        found = [json.loads(one.read_bytes()) for one in marks.glob("[0-9]*.json")] if marks.exists() else []
        return any(one["failures"] >= 3 and one["beat"] >= 1 for one in found)

    first = Running(looking(tmp_path), tmp_path)
    wait_for(is_kept_fresh)
    # It is committed meanwhile.
    wait_for(lambda: read_status(tmp_path / "root", "items", RealClock()).checkpoint == 1)
    status = read_status(tmp_path / "root", "items", RealClock())
    assert [(one.component, one.checkpoint) for one in status.retrying] == [("work", 2)]
    began = time.monotonic()
    answer = request_stop(tmp_path / "root", "items", 300, RealClock(), lambda line: None)
    took = time.monotonic() - began
    first.join(300)
    assert (answer.was_running, answer.text, answer.checkpoint) == (True, "stopped", 1), took
    assert first.outcome is not None and first.outcome.checkpoint == 1 and (tmp_path / "down").exists()
    assert asked.exists() and list(marks.iterdir()) == []
    tries = len(asked.read_text().splitlines())
    second = Running(looking(tmp_path), tmp_path)
    wait_for(lambda: len(asked.read_text().splitlines()) >= tries + 3)
    (tmp_path / "down").unlink()
    second.join(300)
    assert second.outcome is not None and second.outcome.retried >= 3
    assert rows(tmp_path) == NAMES
    print(f"a stop during a retry on Spark was answered after {took:.1f} s")
