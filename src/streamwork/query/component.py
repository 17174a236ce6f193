"""`ComponentState`: the rows of one component at one checkpoint, and how they become those of a later one.

1  the lowest block of the pile is made of the newest snapshot of every instance (`query.cache`)
2  the deltas behind them are pushed onto it, epoch by epoch
3  a later checkpoint: only the deltas that are new are read and pushed, as long as every chain goes on from where it was
4  the pile is rebuilt when a chain does not (a fall back, a rescale), or when the deltas outweigh the lowest block and there
   are newer snapshots
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from streamwork.components import parquet_file
from streamwork.errors import Refused
from streamwork.query.block import Block
from streamwork.query.cache import Cache
from streamwork.query.pile import Pile, marked
from streamwork.query.shape import DELETED, Shape
from streamwork.state import FileChain, epoch_of, is_snapshot, ways
from streamwork.state.files import STATE_FILE
from streamwork.state.view import INSTANCE
from streamwork.world import Disk, FileRef

Chains = Mapping[str, FileChain]
HISTORY_ROWS, HISTORY_EPOCHS = 200_000, 64
"""Changes that are kept in memory for watchers."""
FEW_ROWS = 50_000
"""Deltas of so many rows in all are never worth a new lowest block."""


@dataclass(frozen=True)
class Files:
    """Where the state files of a job, or of a savepoint, are read."""

    disk: Disk
    folder: Path
    cache: Cache


@dataclass(frozen=True)
class Changed:
    """What one epoch changed: rows of keys, and which of them are gone (`__deleted`)."""

    epoch: int
    rows: pa.Table


@dataclass(frozen=True)
class ComponentState:
    shape: Shape
    defaults: Mapping[str, pa.Array]
    pile: Pile
    chains: Chains
    base: frozenset[str]  # the snapshots that the lowest block is made of
    since: int
    history: tuple[Changed, ...] = ()
    """What the epochs behind `since` have changed, for watchers."""

    @classmethod
    def read(
        cls, files: Files, shape: Shape, defaults: Mapping[str, pa.Array], chains: Chains, epoch: int
    ) -> ComponentState:
        """1, 2. From files alone. Refuses a chain that cannot be read on any way (SW-STATE-DAMAGED)."""
        if not shape.is_keyed:
            return _of_instances(files, shape, defaults, chains, epoch)
        longest = max((len(list(ways(chain))) for chain in chains.values()), default=1)
        for attempt in range(longest):
            chosen = [_way(chain, attempt) for _, chain in sorted(chains.items())]
            snapshots = [ref for way in chosen for ref in way if is_snapshot(ref)]
            deltas = [ref for way in chosen for ref in way if not is_snapshot(ref)]
            try:
                block = files.cache.block(files.disk, files.folder, shape, defaults, snapshots)
                pile = Pile(shape, (block,))
                for changed in _by_epoch(files, shape, defaults, deltas):
                    pile = pile.push(changed.rows)
            except Refused as refused:
                if refused.code != STATE_FILE.code or attempt == longest - 1:
                    raise
                continue
            return cls(shape, defaults, pile, chains, frozenset(ref.path for ref in snapshots), epoch)
        raise AssertionError("a chain has at least one way")

    def advanced(self, files: Files, chains: Chains, epoch: int) -> ComponentState:
        """3, 4. The state at a later checkpoint. Refuses like `read`."""
        if chains == self.chains:
            return self
        new = self._behind(chains)
        if new is None:
            return ComponentState.read(files, self.shape, self.defaults, chains, epoch)
        changed = _by_epoch(files, self.shape, self.defaults, new)
        pile = self.pile
        for one in changed:
            pile = pile.push(one.rows)
        since, history = _recent(self.since, (*self.history, *changed))
        return replace(self, pile=pile, chains=chains, since=since, history=history)

    def rebuilt(self, files: Files, epoch: int) -> ComponentState:
        """The same state with fewer blocks, of newer snapshots."""
        chosen = [_way(chain, 0) for _, chain in sorted(self.chains.items())]
        snapshots = [ref for way in chosen for ref in way if is_snapshot(ref)]
        files.cache.prepare(files.folder, self.shape, self.defaults, snapshots)
        made = ComponentState.read(files, self.shape, self.defaults, self.chains, epoch)
        return replace(made, since=self.since, history=self.history)

    @property
    def outgrown(self) -> bool:
        """True if a pile that is rebuilt would be much better: it can then be made of newer snapshots."""
        newest = {next(iter(ways(chain)))[0].path for chain in self.chains.values() if chain}
        lowest = len(self.pile.blocks[0])
        return (
            self.shape.is_keyed
            and self.pile.overlay > max(FEW_ROWS, lowest // 2)
            and any(path.endswith(".snapshot.parquet") and path not in self.base for path in newest)
        )

    def _behind(self, chains: Chains) -> list[FileRef] | None:
        """The deltas of `chains` that this state does not have; None if it is not a beginning of theirs."""
        if not self.shape.is_keyed or not set(self.chains) <= set(chains):
            return None
        new: list[FileRef] = []
        for instance, chain in chains.items():
            known = self.chains.get(instance, ())
            deltas = [ref for ref in chain if not is_snapshot(ref)]
            mine = [ref for ref in known if not is_snapshot(ref)]
            if not mine:
                if known:  # of snapshots only, as in savepoints
                    return None
                if len(deltas) < len(chain):  # the deltas before the snapshot are not all there
                    return None
                new += deltas
            elif mine[-1] in deltas:
                new += deltas[deltas.index(mine[-1]) + 1 :]
            else:
                return None
        return new


def _way(chain: FileChain, number: int) -> FileChain:
    """A way to read a chain; the last one if there are fewer."""
    found = list(ways(chain))
    return found[min(number, len(found) - 1)] if found else ()


def _by_epoch(files: Files, shape: Shape, defaults: Mapping[str, pa.Array], deltas: Sequence[FileRef]) -> list[Changed]:
    epochs: dict[int, list[pa.Table]] = {}
    for ref in sorted(deltas, key=epoch_of):
        table = parquet_file.from_bytes(ref.read(files.disk, files.folder, STATE_FILE))
        epochs.setdefault(epoch_of(ref), []).append(shape.conform(table, defaults))
    return [Changed(epoch, pa.concat_tables(tables)) for epoch, tables in epochs.items()]


def _recent(since: int, history: tuple[Changed, ...]) -> tuple[int, tuple[Changed, ...]]:
    """The newest changes, as far as they are few."""
    rows, kept = 0, len(history)
    while kept and rows + len(history[kept - 1].rows) <= HISTORY_ROWS and len(history) - kept < HISTORY_EPOCHS:
        kept -= 1
        rows += len(history[kept].rows)
    return (history[kept - 1].epoch if kept else since), history[kept:]


def _of_instances(
    files: Files, shape: Shape, defaults: Mapping[str, pa.Array], chains: Chains, epoch: int
) -> ComponentState:
    """One row for each instance: the last one of its files."""
    rows = Shape(shape.component, (), pa.schema([f for f in shape.schema if f.name != INSTANCE]), shape.name)
    tables = [shape.rows_schema.empty_table().select([*shape.schema.names])]
    for instance, chain in sorted(chains.items()):
        trouble: Refused | None = None
        for way in ways(chain):
            try:
                found = parquet_file.from_bytes(way[-1].read(files.disk, files.folder, STATE_FILE))
            except Refused as refused:
                trouble = trouble or refused
                continue
            last = rows.conform(found.slice(found.num_rows - 1), defaults).drop_columns([DELETED])
            number = pa.array(np.full(1, int(instance), np.int64))
            tables.append(last.add_column(0, shape.schema.field(INSTANCE), number))
            break
        else:
            if trouble is not None:
                raise trouble
    block = Block(shape, marked(shape, pa.concat_tables(tables)))
    return ComponentState(shape, defaults, Pile(shape, (block,)), chains, frozenset(), epoch)
