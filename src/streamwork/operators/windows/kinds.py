"""The kinds of windows, as a user writes them: ``Fixed("10s")``. Frozen values that check themselves.

By time, windows are aligned to 1970 in UTC: a window of 10 s begins at every full 10 s. A window has the times from its start up
to, but not including, its end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamwork.components.duration import duration_in_microseconds
from streamwork.errors import WrongUse

Array = np.ndarray[Any, Any]
LONGEST = 1_000 * 366 * 86_400 * 1_000_000
"""The longest duration of a window: sums of some of them and a time are within 64 bits."""


MOST_WINDOWS = 10_000
"""The most windows that one event may be in."""


class Window:
    """A way to divide the events of a key into windows."""

    by_count = False
    """True if windows are bounded by a number of events, not by time."""


def _size(kind: str, name: str, given: str | float) -> int:
    found = duration_in_microseconds(given)
    if not 0 < found <= LONGEST:
        raise WrongUse(
            "SW-WINDOW-SIZE",
            f"{kind}: {name}={given!r} is not a usable length",
            'use a duration from one microsecond to 1000 years, such as "10s"',
        )
    return found


def _check_slide(kind: str, size: Any, slide: Any, length: int, step: int) -> None:
    if length > step * MOST_WINDOWS:
        raise WrongUse(
            "SW-WINDOW-SIZE",
            f"{kind}: with size={size!r} and slide={slide!r}, each event would be in {length // step:,} windows",
            f"use a slide of at least the {MOST_WINDOWS:,}th part of the size",
        )
    if step > length:
        raise WrongUse(
            "SW-WINDOW-SIZE",
            f"{kind}: slide={slide!r} is longer than size={size!r}, so some events would be in no window",
            "use a slide that is at most the size",
        )


@dataclass(frozen=True)
class Sliding(Window):
    """Windows of one size, of which one begins at every multiple of `slide`; each event is in several of them."""

    size: str | float
    slide: str | float

    def __post_init__(self) -> None:
        self.length, self.step  # noqa: B018 (they check themselves)
        _check_slide("Sliding", self.size, self.slide, self.length, self.step)

    @property
    def length(self) -> int:
        """The size in microseconds."""
        return _size("Sliding", "size", self.size)

    @property
    def step(self) -> int:
        """The slide in microseconds."""
        return _size("Sliding", "slide", self.slide)


@dataclass(frozen=True)
class Fixed(Window):
    """Windows of one size, one after another; each event is in one of them."""

    size: str | float

    def __post_init__(self) -> None:
        self.length  # noqa: B018 (it checks itself)

    @property
    def length(self) -> int:
        """The size in microseconds."""
        return _size("Fixed", "size", self.size)

    @property
    def step(self) -> int:
        return self.length


@dataclass(frozen=True)
class Session(Window):
    """The events of a key, until none comes for longer than `gap`. The window ends `gap` after its last event."""

    gap: str | float

    def __post_init__(self) -> None:
        self.length  # noqa: B018 (it checks itself)

    @property
    def length(self) -> int:
        """The gap in microseconds."""
        return _size("Session", "gap", self.gap)


def _count(kind: str, name: str, given: object) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or not 1 <= given < 1 << 31:
        raise WrongUse(
            "SW-WINDOW-SIZE", f"{kind}: {name}={given!r} is not a number of events", "use a whole number from 1 on"
        )
    return given


@dataclass(frozen=True)
class SlidingCount(Window):
    """Windows of `size` events of a key, of which one begins with every `slide`-th event."""

    by_count = True
    size: int
    slide: int

    def __post_init__(self) -> None:
        _check_slide("SlidingCount", self.size, self.slide, self.length, self.step)

    @property
    def length(self) -> int:
        return _count("SlidingCount", "size", self.size)

    @property
    def step(self) -> int:
        return _count("SlidingCount", "slide", self.slide)


@dataclass(frozen=True)
class FixedCount(Window):
    """Windows of `size` events of a key, one after another."""

    by_count = True
    size: int

    def __post_init__(self) -> None:
        self.length  # noqa: B018 (it checks itself)

    @property
    def length(self) -> int:
        return _count("FixedCount", "size", self.size)

    @property
    def step(self) -> int:
        return self.length


class Assigner(Window, ABC):
    """The base class of a user's own windows by time::

        class Days(Assigner):                   # local days, with daylight saving time
            def assign(self, times, events):
                starts, ends = ...
                return np.arange(len(times)), starts, ends

    A window is known by its start and end. It closes when event time reaches its end.
    """

    @abstractmethod
    def assign(self, times: Array, events: pa.RecordBatch) -> tuple[Array, Array, Array]:
        """(row, start, end) of each window of each event: int64 arrays. Times are microseconds since 1970 in UTC.

        Every event is in at least one window, and before its end. The result for an event depends on this event alone.
        """
