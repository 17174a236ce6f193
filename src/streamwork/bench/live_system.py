"""The system of `streamwork bench live`: the fraud detection example, its job and its sender, as processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
import psutil

import streamwork
from streamwork.cli.examples import example
from streamwork.errors import JobFailed
from streamwork.observe.processes import JobProcesses

EXAMPLE = "fraud_detection"
FIRST_ANALYSER = "average-ticket"
PATIENCE = 120.0
"""Seconds in which the job must decide its first transaction: Spark starts in that time."""
STOP_SECONDS = 60.0


class Victim(Enum):
    """The process that is killed in the middle."""

    DRIVER = "driver"  # and started again, as a service manager does
    TASK = "task"  # a Python worker of Spark
    ANALYSER = "analyser"  # a child of a task


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What the sender does."""

    rate: float
    seconds: float
    connections: int = 0  # of HTTP; 0: direct calls


class System:
    """A job that runs, in a folder of its own."""

    def __init__(
        self, folder: Path, mode: str, checkpoint_every: str, settings: Mapping[str, str] | None = None
    ) -> None:
        """`settings` are variables of the example."""
        self._example = example(EXAMPLE)
        self._folder = folder
        folder.mkdir(parents=True)
        self._command = [sys.executable, "-m", "streamwork", "run", self._example / "job.py"]
        self._command += ["--mode", mode, "--root", folder / "root"]
        self._environment = {
            **os.environ,
            "FRAUD_DATA": str(folder / "data"),
            "FRAUD_CHECKPOINT_EVERY": checkpoint_every,
            **(settings or {}),
            "PYTHONPATH": os.pathsep.join(
                [str(Path(streamwork.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
            ),
        }
        self._job: subprocess.Popen[bytes] | None = None
        self._restarting = False

    def start(self) -> None:
        with (self._folder / "job.txt").open("ab") as output:
            self._job = subprocess.Popen(
                [*map(str, self._command)], env=self._environment, stdout=output, stderr=subprocess.STDOUT
            )

    def send(self, load: Load) -> dict[str, Any]:
        """The report of the sender. It begins when the job decides. Raises JobFailed if job or sender failed."""
        command = [sys.executable, self._example, "--json", "--patience", PATIENCE]
        command += ["--rate", load.rate, "--seconds", load.seconds, "--http", load.connections]
        before = self._cpu()
        report, notes = self._folder / "report.json", self._folder / "sender.txt"
        with report.open("wb") as output, notes.open("wb") as errors:
            sender = subprocess.Popen([*map(str, command)], env=self._environment, stdout=output, stderr=errors)
            try:
                while sender.poll() is None and not self._has_ended():
                    time.sleep(0.1)
            finally:
                sender.kill()
                sender.wait()
        if sender.returncode != 0:
            raise self._failed(notes.read_text())
        found: dict[str, Any] = msgspec.json.decode(report.read_bytes())
        used = self._cpu() - before
        found["job_cpu_s"] = round(used, 3)
        return found

    def _has_ended(self) -> bool:
        return self._job is not None and self._job.poll() is not None and not self._restarting

    def _failed(self, why: str) -> JobFailed:
        said = (self._folder / "job.txt").read_text(errors="replace").splitlines()[-5:]
        return JobFailed(
            "SW-BENCH-FAILED",
            f"the sender printed: {' | '.join(why.splitlines()[-3:])}; the job printed: {' | '.join(said)}",
            f"run the job yourself: streamwork run {self._example / 'job.py'}",
        )

    def _cpu(self) -> float:
        """CPU seconds of the job's processes that live."""
        total = 0.0
        for process in self.processes():
            try:
                times = process.cpu_times()
                total += times.user + times.system
            except psutil.Error:
                continue
        return total

    def processes(self) -> list[psutil.Process]:
        """The driver, and all processes below it."""
        found = self._found()
        return [found.driver, *found.below] if found.driver is not None else []

    def _found(self) -> JobProcesses:
        return JobProcesses() if self._job is None else JobProcesses.of(self._job.pid)

    def victims(self, victim: Victim) -> list[psutil.Process]:
        """The processes of a kind; of the analysers, the average ticket first."""
        found = self._found()
        match victim:
            case Victim.DRIVER:
                return [] if found.driver is None else [found.driver]
            case Victim.TASK:
                return list(found.tasks)
            case Victim.ANALYSER:
                return [one.process for one in sorted(found.isolated, key=lambda one: one.component != FIRST_ANALYSER)]

    def kill(self, victim: Victim, number: signal.Signals = signal.SIGKILL) -> int:
        """Kill one process of this kind with -9, or send it another signal. Returns its number; a driver is started again."""
        found = self.victims(victim)
        if not found:
            raise JobFailed("SW-BENCH-FAILED", f"the job has no process of kind {victim.value}", "use --mode live")
        self._restarting = victim is Victim.DRIVER
        found[0].send_signal(number)
        if victim is Victim.DRIVER:
            assert self._job is not None
            self._job.wait()
            self.start()
            self._restarting = False
        return found[0].pid

    @contextmanager
    def killing(self, victim: Victim, after: float, number: signal.Signals = signal.SIGKILL) -> Iterator[list[int]]:
        """Kill once, so many seconds after the sender has begun to send. Yields the numbers of the killed processes."""
        killed: list[int] = []
        done = threading.Event()

        def wait() -> None:
            truth = self._folder / "data" / "truth.jsonl"  # is written just before the first transaction
            size = truth.stat().st_size if truth.exists() else 0
            while not done.is_set():
                if truth.exists() and truth.stat().st_size > size:
                    if not done.wait(after):
                        killed.append(self.kill(victim, number))
                    return
                time.sleep(0.05)

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        try:
            yield killed
        finally:
            done.set()
            thread.join()

    def close(self) -> None:
        """Stop the job."""
        if self._job is None:
            return
        self._job.terminate()
        try:
            self._job.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            for process in reversed(self.processes()):
                process.kill()
            self._job.wait()
        self._job = None

    def __enter__(self) -> System:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
