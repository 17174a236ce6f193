"""Steps of operators that work on whole columns: events are gathered into large batches, and no object is made of them.

What waits here is applied when it is enough, and before a checkpoint in any case. Where the steps behind need the order of single
events, an operator that names the rows that its events come from (`names_rows`) is given each batch as it arrives; another one is
given rows one by one, because its batches do not identify the event that an emitted one comes from.

A stateless operator that is `pure` is given the parts of a batch that fails, until the failing row is known; `on_error` applies to
that row.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import Any

import pyarrow as pa

from streamwork.components import BatchCollector, KeyedColumns
from streamwork.components.collector import MAIN
from streamwork.components.columns import Columns, as_columns, conforming
from streamwork.components.operator import isolates_failures
from streamwork.components.validation import check_fits
from streamwork.engine.steps.emitted import Outputs
from streamwork.engine.steps.failure import RETURNED, BatchOfRows, error_text
from streamwork.engine.steps.key_check import KeyCheck
from streamwork.engine.steps.named_rows import checked_rows
from streamwork.engine.steps.operator_steps import InstanceStep, OperatorStep
from streamwork.engine.steps.step import Step
from streamwork.flow.batch import Batch, Given, join_outputs
from streamwork.flow.lineage import Array, Lineage
from streamwork.flow.lineage import joined as joined_lineage
from streamwork.state import LayeredTable

ROWS = 65_536
"""Rows per batch. The fixed cost of a batch is shared by its rows."""


class BatchStep(Step):
    """Gathers, applies and retries whole batches."""

    rows = ROWS

    def __init__(self, *place: Any) -> None:
        super().__init__(*place)
        self.orders_rows = False  # True if the steps behind need the moments of what it emits
        self._names_rows = bool(getattr(self.node.component, "names_rows", False))
        self._divides = isolates_failures(self.node.component)
        self._waiting: list[Batch] = []
        self._count = 0

    def reset(self) -> None:
        super().reset()
        self._waiting, self._count = [], 0

    def process(self, batch: Batch) -> Outputs:
        if self.orders_rows and not self._names_rows:
            return self._one_by_one(batch, [])
        self._waiting.append(batch)
        self._count += len(batch)
        return self.drain() if self._count >= self.rows or self.orders_rows else {}

    def drain(self) -> Outputs:
        """Apply what waits."""
        if not self._count:
            return {}
        waiting, self._waiting, self._count = self._waiting, [], 0
        return self._do(deque(self._pieces(waiting)))

    def _pieces(self, batches: list[Batch]) -> Iterable[Batch]:
        """As columns, in as few pieces as the limit allows."""
        first = batches[0].given
        kind = first.kind if isinstance(first, Columns) else type(first[0])
        lineage = None
        if self._divides or self._names_rows:
            lineage = joined_lineage([(batch.lineage, len(batch)) for batch in batches])
        start = 0
        for columns in self.blame.columns(kind, [batch.given for batch in batches]):
            end = start + len(columns)
            yield Batch(columns, None if lineage is None else lineage.take(slice(start, end)))
            start = end

    def _one_by_one(self, batch: Batch, found: list[Outputs]) -> Outputs:
        """Apply each row alone. What it emits has its moment."""
        for place in range(len(batch)):
            self._waiting, self._count = [batch[place : place + 1]], 1
            found.append(_at_moment(self.drain(), batch, place))
            if self.rest is not None:
                self.rest = partial(self._row_again, self.rest, batch[place:])
                break
        return join_outputs(found)

    def _row_again(self, rest: Any, batch: Batch) -> Outputs:
        outputs = _at_moment(rest(), batch, 0)
        if self.rest is not None:
            self.rest = partial(self._row_again, self.rest, batch)
            return outputs
        return self._one_by_one(batch[1:], [outputs])

    def _do(self, pieces: deque[Batch]) -> Outputs:
        """Apply pieces in order. If one is to be retried, it and those behind it are the rest."""
        done = _Out(self)
        while pieces:
            piece = pieces[0]
            out = _Out(self, piece.lineage)
            collector = BatchCollector(out.emit, self.times, out.emit_batch)
            assert isinstance(piece.given, Columns)
            try:
                if self._apply(piece.given, collector) is not None:
                    raise TypeError(RETURNED)
                collector.check()
                if self._atomic:
                    out.check()
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                if self._is_held(pieces, error):
                    self.rest = partial(self._do_again, pieces)
                    break
                continue
            pieces.popleft()
            self.processed += len(piece)
            self.delivered += len(piece)  # a batch does not identify the events that gave something
            done.extend(out)
        return done.outputs()

    def _is_held(self, pieces: deque[Batch], error: BaseException) -> bool:
        """The first piece has failed: divide it; or apply `on_error`. True: it is to be retried."""
        piece = pieces[0]
        assert isinstance(piece.given, Columns)
        if not self._divides or not isinstance(error, Exception):
            if self._is_retried(piece.given, error):
                return True
            raise self.failed(BatchOfRows(piece.given), error, is_one=False) from error
        pieces.popleft()
        if len(piece) > 1:
            half = len(piece) // 2
            pieces.extendleft((piece[half:], piece[:half]))
            return False
        if self.is_held(piece.events[0], piece.roots[0], error):
            pieces.appendleft(piece)
            return True
        self.processed += 1
        return False

    def _is_retried(self, columns: Columns, error: BaseException) -> bool:
        return (
            self.tries is not None
            and isinstance(error, Exception)
            and self.tries.failed(BatchOfRows(columns), error, error_text(error))
        )

    def _do_again(self, pieces: deque[Batch]) -> Outputs:
        """Retry the first piece: for a stateless operator only what it has emitted is undone. If it succeeds, those behind it are
        the rest.
        """
        assert self.tries is not None
        if self.tries.marks.ended() and (error := self.tries.error) is not None:
            self.tries.over()
            first = pieces.popleft()
            assert isinstance(first.given, Columns)
            if not self._divides:
                raise self.failed(BatchOfRows(first.given), error, is_one=False) from error
            self._end_held(first.events[0], first.roots[0], error)
            return self._do(pieces)
        self.retried += 1
        outputs = self._do(deque([pieces[0]]))
        if self.rest is not None:  # it has failed again
            self.rest = partial(self._do_again, pieces)
            return outputs
        self.tries.over()
        pieces.popleft()
        if pieces:
            self.rest = partial(self._do, pieces)
        return outputs

    def _apply(self, columns: Columns, collector: BatchCollector) -> Any:
        return self.operator.apply_batch(columns.batch, collector)


class OperatorBatchStep(BatchStep, OperatorStep):
    """A stateless operator."""


class InstanceBatchStep(BatchStep, InstanceStep):
    """An operator with one record per instance."""


class KeyedBatchStep(BatchStep):
    """An operator with one record per key, in columns."""

    state: LayeredTable
    check_keys: KeyCheck | None = None  # of keys that come without an exchange, when they are first seen

    def set_up(self) -> None:
        self._guarded_set_up()

    def _apply(self, columns: Columns, collector: BatchCollector) -> Any:
        key, table = self.node.key, self.state
        assert key is not None
        own = columns.batch.select(list(key.fields))
        placed = table.place_batch(own)
        if self.check_keys is not None and len(placed.new):
            self.check_keys.check_columns(table.keys(placed.new), key)
        keys = partial(own.take, pa.array(placed.rows)) if placed.keys is None else partial(_given, placed.keys)
        state = KeyedColumns(placed.codes, keys, table.arrays, placed.places)
        try:
            returned = self.operator.apply_batch(columns.batch, state, collector)
        except Exception:
            table.withdraw(placed)
            raise
        table.forget(placed.places[state.forgotten])
        return returned

    def counters(self) -> dict[str, int]:
        return {**super().counters(), "keys": len(self.state)}


def _given(keys: pa.RecordBatch) -> pa.RecordBatch:
    return keys


def _at_moment(outputs: Outputs, batch: Batch, place: int) -> Outputs:
    assert batch.moments is not None
    moment = batch.moments[place : place + 1]
    return {channel: out.at(moment.repeat(len(out))) for channel, out in outputs.items()}


class _Out:
    """Collects what is emitted, on every channel in order."""

    def __init__(self, step: BatchStep, lineage: Lineage | None = None) -> None:
        """`lineage` is that of the rows that are applied."""
        self._node = step.node
        self._must_name = step._names_rows
        self._lineage = lineage
        self._emitted: dict[str, list[Batch]] = {name: [] for name in (MAIN, *step.node.channels)}

    def emit(self, event: Any, channel: str = MAIN) -> None:
        if isinstance(event, pa.RecordBatch):
            self.emit_batch(event, channel)
            return
        if self._must_name:
            raise TypeError("names_rows = True: use emit_batch(batch, rows=...), which names the rows")
        mine = self._emitted[channel]
        if not mine or isinstance(mine[-1].given, Columns):
            mine.append(Batch([]))
        last = mine[-1].given
        assert isinstance(last, list)
        last.append(event)

    def emit_batch(self, batch: pa.RecordBatch, channel: str = MAIN, *, rows: Array | None = None) -> None:
        mine, kind = self._emitted[channel], self._node.emits(channel)
        assert kind is not None
        lineage = None
        if rows is not None:
            rows = checked_rows("rows", rows, batch)
            if self._lineage is not None:
                lineage = self._lineage.descend(rows)
        elif self._must_name and batch.num_rows:
            raise TypeError("names_rows = True, but emit_batch has no rows=")
        mine.append(Batch(conforming(kind, batch, self._node.id), lineage))

    def check(self) -> None:
        """Refuse single events that do not fit their type."""
        for channel, emitted in self._emitted.items():
            kind = self._node.emits(channel)
            for batch in emitted:
                if isinstance(batch.given, list) and kind is not None:
                    check_fits(kind, batch.given, self._node.id)

    def extend(self, other: _Out) -> None:
        """Add what another has collected."""
        for channel, batches in other._emitted.items():
            self._emitted[channel] += batches

    def outputs(self) -> Outputs:
        found = {channel: self._joined(channel, given) for channel, given in self._emitted.items() if given}
        return {channel: batch for channel, batch in found.items() if len(batch)}

    def _joined(self, channel: str, batches: list[Batch]) -> Batch:
        if len(batches) == 1:
            return batches[0]
        kind = self._node.emits(channel)
        assert kind is not None
        pieces = as_columns(kind, [batch.given for batch in batches], self._node.id)
        given: Given = pieces[0] if len(pieces) == 1 else [event for piece in pieces for event in piece.events]
        return Batch(given, joined_lineage([(batch.lineage, len(batch)) for batch in batches]))
