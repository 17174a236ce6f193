"""Kinds of joins: which rows are emitted without a match."""

from __future__ import annotations

from enum import Enum
from typing import Literal

from streamwork.errors import WrongUse

How = Literal["inner", "left", "right", "full"]


class JoinKind(Enum):
    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"

    @classmethod
    def known(cls, how: str) -> JoinKind:
        if how not in {kind.value for kind in cls}:
            raise WrongUse("SW-JOIN-HOW", f"how={how!r} is not a kind of join", "use inner, left, right or full")
        return cls(how)

    @property
    def keeps_left(self) -> bool:
        """True if rows of the left side are emitted without a match."""
        return self in (JoinKind.LEFT, JoinKind.FULL)

    @property
    def keeps_right(self) -> bool:
        """True if rows of the right side are emitted without a match."""
        return self in (JoinKind.RIGHT, JoinKind.FULL)

    def without_right(self, what: str) -> JoinKind:
        """This kind, for a side of which unmatched rows are never emitted."""
        if self.keeps_right:
            raise WrongUse(
                "SW-JOIN-HOW",
                f"how={self.value!r}, but {what} has no time at which one of its rows has found no match",
                'use inner or left; or join two streams, within="30min", or one table with event time',
            )
        return self
