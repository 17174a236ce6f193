"""What a crash under at-most-once leaves in doubt is counted: nothing is missing that no line tells of."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from commands import ask, call
from crashes import Crash, CrashAt
from delivery.test_semantics import EVENTS, IDS, STEPS, amounts, echo_job
from patience_jobs import Impatient
from sample import Payment, run_job
from streamwork import Job, JobFailed, ListSource, Operator, SqliteSink
from streamwork.components import Position
from streamwork.epoch.fences import Fences
from streamwork.epoch.history.reading import in_doubt
from streamwork.epoch.in_doubt import Doubts, InDoubt, lines
from streamwork.epoch.manifest import Plan
from streamwork.run.mode import Mode
from streamwork.run.options import RunOptions
from streamwork.run.runner import run

PROGRAM = Path(sys.executable).parent / "streamwork"
PAYMENTS = "payments/0"


def doubted(folder: Path) -> list[InDoubt]:
    return in_doubt(folder / "root" / "echo" / "history.sqlite")


def test_every_event_is_processed_or_in_doubt_and_what_is_missing_is_in_doubt(tmp_path: Path) -> None:
    """A crash at every step; then another before anything new was completed."""
    some = 0
    for steps in range(STEPS):
        here = tmp_path / f"step-{steps}"
        here.mkdir()

        def live(watcher: Any = None, here: Path = here) -> Any:
            job = echo_job(SqliteSink(here / "out.db", "out"), semantics="at-most-once")
            return run_job(job, here / "root", watcher=watcher)

        with pytest.raises(Crash):
            live(CrashAt(steps))
        with suppress(Crash):  # right after the first plan of the next start, if there is anything left to plan
            live(CrashAt(5))
        outcome = live()
        found = doubted(here)
        told = {EVENTS[place].amount for one in found for place in range(one.start, one.end)}
        assert sum(one.end - one.start for one in found) == len(told), "each event once"
        assert IDS - set(amounts(here / "out.db")) <= told
        counts = ask("status", "--root", here / "root", "echo")["counts"]["payments"]["committed"]
        assert counts["processed"] + len(told) == len(IDS)
        assert {(one.epoch, one.source) for one in outcome.in_doubt} <= {(one.epoch, one.source) for one in found}
        some += bool(told)
        assert live().in_doubt == () and doubted(here) == found, "what was told is not told again"
    assert some > 10


def test_other_semantics_have_no_doubts(tmp_path: Path) -> None:
    for semantics in ("at-least-once", "exactly-once"):
        here = tmp_path / semantics
        here.mkdir()
        for watcher in (CrashAt(8), None):
            job = echo_job(SqliteSink(here / "out.db", "out"), semantics=semantics)
            try:
                assert run_job(job, here / "root", watcher=watcher).in_doubt == ()
            except Crash:
                continue
        assert doubted(here) == [] and "in doubt" not in call("status", "--root", here / "root", "echo")[1]


def test_without_the_plans_of_the_dead_the_check_notices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control."""
    monkeypatch.setattr(Doubts, "_note", lambda self, found: ())
    with pytest.raises(AssertionError):
        test_every_event_is_processed_or_in_doubt_and_what_is_missing_is_in_doubt(tmp_path)


class Slow(Operator[Payment, Payment]):
    """At one event, once, it makes the file with which an hour passes."""

    def __init__(self, done: Path) -> None:
        self.done = done

    def apply(self, event: Payment, collector: Any) -> None:
        if event.amount == 15 and not self.done.exists():
            self.done.touch()
        collector.emit(event)


def test_an_epoch_that_is_abandoned_is_in_doubt(tmp_path: Path) -> None:
    job = Job("echo", semantics="at-most-once", checkpoint_every=0, checkpoint_timeout="10min")
    source = job.source(ListSource(EVENTS, max_events=10), id="payments")
    source.apply(Slow(tmp_path / "done"), id="slow").sink(SqliteSink(tmp_path / "out.db", "out"), id="out")
    options = RunOptions(mode=Mode.LOCAL, root=tmp_path / "root", until_caught_up=True, restart=False)
    outcome = run(job, options, clock=Impatient(tmp_path / "done"))
    (one,) = outcome.in_doubt
    assert (one.epoch, one.start, one.end, one.events) == (2, 10, 20, 10)
    assert outcome.events == 30


class Notes(CrashAt):
    """A watcher that keeps the notes of a run."""

    def __init__(self) -> None:
        super().__init__(10**9)
        self.lines: list[str] = []

    def on_note(self, line: str) -> None:
        self.lines.append(line)


class Failing(Operator[Payment, Payment]):
    def apply(self, event: Payment, collector: Any) -> None:
        if event.amount == EVENTS[15].amount:
            raise ValueError("never")
        collector.emit(event)


