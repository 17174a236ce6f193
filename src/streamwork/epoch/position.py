"""Positions: how far a job, or a sink, has come in everything that enters.

A position is a vector, source/partition -> offset; a missing component is 0. Two positions may be incomparable.
"""

from __future__ import annotations

from streamwork.components import Position


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
