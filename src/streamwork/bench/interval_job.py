"""The job of ``streamwork bench interval``: a count per card, exactly-once, each row with the time at which its event was due.

Every process that applies events counts them in a file of its own, which outlives a kill -9: `applied` adds them up.
"""

from __future__ import annotations

import mmap
import os
import secrets
import struct
import time
from pathlib import Path
from typing import Any

from streamwork.bench.open_loop import TABLE, Use
from streamwork.components import Event, Instance, KeyedCollector, KeyedOperator, Record
from streamwork.connectors import LogSource, SqliteSink
from streamwork.job import Job

JOB, COUNTS = "interval", "counts"
PARALLELISM = 2
APPLIED = "applied"
ENTRY = struct.Struct("<qd")
"""How many events a process has applied, and the monotonic time of the first one."""


class Counted(Event, frozen=True):
    number: int
    card: str
    seen: int  # events of this card so far
    due: float


class Seen(Record):
    seen: int = 0


class Tally:
    """The counter of this process for one folder."""

    _all: dict[Path, Tally] = {}

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        file = os.open(folder / f"{os.getpid()}-{secrets.token_hex(4)}", os.O_RDWR | os.O_CREAT)
        try:
            os.truncate(file, ENTRY.size)
            self._map = mmap.mmap(file, ENTRY.size)
        finally:
            os.close(file)
        self._count = 0

    @classmethod
    def of(cls, folder: Path) -> Tally:
        if folder not in cls._all:
            cls._all[folder] = cls(folder)
        return cls._all[folder]

    def add(self) -> None:
        if not self._count:
            self._map[8:16] = struct.pack("<d", time.monotonic())
        self._count += 1
        self._map[0:8] = self._count.to_bytes(8, "little")


class Counting(KeyedOperator[Use, Seen, Counted]):
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tally: Tally | None = None

    def setup_instance(self, instance: Instance) -> None:
        self._tally = Tally.of(self._folder)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_tally": None}  # each process has its own

    def apply(self, event: Use, state: Seen, collector: KeyedCollector) -> None:
        assert self._tally is not None
        self._tally.add()
        state.seen += 1
        collector.emit(Counted(event.number, event.card, state.seen, event.due))


def build(folder: Path, log: Path) -> Job:
    job = Job(JOB, parallelism=PARALLELISM)
    uses = job.source(LogSource(log, Use), id="uses")
    counted = uses.apply(Counting(folder / APPLIED), key="card", id=COUNTS)
    counted.sink(SqliteSink(folder / "out.db", TABLE), id="rows")
    return job


def applied(folder: Path) -> tuple[int, float]:
    """(how many events were applied in all processes, the time of the first one)"""
    count, first = 0, float("inf")
    for path in (folder / APPLIED).glob("*"):
        if len(content := path.read_bytes()) == ENTRY.size:
            events, began = ENTRY.unpack(content)
            if events:
                count, first = count + events, min(first, began)
    return count, first
