"""The job of `streamwork bench backpressure`: from a log through an exchange to a sink whose speed a file decides."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path
from typing import Any

from streamwork import CallableSink, Event, Instance, Job, LogSource, Operator, single

SLOW = "slow"
"""While this file exists, the sink takes ten times as long."""
OUTPUT = "output"
ROW = struct.Struct("<qd")
"""The number of an event, and its age in seconds when the sink has written it."""
SLOWER = 10
LOOK_SECONDS = 0.05
LEAST_SLEEP = 0.005


class Tick(Event):
    number: int
    sent_at: float


class Pass(Operator[Tick, Tick]):
    def setup_instance(self, instance: Instance) -> None:
        """Nothing to prepare."""

    def apply(self, event: Tick, collector: Any) -> None:
        collector.emit(event)


class Writing:
    """Appends each event to a file, and takes `seconds` for it; the time is slept in pieces, so that it is exact on average."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self._folder, self._seconds = folder, seconds
        self._file: int | None = None
        self._owed = self._looked = 0.0
        self._factor = 1

    def __call__(self, event: Tick) -> None:
        if self._file is None:
            self._file = os.open(self._folder / OUTPUT, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
        now = time.monotonic()
        if now >= self._looked + LOOK_SECONDS:
            self._looked = now
            self._factor = SLOWER if (self._folder / SLOW).exists() else 1
        self._owed += self._seconds * self._factor
        if self._owed >= LEAST_SLEEP:
            time.sleep(self._owed)
            self._owed -= time.monotonic() - now
        os.write(self._file, ROW.pack(event.number, time.time() - event.sent_at))

    def __deepcopy__(self, memo: Any) -> Writing:
        return Writing(self._folder, self._seconds)


def build(folder: Path, policy: Any, semantics: Any, seconds: float, buffer: int | None = None) -> Job:
    job = Job("pressed", semantics=semantics, backpressure=policy, checkpoint_every="1s", parallelism=2)
    ticks = job.source(LogSource(folder / "ticks.log", Tick), id="ticks", parallelism=2)
    passed = ticks.apply(Pass(), id="pass", grouping=single(), buffer=buffer)
    passed.sink(CallableSink(Writing(folder, seconds)), id="out")
    return job
