"""Lineage: the side columns of a batch, one number per event and column. A column that nothing behind needs is absent.

    roots       the source event that an event comes from, under acknowledging
    origins     the position of an event, by which `shuffle()` spreads events (`flow.origins`)
    watermarks  the watermark of the event's own source partition just before the event, in microseconds
    moments     the place of an event in the order in which single events would pass (`engine.routes`)

What an operator emits while it applies an event has the lineage of that event. What a timer emits has no root and no origin; its
watermark is that at which the timer fired, by event time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamwork.flow.origins import NONE, descended

Array = np.ndarray[Any, Any]
UNTRACKED = -1
NEVER = -(1 << 63)
"""The watermark of a partition before its first event."""
_LANE = 1 << 40  # events of one lane in one epoch: more than any source gives
_AGAIN = 1 << 20  # added to a lane: more than there are partitions
DEFAULTS = {"roots": UNTRACKED, "origins": NONE, "watermarks": NEVER, "moments": 0}


def root_of(lane: int, number: int) -> int:
    """A root names a lane of the epoch's input, and an event of that lane."""
    return lane * _LANE + number


def lane_of(root: int) -> tuple[int, int]:
    """(lane, number of the event in it)"""
    return divmod(root, _LANE)


def again(root: int) -> int:
    """The root of an event of the same epoch that is replayed at once (live mode)."""
    return root + _AGAIN * _LANE


def first(root: int) -> int | None:
    """The root that this one replays at once; None if it is the first."""
    return root - _AGAIN * _LANE if root >= _AGAIN * _LANE else None


def count_replayed(roots: Array) -> int:
    """How many of these events are replayed: in lane 0, or at once."""
    return int((((roots >= 0) & (roots < _LANE)) | (roots >= _AGAIN * _LANE)).sum())


class Lineage:
    """The side columns of one batch; those that are present have one number for each of its events."""

    __slots__ = ("moments", "origins", "roots", "watermarks")

    def __init__(
        self,
        roots: Array | None = None,
        origins: Array | None = None,
        watermarks: Array | None = None,
        moments: Array | None = None,
    ) -> None:
        self.roots = roots
        self.origins = origins
        self.watermarks = watermarks
        self.moments = moments

    def take(self, places: Any) -> Lineage:
        """The rows at these places: an array, or a slice."""
        return Lineage(
            None if self.roots is None else self.roots[places],
            None if self.origins is None else self.origins[places],
            None if self.watermarks is None else self.watermarks[places],
            None if self.moments is None else self.moments[places],
        )

    def descend(self, parents: Array) -> Lineage:
        """That of events emitted while the events at the places `parents` were applied."""
        found = self.take(parents)
        if found.origins is not None:
            found.origins = descended(found.origins, parents)
        return found

    def at(self, moments: Array | None) -> Lineage:
        """This lineage with other moments."""
        return Lineage(self.roots, self.origins, self.watermarks, moments)

    @property
    def columns(self) -> dict[str, Array]:
        """The columns that are present."""
        found = {name: getattr(self, name) for name in DEFAULTS}
        return {name: column for name, column in found.items() if column is not None}


def column_of(lineages: Sequence[tuple[Lineage | None, int]], name: str) -> Array:
    """One side column of several batches, given with their lengths; the default where it is absent."""
    parts = []
    for lineage, count in lineages:
        column = None if lineage is None else getattr(lineage, name)
        parts.append(np.full(count, DEFAULTS[name], np.int64) if column is None else column)
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def joined(lineages: Sequence[tuple[Lineage | None, int]]) -> Lineage | None:
    """The lineage of several batches in a row, given with their lengths."""
    present = {name for lineage, _ in lineages if lineage is not None for name in lineage.columns}
    return Lineage(**{name: column_of(lineages, name) for name in present}) if present else None
