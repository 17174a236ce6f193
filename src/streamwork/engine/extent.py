"""Extents: what an instance reads of a source partition in an epoch, and how the end of that becomes known."""

from __future__ import annotations

from enum import Enum

import msgspec


class EndKnown(Enum):
    """How the end of a slice becomes known."""

    BY_PLAN = "by plan"  # before the epoch is computed: it can be computed again, with the same events
    BY_REPORT = "by report"  # when the instance that has read it reports: only the manifest names it


class Extent(msgspec.Struct, frozen=True, array_like=True):
    """What an epoch reads of one partition: from `start` to `end`; or, by report, at most `limit` events from `start`, and
    nothing from the offset `until` on.
    """

    start: int
    end: int | None = None
    limit: int = 0
    until: int | None = None

    def __post_init__(self) -> None:
        if self.start < 0 or (self.limit < 1 if self.end is None else self.end <= self.start):
            raise ValueError(f"an epoch cannot read from {self.start} to {self.end}, at most {self.limit} events")

    @property
    def known(self) -> EndKnown:
        return EndKnown.BY_REPORT if self.end is None else EndKnown.BY_PLAN


Extents = dict[str, dict[str, Extent]]
"""By source and partition. A source without offsets has one partition for each instance, and is read by report."""
