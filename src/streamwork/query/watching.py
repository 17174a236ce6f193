"""Watching: the changes of a component or of one key, checkpoint by checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamwork.errors import WrongUse
from streamwork.query.answer import Change, Consistency, Selection
from streamwork.query.component import Changed, ComponentState
from streamwork.query.reader import Current, Reader
from streamwork.query.shape import DELETED, Shape

SMALL = 10_000
"""Rows of a state that is compared with the one before where its files do not say what has changed."""


class Watch:
    """What a watcher has seen. `next` gives the changes of a newer version, none twice."""

    def __init__(self, component: str, parts: tuple[Any, ...] | None, now: Current) -> None:
        self._component = component
        self._parts = parts
        self._seen = now.version
        self._state = now.version.component(component)
        self.shape = self._state.shape

    def next(self, now: Current) -> list[Change]:
        """The changes since the last call; none if the version is the same."""
        version = now.version
        if version.sha256 == self._seen.sha256:
            return []
        seen, before = self._seen, self._state
        state = version.component(self._component)
        changed = self._changed(before, state, version.epoch)
        self._seen, self._state, self.shape = version, state, state.shape
        if changed is None or version.epoch <= seen.epoch or version.fence < seen.fence:
            return [_reset(version.epoch, state.shape)]
        found = (_change(state.shape, one, self._parts) for one in changed if one.epoch > seen.epoch)
        return [change for change in found if len(change.rows) or len(change.gone)]

    def _changed(self, before: ComponentState, state: ComponentState, epoch: int) -> list[Changed] | None:
        """None: that is not known."""
        if state.pile is before.pile or state.chains == before.chains:
            return []
        if state.shape != before.shape:
            return None
        if state.shape.is_keyed and state.since <= self._seen.epoch:
            return list(state.history)
        return _compared(before, state, epoch)


def _compared(before: ComponentState, state: ComponentState, epoch: int) -> list[Changed] | None:
    """What differs between two small states."""
    if max(before.pile.count(), state.pile.count()) > SMALL:
        return None
    shape = state.shape
    old, new = _rows(before), _rows(state)
    changed = [row for key, row in new.items() if old.get(key) != row]
    gone = [{**row, DELETED: True} for key, row in old.items() if key not in new]
    table = pa.Table.from_pylist(changed + gone, shape.rows_schema)
    return [Changed(epoch, table)]


def _rows(state: ComponentState) -> dict[Any, dict[str, Any]]:
    keys = state.shape.key
    rows = [{**row, DELETED: False} for row in state.pile.table().to_pylist()]
    return {tuple(row[name] for name in keys): row for row in rows}


def _change(shape: Shape, changed: Changed, parts: tuple[Any, ...] | None) -> Change:
    rows = changed.rows
    if parts is not None:
        mask = None
        for name, part in zip(shape.key, parts, strict=True):
            kind = rows.schema.field(name).type
            same = rows.column(name).is_null() if part is None else pc.equal(rows.column(name), pa.scalar(part, kind))
            mask = same if mask is None else pc.and_(mask, same)
        rows = rows.filter(pc.fill_null(mask, False))
    gone = rows.column(DELETED)
    return Change(
        changed.epoch,
        shape,
        rows.filter(pc.invert(gone)).select(shape.schema.names),
        rows.filter(gone).select(list(shape.key)),
    )


def _reset(epoch: int, shape: Shape) -> Change:
    return Change(epoch, shape, shape.schema.empty_table(), shape.key_schema.empty_table(), regressed=True)


def watched(selection: Selection) -> Selection:
    """Refuses what changes without checkpoints (SW-QUERY-OPTION)."""
    if selection.consistency is Consistency.LATEST:
        raise WrongUse(
            "SW-QUERY-OPTION",
            "changes are watched checkpoint by checkpoint, and consistency=latest lies behind them",
            "watch with consistency=committed or prepared",
        )
    return selection


def watch(reader: Reader, component: str, parts: tuple[Any, ...] | None, selection: Selection) -> Iterator[Change]:
    """Changes from now on. Waits between readings of the folder."""
    seen = Watch(component, parts, reader.current(watched(selection)))
    while True:
        yield from seen.next(reader.current(selection))
        reader.clock.sleep(reader.follow_every)
