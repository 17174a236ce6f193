"""A run is asked to end: by signals and requests, at every moment of its life."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import msgspec
import pytest

from sample import payments, run_job, summing_job
from streamwork import early
from streamwork.cli.demo import write_transactions
from streamwork.cli.progress import end_lines
from streamwork.epoch import Phase
from streamwork.epoch.control import Control, Kind
from streamwork.epoch.fences import Fences
from streamwork.run.mode import Mode
from streamwork.run.options import RunOptions
from streamwork.run.outcome import NOT_STARTED, Outcome
from streamwork.run.runner import run
from streamwork.run.stopping import ONE_SIGNAL_SECONDS, Stop
from streamwork.testing.clock import VirtualClock
from streamwork.world import RealClock, RealDisk, RealProcesses
from streamwork.world.processes import ProcessId
from waiting import wait_for

REPO = Path(__file__).parents[2]


class Hurried(RealClock):
    """Between two looks at it an hour passes, so that every epoch exceeds its `checkpoint_timeout`."""

    def __init__(self) -> None:
        self._looks = 0

    def monotonic(self) -> float:
        self._looks += 1
        return self._looks * 3600.0

    def sleep(self, seconds: float) -> None: ...


class AfterAbandoned:
    """A watcher that calls `ask` after `after` abandoned epochs, and raises after `most`."""

    def __init__(self, ask: Any, after: int = 3, most: int = 50) -> None:
        self.abandoned = 0
        self._ask, self._after, self._most = ask, after, most

    def on_phase(self, step: Phase, epoch: int, manifest: Any) -> None:
        if step is Phase.ABANDON:
            self.abandoned += 1
            if self.abandoned == self._after:
                self._ask()
            assert self.abandoned < self._most, "nobody has looked whether an end was asked for"

    def on_starting(self, *_: Any) -> None: ...
    def on_started(self, *_: Any) -> None: ...
    def on_note(self, line: str) -> None: ...
    def on_end(self, outcome: Any) -> None: ...
    def close(self) -> None: ...


@pytest.mark.parametrize("how", ["SIGTERM", "SIGINT", "request"])
@pytest.mark.proves("every epoch exceeds checkpoint_timeout")
def test_a_job_all_of_whose_epochs_take_too_long_can_be_stopped(tmp_path: Path, how: str) -> None:
    def ask() -> None:
        if how == "request":
            Control(RealDisk(), tmp_path / "root" / "summing", RealClock()).ask(Kind.STOP, fence=1)
        else:
            os.kill(os.getpid(), signal.Signals[how])

    job = summing_job(payments(30), tmp_path / "out.db")
    job.settings = msgspec.structs.replace(job.settings, checkpoint_timeout=60.0)
    watcher = AfterAbandoned(ask)
    outcome = run(job, RunOptions(mode=Mode.LOCAL, root=tmp_path / "root", restart=False), watcher, Hurried())
    assert outcome.checkpoint == 0 and outcome.events == 0
    assert watcher.abandoned <= 5, "the epoch under way when the end was asked for was the last one"


@pytest.mark.slow
@pytest.mark.proves("more abandoned epochs in a row than the stack is deep")
def test_abandoned_epochs_do_not_pile_up_on_the_stack(tmp_path: Path) -> None:
    """A thousand in a row are more than Python's stack holds."""
    job = summing_job(payments(30), tmp_path / "out.db")
    job.settings = msgspec.structs.replace(job.settings, checkpoint_timeout=60.0)
    limit = sys.getrecursionlimit()
    watcher = AfterAbandoned(lambda: os.kill(os.getpid(), signal.SIGTERM), after=limit, most=2 * limit)
    run(job, RunOptions(mode=Mode.LOCAL, root=tmp_path / "root", restart=False), watcher, Hurried())
    assert watcher.abandoned >= limit


class AtStart:
    """A watcher that sends a signal when it is told of `step` or of a note that contains `note`."""

    def __init__(self, step: Phase | None = None, note: str | None = None) -> None:
        self._step, self._note = step, note
        self.steps: list[Phase] = []
        self.ended: list[Outcome] = []

    def on_phase(self, step: Phase, epoch: int, manifest: Any) -> None:
        self.steps.append(step)
        if step is self._step:
            os.kill(os.getpid(), signal.SIGTERM)

    def on_note(self, line: str) -> None:
        if self._note is not None and self._note in line:
            os.kill(os.getpid(), signal.SIGTERM)

    def on_end(self, outcome: Outcome) -> None:
        self.ended.append(outcome)

    def on_starting(self, *_: Any) -> None: ...
    def on_started(self, *_: Any) -> None: ...
    def close(self) -> None: ...


@pytest.mark.parametrize(
    "step", [Phase.REGISTER, Phase.READ, Phase.REBASE, Phase.READY, Phase.PRUNE], ids=lambda s: s.value
)
@pytest.mark.proves("SIGTERM during recovery")
def test_a_signal_during_recovery_ends_the_run_when_recovery_is_finished(tmp_path: Path, step: Phase) -> None:
    root = tmp_path / "root"
    run_job(summing_job(payments(30), tmp_path / "out.db"), root)
    watcher = AtStart(step)
    outcome = run(summing_job(payments(60), tmp_path / "out.db"), RunOptions(mode=Mode.LOCAL, root=root), watcher)
    if step in watcher.steps:  # a start without anything to rebase has no such step
        assert Phase.PLAN not in watcher.steps, "nothing was begun"
        assert outcome.checkpoint == 3 and outcome.checkpoints == 0 and watcher.ended == [outcome]
    assert run_job(summing_job(payments(60), tmp_path / "out.db"), root).checkpoint == 6, "and nothing was lost"


