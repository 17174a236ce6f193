"""`Layers`: the rows of a state that rest, as a pile of layers. Few of them, however many checkpoints there were."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import NamedTuple

import pyarrow as pa

from streamwork.state.layer import Layer
from streamwork.state.merge import merge
from streamwork.world import step_back

TOGETHER = 4
"""Layers that are merged into one. Merging more at a time is less work, but lookups search more layers until then."""
BACKGROUND_ROWS = 10_000
"""Merges of at least so many rows run in the background: no checkpoint waits for them."""


class Layers:
    """The newest layer that has a row of a key decides. `alive` is the number of keys that are not gone."""

    def __init__(self, lowest: pa.Table, key: Sequence[str]) -> None:
        """`lowest` holds every key once, and none that is gone."""
        self._key = list(key)
        self._pile = [Layer(lowest, key)]
        self._merging: Merging | None = None
        self.alive: int = lowest.num_rows

    def __len__(self) -> int:
        return len(self._pile)

    def __iter__(self) -> Iterator[Layer]:
        """The newest first."""
        return reversed(self._pile)

    def add(self, rows: pa.Table, alive: int) -> None:
        """What a checkpoint has changed becomes a layer; then so many keys are alive."""
        self.alive = alive
        if rows.num_rows:
            self._pile.append(Layer(rows, self._key))
        self._merge()

    def _merge(self) -> None:
        """`TOGETHER` neighbours become one unless the lowest outweighs the others, large ones in the background."""
        if self._merging is not None and self._merging.done.done():
            at = self._pile.index(self._merging.lowest)
            self._pile[at : at + TOGETHER] = [self._merging.done.result()]
            self._merging = None
        at = len(self._pile) - TOGETHER
        # One merge at a time: a layer that is on its way into one must not get into another as well.
        while self._merging is None and at >= 0:
            some = self._pile[at : at + TOGETHER]
            if len(some[0]) > sum(map(len, some[1:])):  # where this is so everywhere, their number is a logarithm
                at -= 1
                continue
            if sum(map(len, some)) >= BACKGROUND_ROWS:
                self._merging = Merging(some[0], _background().submit(_merged, some, at == 0, self._key))
                return
            self._pile[at : at + TOGETHER] = [_merged(some, at == 0, self._key)]
            at = len(self._pile) - TOGETHER


def _merged(layers: Sequence[Layer], is_lowest: bool, key: Sequence[str]) -> Layer:
    return Layer(merge([layer.rows for layer in layers], key, keep_deleted=not is_lowest), key)


class Merging(NamedTuple):
    """`TOGETHER` layers on their way to become one: this and those behind it."""

    lowest: Layer
    done: Future[Layer]


@cache
def _background() -> ThreadPoolExecutor:
    """One thread per process. Merging layers runs in C and releases the GIL."""
    return ThreadPoolExecutor(1, "streamwork-layers", initializer=step_back)
