"""Origins: a number for the position of an event, by which `shuffle()` spreads events over instances.

The origin of a source event is that of its partition, plus its offset. What an operator emits while it applies an event has the
origin of that event; a second, third, ... event emitted at once has one derived from it. So an origin depends on source partition
and offset alone: not on epochs, attempts, or how the input was cut. Events that come from no single source event (a timer fired,
`apply_batch` emitted a batch, they came out of the inbox) have none, and are spread by what is in them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from typing import Any
from zlib import crc32

import numpy as np

from streamwork.delivery.text import to_text

NONE = -1
_MASK = (1 << 63) - 1  # origins are int64, and not negative
_STEP, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # of splitmix64
Array = np.ndarray[Any, Any]


def origins_of(source: str, partition: str, offsets: Array) -> Array:
    """Those of source events."""
    return (offsets.astype(np.uint64) + np.uint64(_base(source, partition)) & np.uint64(_MASK)).astype(np.int64)


def descended(origins: Array, parents: Array) -> Array:
    """Of emitted events: `origins` are those of the events they come from, whose places are `parents`.

    The first event emitted at once keeps the origin; a second, third, ... gets one of its own.
    """
    if not len(parents):
        return origins
    starts = np.flatnonzero(np.diff(parents, prepend=-1))
    if len(starts) == len(parents):
        return origins
    numbers = np.arange(len(parents)) - np.repeat(starts, np.diff(starts, append=len(parents)))
    later = (numbers > 0) & (origins != NONE)
    with np.errstate(over="ignore"):
        steps = numbers[later].astype(np.uint64) * np.uint64(_STEP) & np.uint64(_MASK)
    found = origins.copy()
    found[later] = (_mixed(origins[later].astype(np.uint64) ^ steps) & np.uint64(_MASK)).astype(np.int64)
    return found


def turns(origins: Array, count: int) -> Array:
    """The instance of each event. Of `count` events at neighbouring offsets each goes to another instance, in an order that
    changes from block to block, so that no regularity of the input can favour one of them.
    """
    blocks, places = np.divmod(origins.astype(np.uint64), np.uint64(count))
    return ((places + _mixed(blocks) % np.uint64(count)) % np.uint64(count)).astype(np.int64)


def from_content(events: Iterable[Any]) -> list[int]:
    """Of events that have no position."""
    return [crc32(to_text(event).encode()) for event in events]


@cache
def _base(source: str, partition: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{source}/{partition}".encode()).digest()[:8], "big") & _MASK


def _mixed(values: Array) -> Array:
    """Any change of a value changes about half the bits of the result (splitmix64)."""
    with np.errstate(over="ignore"):
        mixed = values.astype(np.uint64) + np.uint64(_STEP)
        mixed = (mixed ^ mixed >> np.uint64(30)) * np.uint64(_FIRST)
        mixed = (mixed ^ mixed >> np.uint64(27)) * np.uint64(_SECOND)
        return mixed ^ mixed >> np.uint64(31)
