"""`System`: the processes of the card network, and their files. Every process is started, watched and killed by its number."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import psutil

import streamwork
from streamwork.cli.examples import example
from streamwork.cli.network import tied
from streamwork.cli.network.schedule import Fault, Job, Victim
from streamwork.errors import JobFailed
from streamwork.observe.processes import JobProcesses

STOP_SECONDS = 60.0
LAST_LINES = 6
NICE = 10
"""Niceness of system usage, which may wait: on few cores its start must not delay the decisions of fraud detection."""
FIRST_ANALYSER = "average-ticket"
"""The first analyser to be killed, if it runs."""


class Places:
    """The files of one demo, in its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.data = folder / "data"
        self.log = self.data / "transactions.log"
        self.decisions = self.data / "decisions.db"
        self.truth = self.data / "truth.jsonl"
        self.usage = folder / "usage.db"
        self.progress = folder / "progress.jsonl"
        self.report = folder / "report.json"

    def output(self, name: str) -> Path:
        """What a process has printed."""
        return self.folder / f"{name}.txt"


class NoVictim(Exception):
    """There is no such process at the moment."""


class Child:
    """A process, which is started again after it was killed."""

    def __init__(
        self, name: str, command: list[str], environment: Mapping[str, str], places: Places, nice: int = 0
    ) -> None:
        self.name = name
        become = [sys.executable, "-I", tied.__file__, str(os.getpid()), str(nice)]
        self._command = [*become, sys.executable, *command]
        self._environment = environment
        self._places = places
        self._process: subprocess.Popen[bytes] | None = None
        self._known: set[psutil.Process] = set()  # it and everything below it that was ever seen

    def start(self, stdout: Path | None = None) -> None:
        """`stdout` is a file for its standard output alone."""
        with ExitStack() as files:
            said = files.enter_context(self._places.output(self.name).open("ab"))
            out = said if stdout is None else files.enter_context(stdout.open("wb"))
            self._process = subprocess.Popen(
                self._command,
                env=dict(self._environment),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=said,
                start_new_session=True,  # Ctrl-C is for the demo, which stops it in order
            )

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def code(self) -> int | None:
        """The exit code; None while it runs, or if it was not started."""
        return None if self._process is None else self._process.poll()

    def processes(self) -> JobProcesses:
        """The processes of the driver that live."""
        if self._process is None or self._process.poll() is not None:
            return JobProcesses()
        found = JobProcesses.of(self._process.pid)
        self._known.update(found.below)
        return found

    def kill(self, process: psutil.Process) -> int:
        """Kill this process of it with -9. Returns its number."""
        self.processes()
        process.send_signal(signal.SIGKILL)
        if self._process is not None and process.pid == self._process.pid:
            self._process.wait()
        return process.pid

    def ask_to_stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.processes()
            self._process.terminate()

    def close(self, seconds: float = STOP_SECONDS) -> None:
        """Wait until it has stopped, at most so long. Then kill it, and everything of it that still lives."""
        if self._process is None:
            return
        self.processes()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        end = time.monotonic() + min(seconds, 10.0)  # a JVM ends soon after its driver
        while (left := [one for one in self._known if one.is_running()]) and time.monotonic() < end:
            time.sleep(0.1)
        for process in left:
            try:
                process.kill()
            except psutil.Error:
                continue
        self._known.clear()

    def failed(self) -> JobFailed:
        said = self._places.output(self.name).read_text(errors="replace").splitlines()[-LAST_LINES:]
        return JobFailed(
            "SW-DEMO-FAILED",
            f"{self.name} ended with exit code {self.code}; it printed: {' | '.join(said)}",
            "run `streamwork doctor`; with --keep DIR the demo leaves its files in DIR",
        )


class System:
    """The two jobs, and the sender of transactions. A context manager: nothing runs after the block."""

    def __init__(self, places: Places, rate: float, checkpoint_every: str) -> None:
        fraud, usage = example("fraud_detection"), example("system_usage")
        self.places = places
        self._rate = rate
        self._sender = fraud
        places.data.mkdir(parents=True)
        source = str(Path(streamwork.__file__).parents[1])
        self._environment = {
            **os.environ,
            "FRAUD_DATA": str(places.data),
            "FRAUD_CHECKPOINT_EVERY": "1s",
            "USAGE_DB": str(places.usage),
            "USAGE_SINK": "append",  # a row for each transaction: missing and repeated ones are visible
            "PYTHONPATH": os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")])),
        }
        self.jobs = {
            Job.FRAUD: self._job(Job.FRAUD, fraud / "job.py", "--mode", "live"),
            Job.USAGE: self._job(Job.USAGE, usage / "job.py", "--checkpoint-every", checkpoint_every, nice=NICE),
        }
        self.sender: Child | None = None

    def _job(self, job: Job, file: Path, *options: str, nice: int = 0) -> Child:
        command = ["-m", "streamwork", "run", str(file), "--root", str(self.places.root), *options]
        return Child(job.value, command, self._environment, self.places, nice)

    def send(self, seconds: float, seed: int, patience: float) -> None:
        """Start the sender. It waits for fraud detection, gives cards a history, and sends for so many seconds."""
        options = {"rate": self._rate, "seconds": seconds, "seed": seed, "patience": patience}
        command = [str(self._sender), "--json", "--progress", str(self.places.progress)]
        command += [word for name, value in options.items() for word in (f"--{name}", f"{value:g}")]
        self.sender = Child("sender", command, self._environment, self.places)
        self.sender.start(stdout=self.places.report)

    def kill(self, fault: Fault) -> str:
        """Kill a process with -9, and start a driver again, as a service manager does. Returns its description.

        Raises `NoVictim` if there is no such process at the moment.
        """
        child = self.jobs[fault.victim.job]
        found = child.processes()
        if fault.victim.is_driver:
            if found.driver is None:
                raise NoVictim
            number = child.kill(found.driver)
            child.start()
            return f"{fault.victim.value}, process {number}"
        if fault.victim is Victim.ANALYSER:
            named = [(one.component, one.process) for one in found.isolated]
            named.sort(key=lambda one: one[0] != FIRST_ANALYSER)
        else:
            named = [(f"worker of {child.name}", one) for one in found.tasks]
        if not named:
            raise NoVictim
        name, process = named[int(fault.choice * len(named)) % len(named)]
        try:
            number = child.kill(process)
        except psutil.Error:
            raise NoVictim from None
        return f"{name}, process {number}"

    def check(self) -> None:
        """Raises JobFailed if a job or the sender has ended by itself with an error, or a job at all."""
        for child in self.jobs.values():
            if child.code is not None:
                raise child.failed()
        if self.sender is not None and self.sender.code:
            raise self.sender.failed()

    def __enter__(self) -> System:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop everything: the sender first, then both jobs at the same time."""
        children = [*([self.sender] if self.sender else []), *self.jobs.values()]
        for child in children:
            child.ask_to_stop()
        for child in children:
            child.close()
