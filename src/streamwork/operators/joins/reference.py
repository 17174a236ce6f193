"""Stream with data that is not a stream: a static table, a database. Rows meet it when they arrive."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from streamwork.components import Event, Instance, Record
from streamwork.components.columns import distinct, rows_without_null
from streamwork.components.table_operator import Rows, StateTable, TableCollector, TableOperator
from streamwork.operators.joins import matching
from streamwork.operators.joins.columns import Array, batch_of, in_pieces, keys_of, taken
from streamwork.operators.joins.kinds import JoinKind
from streamwork.operators.joins.result import LEFT, Result, Side


class Reference(ABC):
    """Data that rows are joined with by key."""

    deterministic: bool = True
    """False if the same key may find other rows later."""

    @property
    @abstractmethod
    def side(self) -> Side:
        """Its name, type and key."""

    @abstractmethod
    def open(self) -> None:
        """Called in the process that runs the join, before the first row, perhaps several times."""

    @abstractmethod
    def find(self, keys: pa.RecordBatch) -> tuple[Array, pa.RecordBatch]:
        """The rows of distinct keys, none of which has a null: (row of `keys` of each, the rows). Their values were checked."""

    def close(self) -> None:  # noqa: B027 (most have nothing to close)
        """Called when the instance ends, except after a crash."""


class ReferenceJoin(TableOperator[Any, Any, Any]):
    """Joins rows with references on arrival. It keeps no state, and needs no exchange."""

    keeps_key = True
    checks_values = False

    def __init__(self, left: Side, references: Sequence[Reference], kind: JoinKind, result: Result) -> None:
        self._left = left
        self._references = tuple(references)
        self._kind = kind
        self._result = result
        self.deterministic = all(reference.deterministic for reference in references)

    def types(self) -> tuple[type[Event], type[Record] | None, type[Event]]:
        return self._left.event, None, self._result.event

    def setup_instance(self, instance: Instance) -> None:
        for reference in self._references:
            reference.open()

    def close(self) -> None:
        for reference in self._references:
            reference.close()

    def apply_rows(
        self, rows: Rows, state: StateTable, tables: Mapping[str, StateTable], collector: TableCollector
    ) -> None:
        codes, known = distinct(rows.batch, self._left.key)
        asked = rows_without_null(known)
        chosen: list[Array] = [np.arange(rows.batch.num_rows)]  # for each side, its rows
        batches = [rows.batch]
        for reference in self._references:
            keys = keys_of(known.take(pa.array(asked)), self._left.key, reference.side.key)
            found, batch = reference.find(keys)
            mine, theirs = matching.equal(codes[chosen[LEFT]].astype(np.int64), asked[found])
            if self._kind.keeps_left:
                mine, theirs = _with_unmatched(mine, theirs, len(chosen[LEFT]))
            chosen = [*(side[mine] for side in chosen), theirs]
            batches.append(batch)

        whole = _is_whole(chosen[LEFT], rows.batch.num_rows)

        def result(some: Array) -> pa.RecordBatch:
            columns = {}
            for name, one in self._result.fields.items():
                column = batches[one.side].column(one.field)
                if whole and one.side == LEFT:
                    columns[name] = column.slice(some[0], len(some))  # `some` are successive
                else:
                    columns[name] = taken(column, chosen[one.side][some])
            return batch_of(self._result.event, columns)

        for some, piece in in_pieces(result, len(chosen[LEFT])):
            collector.emit_batch(piece, rows=chosen[LEFT][some])


def _is_whole(rows: Array, count: int) -> bool:
    """True if these are all rows of a batch, once each and in order: then its columns need not be copied."""
    return len(rows) == count and bool((rows[1:] > rows[:-1]).all())


def _with_unmatched(mine: Array, theirs: Array, count: int) -> tuple[Array, Array]:
    """The pairs, and each of `count` rows that is in none, with -1; ordered by row."""
    alone = np.ones(count, bool)
    alone[mine] = False
    missing = np.flatnonzero(alone)
    rows = np.concatenate((mine, missing))
    order = np.argsort(rows, kind="stable")
    return rows[order], np.concatenate((theirs, np.full(len(missing), matching.NO_ROW)))[order]
