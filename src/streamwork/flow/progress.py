"""The progress of event time in one instance: the watermark of each input, and their minimum.

An input is a source partition (``SOURCE/PARTITION``) or a channel. Its watermark is the largest event time that it has brought.
Event time in the instance is the minimum over the inputs: an input that has brought none yet holds it back, an idle one does
not. The minimum never goes back: an input that wakes up behind it holds it where it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from streamwork.flow.lineage import NEVER, Array


class Progress:
    """The one owner of watermarks, in microseconds."""

    def __init__(self, unfed_is_idle: bool = False) -> None:
        """`unfed_is_idle`: without inputs it is idle. An instance that reads no partition holds nothing back."""
        self._unfed_is_idle = unfed_is_idle
        self._inputs: dict[str, int | None] = {}
        self._idle: set[str] = set()
        self._minimum: int | None = None
        self._floor: int | None = None

    def expect(self, inputs: Iterable[str]) -> None:
        """These inputs bring event time, and hold the minimum back until they have."""
        for name in inputs:
            self._inputs.setdefault(name, None)
        self._begin()

    def resume(self, watermarks: Mapping[str, int | None], idle: Iterable[str] = (), floor: int | None = None) -> None:
        """Go on where a checkpoint has stored the watermarks of inputs; None for an input that had brought none. `idle` are those
        that were idle, `floor` is the minimum then: with inputs that wake up it is not that of their watermarks.
        """
        self._inputs.update(watermarks)
        self._idle.update(idle)
        self._floor = floor if floor is not None else self._floor
        self._begin()

    def _begin(self) -> None:
        found = self._least(self._inputs)
        known = [at for at in (found, self._floor) if at is not None]
        self._minimum = max(known, default=None)

    def of(self, name: str) -> int | None:
        """The watermark of one input."""
        return self._inputs.get(name)

    @property
    def minimum(self) -> int | None:
        """How far event time has come in all inputs; None while one of them has brought none."""
        return self._minimum

    def advance(self, name: str, times: Array) -> Array | None:
        """An input's watermark rises to each of `times` in turn, which increase from beyond its watermark.

        Returns the minimum after each of them, or None while another input has brought no event time.
        """
        if not len(times):
            return None
        self._idle.discard(name)
        self._inputs[name] = int(times[-1])
        others = {other: at for other, at in self._inputs.items() if other != name}
        least = self._least(others) if others.keys() - self._idle else int(times[-1])
        if least is None:
            return None
        minima = np.minimum(times, least)
        if self._minimum is not None:
            minima = np.maximum(minima, self._minimum)
        self._minimum = int(minima[-1])
        return minima

    def wake(self, name: str) -> None:
        """An input brings something again: it holds the minimum back where it is."""
        self._idle.discard(name)

    def is_idle(self, name: str) -> bool:
        return name in self._idle

    @property
    def all_idle(self) -> bool:
        """True if every input is idle."""
        return self._inputs.keys() <= self._idle if self._inputs else self._unfed_is_idle

    def mark_idle(self, name: str) -> int | None:
        """An input brings nothing for now, and does not hold the minimum back until it advances. Returns the minimum."""
        self._idle.add(name)
        found = self._least(self._inputs)
        if found is not None:
            self._minimum = found if self._minimum is None else max(found, self._minimum)
        return self._minimum

    def partitions(self, source: str) -> dict[str, int]:
        """The watermarks of a source's partitions, to be stored with a checkpoint."""
        split = ((name.partition("/"), at) for name, at in self._inputs.items())
        return {partition: at for (mine, _, partition), at in split if mine == source and at is not None}

    def _least(self, inputs: Mapping[str, int | None]) -> int | None:
        active = [at for name, at in inputs.items() if name not in self._idle]
        known = [at for at in active if at is not None]
        return min(known) if known and len(known) == len(active) else None


def rises(times: Array, before: int | None) -> tuple[Array, Array]:
    """(the watermark just before each event of one partition; the places of the events that raise it)"""
    running = np.maximum.accumulate(np.concatenate(([NEVER if before is None else before], times)))
    return running[:-1], np.flatnonzero(times > running[:-1])
