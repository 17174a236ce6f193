"""What has changed in a state since it was last asked, between two checkpoints.

`take` gives the rows that changed since the call before. It sets their marks aside, and `give_back`, which must be called before a
checkpoint, puts them back: the checkpoint has all that changed since the one before.
"""

from __future__ import annotations

import copy
from typing import Any, Protocol

import pyarrow as pa

from streamwork.components import Record
from streamwork.state.keyed import InstanceState, KeyedState, State
from streamwork.state.rows import RowFormat
from streamwork.state.table import Marks, Table


class Changes(Protocol):
    def take(self, epoch: int) -> pa.Table | None:
        """The rows that changed since the last call; None if none did."""

    def give_back(self) -> None: ...


def changes_of(rows: RowFormat, state: State) -> Changes:
    match state:
        case InstanceState():
            return InstanceChanges(rows, state)
        case KeyedState():
            return KeyedChanges(rows, state)
    return TableChanges(rows, state)


class KeyedChanges:
    def __init__(self, rows: RowFormat, state: KeyedState) -> None:
        self._rows, self._state = rows, state
        self._aside: set[Any] = set()

    def take(self, epoch: int) -> pa.Table | None:
        if not self._state.changed:
            return None
        table = self._rows.encode(self._state, epoch, everything=False)
        self._state.publish_changes()
        self._put_aside()
        self._state.changed = set()
        return table

    def give_back(self) -> None:
        self._put_aside()
        self._state.changed, self._aside = self._aside, set()

    def _put_aside(self) -> None:
        """The smaller set goes into the larger one."""
        small, large = sorted((self._aside, self._state.changed), key=len)
        large |= small
        self._aside = large


class TableChanges:
    def __init__(self, rows: RowFormat, state: Table) -> None:
        self._rows, self._state = rows, state
        self._aside: list[Marks] = []

    def take(self, epoch: int) -> pa.Table | None:
        if not self._state.is_changed:
            return None
        table = self._rows.encode(self._state, epoch, everything=False)
        self._aside = [*self._aside, self._state.set_aside()]
        return table

    def give_back(self) -> None:
        for marks in self._aside:
            self._state.put_back(marks)
        self._aside = []


class InstanceChanges:
    """The record must have been brought up to date before (`Chain.store_states`)."""

    def __init__(self, rows: RowFormat, state: InstanceState) -> None:
        self._rows, self._state = rows, state
        self._last: Record | None = state.record

    def take(self, epoch: int) -> pa.Table | None:
        if self._state.record is None or self._state.record == self._last:
            return None
        self._last = copy.deepcopy(self._state.record)
        return self._rows.encode(self._state, epoch, everything=True)

    def give_back(self) -> None:
        """The record is compared with that of the last checkpoint, not marked."""
