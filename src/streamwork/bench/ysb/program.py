"""A program in a process of its own, with all that it starts: its CPU time, what it prints, its end."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from streamwork.errors import JobFailed

STOP_SECONDS = 20.0


class Program:
    """`command`, run in `folder`, which holds what it prints in `output.txt`."""

    def __init__(self, folder: Path, command: Sequence[object], environment: Mapping[str, str] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.samples: list[tuple[float, float]] = []
        """(time, CPU seconds so far), sampled by `look`."""
        with (folder / "output.txt").open("ab") as output:
            self._process = subprocess.Popen(
                [str(part) for part in command],
                cwd=folder,
                env={**os.environ, **(environment or {})},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def look(self) -> None:
        """Raises JobFailed if it has ended."""
        if self._process.poll() is not None:
            said = (self._folder / "output.txt").read_text(errors="replace").strip().splitlines()[-8:]
            raise JobFailed(
                "SW-BENCH-FAILED",
                f"a system of the benchmark ended with exit code {self._process.returncode}: {' | '.join(said)[-1500:]}",
                "run the benchmark again; if it fails again, run the system by itself",
            )
        self.samples.append((time.time(), self._cpu()))

    def cpu_at(self, moment: float) -> float:
        """CPU seconds used so far, by the sample that is nearest to this time."""
        return min(self.samples, key=lambda sample: abs(sample[0] - moment))[1]

    def _family(self) -> list[psutil.Process]:
        try:
            me = psutil.Process(self._process.pid)
            return [me, *me.children(recursive=True)]
        except psutil.Error:
            return []

    def _cpu(self) -> float:
        total = 0.0
        for one in self._family():
            try:
                times = one.cpu_times()
            except psutil.Error:
                continue
            total += times.user + times.system
        return total

    def stop(self) -> None:
        """Ends it and all that it has started."""
        family = self._family()
        for one in family[:1]:
            one.terminate()
        _, left = psutil.wait_procs(family, STOP_SECONDS)
        for one in left:
            try:
                one.kill()
            except psutil.Error:
                continue
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
