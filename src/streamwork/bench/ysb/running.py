"""A run of the job by the command line, in processes of its own: its progress at each checkpoint, and the CPU time that it uses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import psutil

import streamwork
from streamwork.bench.ysb import jobfile_path
from streamwork.epoch import Store
from streamwork.errors import JobFailed
from streamwork.world import RealDisk

LOOK_SECONDS = 0.05
STOP_SECONDS = 60.0


class Progress(NamedTuple):
    """What a job had done when a checkpoint was completed."""

    epoch: int
    events: int  # in all committed checkpoints
    at: float  # when it was completed, in seconds since 1970
    cpu: float  # CPU seconds of the job's processes so far, a moment later


class RunningJob:
    """`streamwork run` with these parameters. Its folder holds the root, and what it prints in `job.txt`."""

    def __init__(
        self, folder: Path, job: str, source: str, mode: str, params: Mapping[str, object], jobfile: Path | None = None
    ) -> None:
        self._folder, self._source = folder, source
        self._jobfile = jobfile or jobfile_path()
        folder.mkdir(parents=True, exist_ok=True)
        self._store = Store(RealDisk(), folder / "root", job)
        options = [part for name, value in params.items() for part in ("--param", f"{name}={value}")]
        command = [
            sys.executable,
            "-m",
            "streamwork",
            "run",
            str(self._jobfile),
            "--mode",
            mode,
            "--no-restart",
            *options,
        ]
        command += ["--root", str(folder / "root"), *(["--master", "local[2]"] if mode != "local" else [])]
        paths = [str(Path(streamwork.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        with (folder / "job.txt").open("ab") as output:
            self.process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
        self._epoch = 0

    def checkpoints(self, events: int) -> Iterator[Progress]:
        """The completed checkpoints that it sees, until one of them has these events. Raises JobFailed if the job ends before."""
        done = 0
        while done < events:
            ended = self.process.poll() is not None  # before the look: the last checkpoint is seen too
            if (found := self._newest()) is not None:
                done = found.events
                yield found
            elif ended:
                raise self.failed(
                    f"it ended with exit code {self.process.returncode} after {done:,} events of {events:,}"
                )
            else:
                time.sleep(LOOK_SECONDS)

    def stop(self) -> None:
        """End the job as Ctrl-C does: it completes the checkpoint in progress."""
        self.process.send_signal(signal.SIGINT)
        if self.process.wait(STOP_SECONDS):
            raise self.failed(f"it ended with exit code {self.process.returncode}")

    @property
    def root(self) -> Path:
        """The job's folder."""
        return self._store.folder

    def age(self) -> float | None:
        """Seconds since the newest completed checkpoint was written; None if there is none."""
        newest = max(self._store.completed(), default=None)
        return None if newest is None else time.time() - self._store.written_at(newest)

    def _newest(self) -> Progress | None:
        """The newest checkpoint, if it was not seen before."""
        newest = max((epoch for epoch in self._store.completed() if epoch > self._epoch), default=None)
        if newest is None:
            return None
        manifest = self._store.manifest(newest)
        self._epoch = newest
        begins = f"{self._source}/"
        events = sum(at for name, at in manifest.positions.items() if name.startswith(begins))
        return Progress(newest, events, self._store.written_at(newest), self._cpu())

    def _cpu(self) -> float:
        total = 0.0
        try:
            me = psutil.Process(self.process.pid)
            processes = [me, *me.children(recursive=True)]
        except psutil.Error:
            return total
        for one in processes:
            try:
                times = one.cpu_times()
            except psutil.Error:
                continue
            total += times.user + times.system
        return total

    def failed(self, why: str) -> JobFailed:
        said = (self._folder / "job.txt").read_text(errors="replace").strip().splitlines()[-5:]
        return JobFailed(
            "SW-BENCH-FAILED",
            f"the job of the benchmark: {why}; it printed: {' | '.join(said)}",
            f"run it yourself: streamwork run {self._jobfile}",
        )

    def kill(self) -> None:
        """Kill the driver with -9. Its children end by themselves."""
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
