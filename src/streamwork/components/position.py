"""Positions: how far a job, or a sink, has come in everything that enters.

A position is a vector, source/partition -> offset; a missing component is 0. Two positions may be incomparable.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

Position = dict[str, int]  # source/partition -> offset; a missing one is 0

CLOCK = "clock"
"""The component of a position that processing time is: microseconds since 1970."""


def shown(position: Position) -> str:
    """For people: ``lines/0 at 1,200, clock at 2026-01-31 12:00:00 UTC``."""
    return ", ".join(f"{name} at {_shown(name, at)}" for name, at in sorted(position.items())) or "the beginning"


def _shown(name: str, at: int) -> str:
    if name != CLOCK:
        return f"{at:,}"
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at)
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def same(a: Position, b: Position) -> bool:
    return reaches(a, b) and reaches(b, a)


def reaches(a: Position, b: Position) -> bool:
    """True if `a` is at or beyond `b` in every component."""
    return all(a.get(name, 0) >= offset for name, offset in b.items())


def furthest(a: Position, b: Position) -> Position:
    """As far as either has come in each component."""
    return {**b, **{name: max(offset, b.get(name, 0)) for name, offset in a.items()}}


def beyond(a: Position, b: Position) -> bool:
    """True if `a` reaches `b` and is not the same."""
    return reaches(a, b) and not reaches(b, a)
