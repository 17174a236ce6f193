"""Standbys as an operator meets them: real processes that wait, take over, are too late, and are stopped.

The checks are those of `test_failpoints`: at rest both sinks hold what a fold over the input gives, and their ledgers name the
newest manifest. `matrix/test_controls.py::test_without_fences_a_driver_that_wakes_up_does_harm` and
`run/test_standby.py::test_without_the_rule_the_second_takes_the_job_from_the_first` are the negative controls.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from commands import call_in
from streamwork import Refused
from streamwork.epoch import Store
from streamwork.world import RealDisk
from test_failpoints import LIFE, add_events, check, check_sinks, substance
from waiting import wait_for

HERE = Path(__file__).parent
HOUR = ("--lease", "1h")
"""A lease that no test waits for: a takeover then rests on what is known about the holder."""
SHORT = ("--lease", "2s")
READ = "checkpoint 3 read"
MODES = pytest.mark.parametrize(
    "mode", ["local", pytest.param("microbatch", marks=[pytest.mark.spark, pytest.mark.slow])]
)


class Run:
    """A process of the command line that runs the job until it is stopped, or until its failpoint."""

    def __init__(self, folder: Path, name: str, mode: str, job: str, failpoint: str, *options: str) -> None:
        self.folder = folder
        self._job = job
        self.log = folder / f"life-{name}.txt"
        command = ["run", f"{HERE / 'failpoint_job.py'}:{job}", "--mode", mode, "--master", "local[2]"]
        with self.log.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, str(HERE / "failpoint_job.py"), failpoint, *command, "--root", "root", *options],
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])},
            )

    @property
    def text(self) -> str:
        return self.log.read_text()

    def says(self, text: str) -> Run:
        wait_for(lambda: text in self.text, self.process, self.log)
        return self

    def ends_with(self, code: int) -> Run:
        wait_for(lambda: self.process.poll() is not None, log=self.log)
        assert self.process.returncode == code, self.text
        return self

    def stops(self) -> Run:
        """Wait until it has been stopped by SIGSTOP."""
        wait_for(lambda: os.WIFSTOPPED(os.waitpid(self.process.pid, os.WUNTRACED | os.WNOHANG)[1]), None, self.log)
        return self

    def signal(self, number: signal.Signals) -> Run:
        self.process.send_signal(number)
        return self

    def completes(self, checkpoint: int) -> Run:
        store = Store(RealDisk(), self.folder / "root", self._job)
        wait_for(lambda: max(store.completed(), default=0) >= checkpoint, self.process, self.log)
        return self

    def holds(self, fence: int) -> Run:
        """Wait until all input is in the sinks, by a driver of this fence."""
        wait_for(lambda: fence_of(self.folder) == fence and is_done(self.folder), self.process, self.log)
        return self


@contextlib.contextmanager
def runs(folder: Path, mode: str = "local", job: str = "guarded") -> Iterator[Any]:
    """Starts runs; however the test ends, none is left."""
    begun: list[Run] = []

    def begin(name: str, *options: str, failpoint: str = "none", mode: str = mode) -> Run:
        begun.append(Run(folder, name, mode, job, failpoint, *options))
        return begun[-1]

    try:
        yield begin
    finally:
        for one in begun:
            one.process.kill()
            one.process.wait()


def fence_of(folder: Path) -> int:
    """Of the newest completed manifest; 0 if that is removed while it is read."""
    store = Store(RealDisk(), folder / "root", "guarded")
    with contextlib.suppress(FileNotFoundError, Refused):
        return store.manifest(max(store.completed())).fence
    return 0


def is_done(folder: Path) -> bool:
    """True if the job is at rest, and everything is there. A driver that is at work may remove a file while it is read."""
    try:
        check(folder)
    except (AssertionError, FileNotFoundError):
        return False
    return True


def fences(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in (folder / "root" / "guarded" / "fences").glob("?.json"))


def waiting(folder: Path) -> list[int]:
    """The processes that `status` names as standbys."""
    code, out, errors = call_in(folder, "status", "--root", "root", "guarded", "--json")
    assert code == 0, errors
    return [one["process"]["pid"] for one in json.loads(out)["standbys"]]


def begun(folder: Path, begin: Any, *options: str, failpoint: str = "none", **modes: str) -> tuple[Run, Run]:
    """A holder with three checkpoints, and a standby that has read the last one. `modes` may name other modes for them."""
    add_events(folder, LIFE)
    mode = {name: {"mode": mode} for name, mode in modes.items()}
    holder = begin("holder", *options, failpoint=failpoint, **mode.get("holder", {})).completes(3)
    standby = begin("standby", *options, "--standby", **mode.get("standby", {})).says(READ)
    return holder, standby


def status(folder: Path) -> str:
    """A standby records what it has read just after it has said so."""
    return call_in(folder, "status", "--root", "root", "guarded")[1]


@pytest.mark.proves("a driver with a standby killed with -9 between prepare and commit")
@MODES
def test_a_standby_goes_on_when_the_holder_is_killed(tmp_path: Path, mode: str) -> None:
    """The holder is killed between prepare and commit; nothing of its lease of an hour is waited for."""
    with runs(tmp_path, mode) as begin:
        holder, standby = begun(tmp_path, begin, *HOUR, failpoint="epochs/prepare/4/SIGKILL")
        assert f"standby: watching fence 1 of process {holder.process.pid} on " in standby.text
        assert waiting(tmp_path) == [standby.process.pid]
        wait_for(
            lambda: f"\nstandby: process {standby.process.pid} on " in status(tmp_path), standby.process, standby.log
        )
        wait_for(lambda: f" watches fence 1, {READ}" in status(tmp_path), standby.process, standby.log)
        metrics = call_in(tmp_path, "status", "--root", "root", "guarded", "--prometheus")[1]
        assert 'streamwork_standbys{job="guarded"} 1.0' in metrics
        add_events(tmp_path, LIFE)
        holder.ends_with(-signal.SIGKILL)
        standby.holds(2)
        assert "was killed or has crashed" in standby.text and "rolled forward" in standby.text
        assert waiting(tmp_path) == []
        standby.signal(signal.SIGTERM).ends_with(0)
        assert (tmp_path / "root" / "guarded" / "spark.log").exists() is (mode == "microbatch")
        assert list((tmp_path / "root" / "guarded" / "standbys").iterdir()) == []
    check(tmp_path)


@pytest.mark.proves("a driver with a standby suspended past its lease, and resumed")
@MODES
def test_a_holder_that_was_stopped_and_wakes_up_after_the_takeover_changes_nothing(tmp_path: Path, mode: str) -> None:
    with runs(tmp_path, mode) as begin:
        holder, standby = begun(tmp_path, begin, *SHORT, failpoint="epochs/prepare/4/SIGSTOP", standby="local")
        add_events(tmp_path, LIFE)
        holder.stops()
        standby.holds(2)
        assert "has given no sign of life for 2 s" in standby.text
        standby.signal(signal.SIGTERM).ends_with(0)  # so that from here on only the holder can change a file
        before = substance(tmp_path)
        holder.signal(signal.SIGCONT).ends_with(Refused.exit_code)
        assert "SW-DRIVER-FENCED" in holder.text or "SW-SINK-FENCED" in holder.text
        now = substance(tmp_path)
        lasting = {path for path in before if "/history" not in path}
        assert {path: now.get(path) for path in lasting} == {path: before[path] for path in lasting}
        check_sinks(tmp_path)
    check(tmp_path)


@pytest.mark.slow
@pytest.mark.proves("the ledger, at a takeover by a standby")
def test_without_the_ledger_the_same_check_fails(tmp_path: Path) -> None:
    """The holder is killed when one of two sinks has the epoch, which the standby rolls forward."""
    for job in ("guarded", "unguarded"):
        folder = tmp_path / job
        folder.mkdir()
        with runs(folder, job=job) as begin:
            holder, standby = begun(folder, begin, *HOUR, failpoint="epochs/commit/7/SIGKILL")
            add_events(folder, LIFE)
            holder.ends_with(-signal.SIGKILL)
            standby.completes(6).signal(signal.SIGTERM).ends_with(0)
        with contextlib.nullcontext() if job == "guarded" else pytest.raises(AssertionError, match="is not what its"):
            check(folder, job)


def test_of_two_standbys_one_takes_over_and_the_other_goes_on_waiting(tmp_path: Path) -> None:
    with runs(tmp_path) as begin:
        holder, first = begun(tmp_path, begin, *HOUR)
        second = begin("second", *HOUR, "--standby").says(READ)
        assert set(waiting(tmp_path)) == {first.process.pid, second.process.pid}
        for fence in (2, 3):
            holder.signal(signal.SIGKILL).ends_with(-signal.SIGKILL)
            add_events(tmp_path, LIFE)
            wait_for(lambda fence=fence: fence_of(tmp_path) == fence and is_done(tmp_path))
            left = [one for one in (first, second) if one.process.poll() is None]
            if fence == 2:
                assert len(left) == 2, "a lost race is no error"
                (pid,) = waiting(tmp_path)
                (other,) = (one for one in left if one.process.pid == pid)
                (holder,) = (one for one in left if one.process.pid != pid)
                other.says(f"standby: watching fence 2 of process {holder.process.pid} on ")
        assert fences(tmp_path) == [1, 2, 3], "none has taken the job from the other"
        assert waiting(tmp_path) == []
        other.signal(signal.SIGINT).ends_with(0)
    check(tmp_path)


def test_a_stop_by_request_stops_the_job_and_its_standbys(tmp_path: Path) -> None:
    with runs(tmp_path) as begin:
        holder, standby = begun(tmp_path, begin, *HOUR)
        code, out, _ = call_in(tmp_path, "stop", "--root", "root", "guarded")
        assert code == 0 and out == "stopped; 1 standby ended; the last checkpoint is 3\n"
        holder.ends_with(0)
        standby.ends_with(0)
        assert "; this standby ends\nstopped before it had started; the last checkpoint is 3\n" in standby.text
    assert fences(tmp_path) == [1] and waiting(tmp_path) == []
    check(tmp_path)


@pytest.mark.slow
def test_a_stop_by_request_ends_a_standby_that_waits_for_the_lease_of_a_dead_holder(tmp_path: Path) -> None:
    with runs(tmp_path) as begin:
        add_events(tmp_path, LIFE)
        begin("holder", *HOUR).completes(3).signal(signal.SIGKILL).ends_with(-signal.SIGKILL)
        fence = tmp_path / "root" / "guarded" / "fences" / "1.json"
        fence.write_text(fence.read_text().replace('"host": "', '"host": "elsewhere-'))
        standby = begin("standby", *HOUR, "--standby").says(READ)
        code, _, errors = call_in(tmp_path, "stop", "--root", "root", "guarded", "--timeout", "1s")
        assert code == 1 and "SW-STOP-TIMEOUT" in errors, "of the holder it is not known that it is dead"
        standby.ends_with(0).says("stopped by request while it waited")
    assert fences(tmp_path) == [1]


def test_a_signal_to_the_holder_hands_the_job_over(tmp_path: Path) -> None:
    with runs(tmp_path) as begin:
        holder, standby = begun(tmp_path, begin, *HOUR)
        holder.signal(signal.SIGTERM).ends_with(0)
        add_events(tmp_path, LIFE)
        standby.holds(2)
        assert "was stopped by a signal" in standby.text
        standby.signal(signal.SIGTERM).ends_with(0)
    check(tmp_path)


@pytest.mark.slow
def test_a_holder_that_fails_for_good_is_followed_by_the_standby(tmp_path: Path) -> None:
    with runs(tmp_path) as begin:
        add_events(tmp_path, LIFE)
        holder = begin("holder", *HOUR, "--no-restart").completes(3)
        standby = begin("standby", *HOUR, "--standby", "--on-error", "sums=drop").says(READ)
        with (tmp_path / "payments.jsonl").open("a") as file:
            file.write('{"card": "card-1", "amount": -1}\n')
        holder.ends_with(1)
        standby.says("resumed at checkpoint 3").completes(4)
        assert "has failed\n" in standby.text
        standby.signal(signal.SIGTERM).ends_with(0)
        assert "1 dropped" in standby.text


@pytest.mark.slow
def test_the_end_of_the_input_ends_the_standby(tmp_path: Path) -> None:
    with runs(tmp_path) as begin:
        add_events(tmp_path, LIFE)
        holder = begin("holder", *HOUR, "--until-caught-up", failpoint="epochs/complete/2/SIGSTOP").stops()
        standby = begin("standby", *HOUR, "--standby").says("checkpoint 2 read")
        holder.signal(signal.SIGCONT).ends_with(0)
        standby.ends_with(0).says("standby: the job is finished: ")
    assert fences(tmp_path) == [1]
    check(tmp_path)


@pytest.mark.parametrize(
    ("mode", "number"),
    [
        ("local", signal.SIGINT),
        pytest.param("local", signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param("microbatch", signal.SIGINT, marks=[pytest.mark.spark, pytest.mark.slow]),
    ],
)
def test_a_signal_ends_a_standby_at_once(tmp_path: Path, number: signal.Signals, mode: str) -> None:
    with runs(tmp_path, mode) as begin:
        holder, standby = begun(tmp_path, begin, *HOUR, holder="local")
        standby.signal(number).ends_with(0)
        assert "standby: stopped by a signal while it waited; process " in standby.text
        assert holder.process.poll() is None and waiting(tmp_path) == []
    assert fences(tmp_path) == [1]
