"""`Tail`: what the tasks of a live job have changed behind the newest checkpoint (`consistency="latest"`), as overlays.

Only the gang of the highest fence counts: what an earlier one has published is discarded with it. Files of single epochs may
vanish, because a checkpoint that has their rows is complete; what was read of them stays until that checkpoint answers.

Rows of a key come in the order of its events, so an overlay of some epochs over an earlier checkpoint gives each key the state
after some of its events, and later never after fewer.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from streamwork.query.block import Block
from streamwork.query.component import ComponentState
from streamwork.query.following import Known
from streamwork.query.pile import Pile
from streamwork.query.version import Version
from streamwork.state.tail import FOLDER, TailName, frames
from streamwork.state.view import INSTANCE
from streamwork.world import Clock, number_of

READ_EVERY = 0.01
"""Shortest time between two readings of the files, in seconds."""
Gang = tuple[int, int]
"""Fence, and number of the gang under it."""


@dataclass
class TailedVersion(Version):
    """A version with what its tail has changed. `base` is the checkpoint below."""

    base: Version | None = None
    piles: Mapping[str, tuple[Pile, ...]] = field(default_factory=dict)

    @property
    def checkpoint(self) -> int:
        assert self.base is not None
        return self.base.epoch

    def _read(self, name: str) -> ComponentState:
        assert self.base is not None
        state = self.base.component(name)
        blocks = [block for pile in self.piles.get(name, ()) for block in pile.blocks[1:]]
        return replace(state, pile=Pile(state.shape, (*state.pile.blocks, *blocks)))


@dataclass
class Followed:
    """A file, as far as it was read."""

    name: TailName
    offset: int = 0


class Tail:
    def __init__(self, job: Path, clock: Clock) -> None:
        self._clock = clock
        self._read_at = float("-inf")
        self._exchange, self._fences = job / "exchange", job / "fences"
        self._lock = threading.Lock()
        self._gang: Gang | None = None
        self._files: dict[tuple[str, int, int], Followed] = {}  # component, instance, epoch
        self._piles: dict[tuple[int, str, int], Pile] = {}  # epoch, component, instance
        self._written = 0.0
        self._reads = 0
        self._made: TailedVersion | None = None
        self.lost = 0
        """The highest epoch that was read from a gang that no longer counts."""

    def over(self, base: Version) -> Version:
        """The newest state: `base`, with what was changed behind it. `base` itself if nothing was, or if that is not known."""
        with self._lock:
            for place in [place for place in self._piles if place[0] <= base.epoch]:
                del self._piles[place]
            if not self._piles or self._gang is None or base.fence > self._gang[0]:
                return base
            if self._made is None or self._made.base is not base or self._made.sha256 != self._sha(base):
                self._made = self._version(base)
            return self._made

    def read(self, known: Mapping[str, Known]) -> None:
        """Read what was appended since the last call."""
        with self._lock:
            if self._clock.monotonic() < self._read_at + READ_EVERY:
                return
            gang = self._newest_gang()
            if gang != self._gang:
                self._discard()
                self._gang = gang
            if gang is not None:
                self._read(self._exchange / str(gang[0]) / FOLDER / str(gang[1]), known)
            self._read_at = self._clock.monotonic()

    def _newest_gang(self) -> Gang | None:
        """That of the highest fence: a driver that has claimed the job has ended the gangs of others."""
        stems = (name.removesuffix(".json") for name in _names(self._fences))
        fence = max((number for stem in stems if (number := number_of(stem)) is not None), default=0)
        gangs = (number_of(name) for name in _names(self._exchange / str(fence) / FOLDER))
        newest = max((number for number in gangs if number is not None), default=None)
        return None if newest is None else (fence, newest)

    def _discard(self) -> None:
        self.lost = max([self.lost, *(epoch for epoch, _, _ in self._piles)])
        self._files.clear()
        self._piles.clear()
        self._made = None

    def _read(self, folder: Path, known: Mapping[str, Known]) -> None:
        named = sorted(one for name in _names(folder) if (one := TailName.parse(name)) is not None)
        newest = {(one.component, one.instance, one.epoch): one for one in named}
        for gone in self._files.keys() - newest.keys():
            del self._files[gone]
        for place, name in newest.items():
            file = self._files.get(place)
            if file is None or file.name != name:
                self._files[place] = file = Followed(name)
            if name.component in known:
                self._follow(folder, file, known[name.component])

    def _follow(self, folder: Path, file: Followed, known: Known) -> None:
        name = file.name
        place = (name.epoch, name.component, name.instance)
        pile = self._piles.get(place) if file.offset else None  # a file with a higher part has everything
        begin = file.offset
        for end, frame in frames(_bytes_from(folder / str(name), begin)):
            file.offset = begin + end
            empty = known.shape.rows_schema.empty_table()
            pile = pile or Pile(known.shape, (Block(known.shape, empty),))
            pile = pile.push(_conformed(known, name.instance, frame.rows))
            self._written = max(self._written, frame.written)
        if pile is not None and file.offset > begin:
            self._piles[place] = pile
            self._reads += 1

    def _sha(self, base: Version) -> str:
        return f"{base.sha256}+{self._gang}+{self._reads}"

    def _version(self, base: Version) -> TailedVersion:
        piles: dict[str, tuple[Pile, ...]] = {}
        for place, pile in sorted(self._piles.items(), key=lambda item: item[0]):  # by epoch first
            piles[place[1]] = (*piles.get(place[1], ()), pile)
        return TailedVersion(
            max(epoch for epoch, _, _ in self._piles),
            base.fence,
            self._sha(base),
            max(self._written, base.written),
            base.files,
            base.chains,
            base.known,
            base=base,
            piles=piles,
        )


def _conformed(known: Known, instance: int, rows: pa.Table) -> pa.Table:
    if not known.shape.is_keyed:
        number = pa.array(np.full(rows.num_rows, instance, np.int64))
        rows = rows.add_column(0, known.shape.schema.field(INSTANCE), number)
    return known.shape.conform(rows, known.defaults)


def _bytes_from(path: Path, offset: int) -> bytes:
    """Empty if the file is gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        size = os.fstat(descriptor).st_size - offset
        return os.pread(descriptor, size, offset) if size > 0 else b""
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208
    except OSError:
        return []
