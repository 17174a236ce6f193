"""When a segment is finished and when it may be removed: pure functions, with the time passed in."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Policy(msgspec.Struct, frozen=True):
    """Limits for rolling and retention, per partition. Sizes are in bytes, ages in seconds; None means no limit."""

    segment_bytes: int = 64 << 20
    segment_age: float | None = None
    retain_bytes: int | None = None
    retain_age: float | None = None

    def problem(self) -> str:
        """A message that names an invalid value; empty if all are valid."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and value <= 0:
                return f"{name}={value} is not above 0"
        return ""


class SegmentFacts(msgspec.Struct, frozen=True):
    """The facts about one finished segment that retention decides on."""

    base: int
    end: int
    size: int
    last_append: float


def must_roll(policy: Policy, size: int, first_append: float | None, incoming: int, now: float) -> bool:
    """True if the next frame, of `incoming` bytes, belongs in a new segment. An empty segment is never rolled."""
    if first_append is None:
        return False
    if size + incoming > policy.segment_bytes:
        return True
    return policy.segment_age is not None and now - first_append >= policy.segment_age


def removable(policy: Policy, finished: Sequence[SegmentFacts], active: int, needed: int, now: float) -> int:
    """The number of the oldest finished segments that may be removed.

    `active` is the size of the segment being written, which is never removed. `needed` is the lowest offset that a
    registered consumer needs: no segment with that offset or a later one is removed.
    """
    total = active + sum(segment.size for segment in finished)
    count = 0
    for segment in finished:
        too_much = policy.retain_bytes is not None and total > policy.retain_bytes
        too_old = policy.retain_age is not None and now - segment.last_append > policy.retain_age
        if segment.end > needed or not (too_much or too_old):
            break
        total -= segment.size
        count += 1
    return count