def test_a_signal_while_waiting_for_the_lease_of_another_driver_ends_the_run(tmp_path: Path) -> None:
    """The lease would last an hour."""
    root = tmp_path / "root"
    run_job(summing_job(payments(30), tmp_path / "out.db"), root)
    elsewhere = Fences(RealDisk(), root / "summing", RealClock(), Elsewhere())
    elsewhere.claim(lease=3600.0)
    watcher = AtStart(note="watching for 3600 s")
    outcome = run(summing_job(payments(60), tmp_path / "out.db"), RunOptions(mode=Mode.LOCAL, root=root), watcher)
    assert outcome.started == NOT_STARTED and outcome.checkpoint == 3 and outcome.fence == 0
    assert end_lines(outcome) == ["stopped before it had started; the last checkpoint is 3"]
    assert elsewhere.highest() == 2, "the job was not taken"


class Elsewhere(RealProcesses):
    """A driver on another machine."""

    def me(self) -> ProcessId:
        return ProcessId("elsewhere/1/2", 77, 1.0)


def test_a_signal_that_arrives_twice_at_once_is_one_signal(tmp_path: Path) -> None:
    """`timeout` signals its child, and then the group that the child is in."""
    stop = Stop(RealClock())
    with stop.on_signal():
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.asked


def test_a_second_signal_acts_as_usual() -> None:
    """The negative control: who is in a hurry is heard."""
    clock = VirtualClock()
    stop = Stop(clock)
    with pytest.raises(KeyboardInterrupt), stop.on_signal():
        os.kill(os.getpid(), signal.SIGINT)
        clock.sleep(ONE_SIGNAL_SECONDS + 0.1)
        os.kill(os.getpid(), signal.SIGINT)


SLOW_TO_LOAD = """
import time
from pathlib import Path
Path("loading").touch()
time.sleep(600)
"""


def test_a_signal_while_the_job_file_is_loaded_ends_the_run(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(SLOW_TO_LOAD + (REPO / "examples" / "card_usage.py").read_text())
    write_transactions(tmp_path / "transactions.jsonl", 10, cards=3)
    command = [sys.executable, "-m", "streamwork", "run", "job.py", "--mode", "local", "--json"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_for((tmp_path / "loading").exists, process)
        process.terminate()
        out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert json.loads(out)["started"] == NOT_STARTED
    assert not (tmp_path / ".streamwork" / "card-usage" / "job.json").exists(), "nothing was begun"


AT_IMPORT = """
import os, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r} and self in sys.meta_path:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), {number})

sys.meta_path.insert(0, Finder())
sys.argv = ["streamwork", {command!r}, "job.py", *{more!r}]
from streamwork.__main__ import main
main()
"""


def signalled_at_import(folder: Path, command: str, *more: str, module: str, number: int) -> CompletedProcess[str]:
    """`streamwork COMMAND job.py`, which gets a signal when it imports `module`."""
    (folder / "job.py").write_text(
        "from streamwork import Event, Job, ListSource, SqliteSink\n\n"
        "class E(Event):\n    n: int\n\n"
        "job = Job('early')\n"
        "job.source(ListSource([E(1)]), id='in').sink(SqliteSink('out.db', 'out'), id='out')\n"
    )
    code = AT_IMPORT.format(module=module, number=number, command=command, more=more)
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=120)


@pytest.mark.slow(module=["streamwork.components", "pyarrow", "click"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("module", ["streamwork.components", "pyarrow", "streamwork.cli.main", "click"])
def test_a_signal_while_the_package_is_imported_ends_the_run_cleanly(tmp_path: Path, module: str, number: int) -> None:
    ended = signalled_at_import(tmp_path, "run", "--mode", "local", module=module, number=number)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "stopped before it had started" in ended.stdout
    assert not (tmp_path / "out.db").exists()


def test_other_commands_end_by_the_signal(tmp_path: Path) -> None:
    ended = signalled_at_import(tmp_path, "checkpoints", module="streamwork.cli.main", number=signal.SIGTERM)
    assert ended.returncode == -signal.SIGTERM


@pytest.mark.parametrize(
    ("argv", "original", "expected"),
    [
        (["/usr/bin/streamwork", "run", "job.py"], ["python", "/usr/bin/streamwork", "run", "job.py"], True),
        (["-m", "run", "job.py"], ["python", "-P", "-m", "streamwork", "run", "job.py"], True),
        (["-m", "run"], ["python", "-m", "other", "run"], False),
        (["/usr/bin/streamwork", "status", "run"], ["python", "/usr/bin/streamwork", "status", "run"], False),
        (["/usr/bin/pytest", "run"], ["python", "/usr/bin/pytest", "run"], False),
        (["-c"], ["python", "-c", "import streamwork"], False),
        ([], [], False),
    ],
)
def test_only_the_command_run_remembers_signals(argv: list[str], original: list[str], expected: bool) -> None:
    assert early.is_run(argv, original) is expected
