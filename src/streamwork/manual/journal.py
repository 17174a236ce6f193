"""`Journal`: where a source was at each store, so that it can go back by time or by events."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from streamwork.components.duration import seconds
from streamwork.errors import WrongUse


class Point(msgspec.Struct, frozen=True, array_like=True):
    """A store of the source: the offset that it reads next, how many events it had emitted, and when that was."""

    offset: int
    events: int
    at: float


class Gap(msgspec.Struct, frozen=True):
    """Events that a restart has left out, as `on_gap` permits: an instance had come to `stored`, the source began at `begun`."""

    component: str
    instance: int
    stored: int
    begun: int


class Rewind(msgspec.Struct, frozen=True):
    """How far a restart goes back: a number of events, or a time."""

    events: int | None = None
    seconds: float | None = None

    @classmethod
    def of(cls, given: int | str) -> Rewind:
        if isinstance(given, bool) or not isinstance(given, int | str) or (isinstance(given, int) and given < 0):
            raise WrongUse(
                "SW-MANUAL-REWIND", f"rewind={given!r}", 'use a number of events, or a duration such as "2min"'
            )
        return cls(events=given) if isinstance(given, int) else cls(seconds=seconds(given))

    def point(self, points: Sequence[Point]) -> Point:
        """The newest point that is far enough behind the last one; the first one if none is."""
        last = points[-1]
        if self.events is not None:
            return next((one for one in reversed(points) if one.events <= last.events - self.events), points[0])
        assert self.seconds is not None
        return next((one for one in reversed(points) if one.at <= last.at - self.seconds), points[0])


class Journal(msgspec.Struct, frozen=True):
    """That of one partition. `began` is where the very first start began."""

    began: int
    points: tuple[Point, ...]
    gaps: tuple[Gap, ...] = ()

    @classmethod
    def begin(cls, offset: int, at: float) -> Journal:
        return cls(offset, (Point(offset, 0, at),))

    def advanced(self, offset: int, events: int, at: float, rewind: Rewind) -> Journal:
        """With a store at this offset, `events` events behind the last one, and without points that no restart goes back to."""
        last = self.points[-1]
        if offset <= last.offset:
            return self
        points = (*self.points, Point(offset, last.events + events, max(at, last.at)))
        return msgspec.structs.replace(self, points=points[points.index(rewind.point(points)) :])

    def rewound(self, offset: int, gaps: Sequence[Gap]) -> Journal:
        """At a restart that begins at an offset: points beyond it come again."""
        kept = tuple(one for one in self.points if one.offset <= offset)
        before = kept[-1] if kept else Point(offset, 0, self.points[0].at)
        return Journal(self.began, (*kept[:-1], msgspec.structs.replace(before, offset=offset)), (*self.gaps, *gaps))
