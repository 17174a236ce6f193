"""The size of batches where rows are to be visible early: what takes about a tenth of a second."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from streamwork.components import Slice
from streamwork.flow.batch import Batch, Given

GLANCE = 0.1
"""Maximum preview delay, in seconds."""
MOST = 8_192
T = TypeVar("T", Given, Batch)


class AdaptiveBatch:
    """Begins with single events, and doubles as long as they are processed quickly."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` gives seconds; if it stands still, as in a simulation, the cuts depend on the input alone."""
        self._clock = clock
        self._rows = 1

    def slices(self, piece: Slice) -> Iterator[Slice]:
        """The parts of a slice; each has been processed when the next is requested."""
        at, parts = 0, self.cut(piece.given)
        first = piece.part(next(parts, piece.given), at)
        first.dropped, first.left_out = piece.dropped, piece.left_out
        first.letters += piece.letters
        yield first
        at += len(first.given)
        for given in parts:
            yield piece.part(given, at)
            at += len(given)

    def cut(self, given: T) -> Iterator[T]:
        start = 0
        while start < len(given):
            part, began = given[start : start + self._rows], self._clock()
            start += len(part)
            yield part
            took = self._clock() - began
            if took > GLANCE:
                self._rows = max(1, self._rows // 2)
            elif took < GLANCE / 2:
                self._rows = min(MOST, self._rows * 2)
