"""Credit between two tasks of a gang: how many events of a channel the receiver has taken, in a file of 16 bytes.

    exchange/FENCE/GANG/CHANNEL/credit      the number, and its complement: a torn read is noticed and read again later

Sent minus taken is what waits, in files and in the receiver's memory: the sender's gauge counts that.
"""

from __future__ import annotations

import os
import struct
from collections import deque
from pathlib import Path

from streamwork.flow.gauge import Gauge

_FRAME = struct.Struct("<qq")
FILE = "credit"


class CreditReader:
    """Of the sender."""

    def __init__(self, folder: Path, gauge: Gauge) -> None:
        self._path = folder / FILE
        self._gauge = gauge
        self._descriptor: int | None = None
        self._written = 0  # events that are in parcels
        self._parcels: deque[tuple[int, int]] = deque()  # events up to the end of a parcel, its bytes
        self._taken = 0

    def sent(self, events: int, size: int) -> None:
        """A parcel with so many events, which the gauge knows already, has so many bytes."""
        if events:
            self._written += events
            self._parcels.append((self._written, size))
            self._gauge.add(0, size)

    def settle(self) -> None:
        """Bring the gauge up to date."""
        if not self._gauge.events:
            return
        if self._descriptor is None:
            try:
                self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return
        found = os.pread(self._descriptor, _FRAME.size, 0)
        if len(found) < _FRAME.size:
            return
        taken, complement = _FRAME.unpack(found)
        if taken != ~complement or taken <= self._taken:
            return
        size = 0
        while self._parcels and self._parcels[0][0] <= taken:
            size += self._parcels.popleft()[1]
        events, self._taken = taken - self._taken, taken
        self._gauge.take(events, size)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class CreditWriter:
    """Of the receiver."""

    def __init__(self, folder: Path, step: int) -> None:
        """The number is written when it has grown by `step`, or when nothing waits."""
        self._folder = folder
        self._step = step
        self._descriptor: int | None = None
        self._written = 0

    def write(self, taken: int, idle: bool) -> None:
        """`taken` events were taken in all; `idle`: nothing waits."""
        if taken == self._written or (not idle and taken < self._written + self._step):
            return
        if self._descriptor is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self._folder / FILE, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644)
        os.pwrite(self._descriptor, _FRAME.pack(taken, ~taken), 0)
        self._written = taken

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