def test_a_run_that_fails_reports_what_it_leaves_in_doubt(tmp_path: Path) -> None:
    """The next start is not the first to know, and does not report it again."""
    job = Job("echo", semantics="at-most-once", checkpoint_every=0)
    source = job.source(ListSource(EVENTS, max_events=10), id="payments")
    source.apply(Failing(), id="failing", on_error="fail").sink(SqliteSink(tmp_path / "out.db", "out"), id="out")
    first, second = Notes(), Notes()
    with pytest.raises(JobFailed, match="never"):
        run_job(job, tmp_path / "root", watcher=first)
    assert [line for line in first.lines if "in doubt" in line] == lines(doubted(tmp_path)) != []
    run_job(job, tmp_path / "root", watcher=second)
    assert not [line for line in second.lines if "in doubt" in line]


JOB = """
import os
import sys
from pathlib import Path
from sample import Payment
from streamwork import CallableSink, Job, JsonLines, ListSource, Source

here = Path(__file__).parent


def deadly(payment):
    if payment.amount == 25 and not (here / "died").exists():
        (here / "died").touch()
        os._exit(9)


class Polled(Source[Payment]):
    bounded = True
    max_events = 10

    def __init__(self):
        self.next = 0

    def get_events(self, collector):
        for _ in range(10 if self.next < 40 else 0):
            collector.emit(Payment("a", self.next))
            self.next += 1


SOURCES = {
    "list": lambda: ListSource([Payment("a", n) for n in range(40)], max_events=10),
    "lines": lambda: JsonLines(here / "in.jsonl", Payment, max_events=10),
    "polled": Polled,
}
job = Job("deadly", semantics="at-most-once", checkpoint_every=0)
job.source(SOURCES[(here / "which").read_text()](), id="payments", parallelism=1).sink(CallableSink(deadly), id="out")
"""


@pytest.mark.slow(which=["list", "polled"])
@pytest.mark.parametrize(
    ("which", "told"),
    [
        (
            "list",
            "in doubt: 10 events of payments were in epochs that broke off: they may or may not have been delivered",
        ),
        (
            "lines",
            "in doubt: an unknown number of events (bytes 550 to 830 of payments/0) were in epochs that broke off: they may or "
            "may not have been delivered",
        ),
        (
            "polled",
            "in doubt: an unknown number of events (what payments gave in epoch 3) were in epochs that broke off: they may or "
            "may not have been delivered",
        ),
    ],
)
def test_a_driver_that_was_killed(tmp_path: Path, which: str, told: str) -> None:
    (tmp_path / "deadly.py").write_text(JOB)
    (tmp_path / "which").write_text(which)
    (tmp_path / "in.jsonl").write_text("".join(f"{json.dumps({'card': 'a', 'amount': n})}\n" for n in range(40)))

    def live() -> subprocess.CompletedProcess[str]:
        command = [PROGRAM, "run", "deadly.py", "--mode", "local", "--until-caught-up"]
        tests = {"PYTHONPATH": str(Path(__file__).parents[1])}
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=tests)

    assert live().returncode == 9
    again = live()
    assert again.returncode == 0, again.stderr
    assert again.stdout.splitlines()[2] == told, "at the start"
    assert again.stdout.splitlines()[-2] == told, "and at the end"
    third = live()
    assert "in doubt" not in third.stdout
    assert told in call("status", "--root", tmp_path / ".streamwork", "deadly")[1].splitlines()


def test_what_polling_brought_is_in_doubt_only_of_a_driver_that_could_not_tell(tmp_path: Path) -> None:
    """Those that brought nothing have plans, too; a driver that ends well has settled its last one."""

    class Nobody:
        def doubt(self, found: Any) -> Any:
            return found

    class Polling:
        class promise:  # noqa: N801
            at_most_once = True

        planned = ()
        polled = (type("Node", (), {"id": "radio"}),)

    plans = [Plan(epoch, 4, 7, Position(), Position()) for epoch in (5, 6, 7)]
    for killed, epochs in ((7, [7]), (6, []), (None, [])):
        doubts = Doubts(Polling(), Nobody())  # type: ignore[arg-type]
        assert [one.epoch for one in doubts.recovered(plans, killed)] == epochs


def test_ranges_that_meet_are_told_as_one_and_many_are_not_all_told() -> None:
    def bytes_of(source: str, start: int, end: int) -> InDoubt:
        return InDoubt(1, 1, source, start, end, "bytes")

    (told,) = lines([bytes_of("a/0", 10, 20), bytes_of("a/0", 0, 10), bytes_of("b/0", 20, 30)])
    assert "(bytes 0 to 20 of a/0, bytes 20 to 30 of b/0)" in told
    (told,) = lines([bytes_of("a/0", n * 20, n * 20 + 10) for n in range(8)])
    assert told.count("bytes") == 5 and " and 3 more)" in told
    known = [InDoubt(n, 1, PAYMENTS, n * 10, n * 10 + 10, "events") for n in range(3)]
    assert lines([*known, bytes_of("b/0", 1, 2)])[0].startswith("in doubt: 30 events of payments were in epochs")
    assert lines([]) == []


def test_who_was_cut_short(tmp_path: Path) -> None:
    from streamwork.world import RealClock, RealDisk, RealProcesses

    fences = Fences(RealDisk(), tmp_path, RealClock(), RealProcesses())
    assert fences.cut_short() is None
    fences.claim()
    assert fences.cut_short() == 1
    for phase in (fences.rest, fences.end):
        phase()
        assert fences.cut_short() is None
