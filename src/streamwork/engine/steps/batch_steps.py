"""Steps of operators that work on whole columns: events are gathered into large batches, and no object is made of them.

What waits here is applied when it is enough, and before a checkpoint in any case. Where the steps behind need the order of single
events, rows are applied one by one: a batch does not identify the event that an emitted one comes from.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from streamwork.components import BatchCollector, KeyedColumns
from streamwork.components.collector import MAIN
from streamwork.components.columns import Columns, as_columns, conforming, distinct, python_values
from streamwork.components.schema import fields_of
from streamwork.engine.steps.emitted import Outputs
from streamwork.engine.steps.failure import RETURNED, BatchOfRows, error_text
from streamwork.engine.steps.keyed_steps import KeyedStep
from streamwork.engine.steps.operator_steps import InstanceStep, OperatorStep
from streamwork.engine.steps.step import Step
from streamwork.flow.batch import Batch, Given, join_outputs

ROWS = 65_536
"""Rows per batch. The fixed cost of a batch is shared by its rows."""


class BatchStep(Step):
    """Gathers, applies and retries whole batches."""

    rows = ROWS

    def __init__(self, *place: Any) -> None:
        super().__init__(*place)
        self.orders_rows = False  # True if the steps behind need the moments of what it emits
        self._waiting: list[Given] = []
        self._count = 0

    def reset(self) -> None:
        super().reset()
        self._waiting, self._count = [], 0

    def process(self, batch: Batch) -> Outputs:
        if self.orders_rows:
            return self._one_by_one(batch, [])
        self._waiting.append(batch.given)
        self._count += len(batch)
        return self.drain() if self._count >= self.rows else {}

    def drain(self) -> Outputs:
        """Apply what waits."""
        if not self._count:
            return {}
        first = self._waiting[0]
        pieces = self.blame.columns(first.kind if isinstance(first, Columns) else type(first[0]), self._waiting)
        self._waiting, self._count = [], 0
        return self._do(pieces)

    def _one_by_one(self, batch: Batch, found: list[Outputs]) -> Outputs:
        """Apply each row alone. What it emits has its moment."""
        for place in range(len(batch)):
            self._waiting, self._count = [batch.given[place : place + 1]], 1
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

    def _do(self, pieces: Sequence[Columns]) -> Outputs:
        """Apply pieces in order. If one is to be retried, it and those behind it are the rest."""
        done = _Out(self)
        for place, columns in enumerate(pieces):
            out = _Out(self)
            collector = BatchCollector(out.emit, self.times, out.emit_batch)
            try:
                if self._apply(columns, collector) is not None:
                    raise TypeError(RETURNED)
                collector.check()
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                if self._is_retried(columns, error):
                    self.rest = partial(self._do_again, pieces[place:])
                    break
                raise self.failed(BatchOfRows(columns), error, is_one=False) from error
            self.processed += len(columns)
            self.delivered += len(columns)  # a batch does not identify the events that gave something
            done.extend(out)
        return done.outputs()

    def _is_retried(self, columns: Columns, error: BaseException) -> bool:
        return (
            self.tries is not None
            and isinstance(error, Exception)
            and self.tries.failed(BatchOfRows(columns), error, error_text(error))
        )

    def _do_again(self, pieces: Sequence[Columns]) -> Outputs:
        """Retry a whole batch: for a stateless operator only what it has emitted is undone. If it succeeds, those behind it are
        the rest.
        """
        assert self.tries is not None
        if self.tries.marks.ended() and (error := self.tries.error) is not None:
            self.tries.over()
            raise self.failed(BatchOfRows(pieces[0]), error, is_one=False) from error
        self.retried += 1
        outputs = self._do(pieces[:1])
        if self.rest is not None:  # it has failed again
            self.rest = partial(self._do_again, pieces)
            return outputs
        self.tries.over()
        if len(pieces) > 1:
            self.rest = partial(self._do, pieces[1:])
        return outputs

    def _apply(self, columns: Columns, collector: BatchCollector) -> Any:
        return self.operator.apply_batch(columns.batch, collector)


class OperatorBatchStep(BatchStep, OperatorStep):
    """A stateless operator."""


class InstanceBatchStep(BatchStep, InstanceStep):
    """An operator with one record per instance."""


class KeyedBatchStep(BatchStep, KeyedStep):
    """An operator with one record per key, in columns."""

    def use_state(self) -> None:
        assert self.node.keeps is not None
        self.state.use_columns(self.node.keeps)

    def _apply(self, columns: Columns, collector: BatchCollector) -> Any:
        key, slots = self.node.key, self.state.slots
        assert key is not None and slots is not None
        codes, keys = distinct(columns.batch, key.fields)
        parts = [python_values(fields_of(columns.kind)[name], keys.column(name)) for name in key.fields]
        values, known = list(parts[0]) if len(parts) == 1 else list(zip(*parts, strict=True)), len(slots)
        places = self.state.place(values)
        if self.check_keys is not None and len(slots) > known:
            self.check_keys([values[place] for place in (places >= known).nonzero()[0].tolist()])
        slots.changed[places] = True
        return self.operator.apply_batch(columns.batch, KeyedColumns(codes, keys, slots.columns, places), collector)


def _at_moment(outputs: Outputs, batch: Batch, place: int) -> Outputs:
    assert batch.moments is not None
    moment = batch.moments[place : place + 1]
    return {channel: out.at(moment.repeat(len(out))) for channel, out in outputs.items()}


class _Out:
    """Collects what is emitted, on every channel in order."""

    def __init__(self, step: Step) -> None:
        self._node = step.node
        self._emitted: dict[str, list[Given]] = {name: [] for name in (MAIN, *step.node.channels)}

    def emit(self, event: Any, channel: str = MAIN) -> None:
        if isinstance(event, pa.RecordBatch):
            self.emit_batch(event, channel)
            return
        mine = self._emitted[channel]
        if not mine or isinstance(mine[-1], Columns):
            mine.append([])
        last = mine[-1]
        assert isinstance(last, list)
        last.append(event)

    def emit_batch(self, batch: pa.RecordBatch, channel: str = MAIN) -> None:
        mine, kind = self._emitted[channel], self._node.emits(channel)
        assert kind is not None
        mine.append(conforming(kind, batch, self._node.id))

    def extend(self, other: _Out) -> None:
        """Add what another has collected."""
        for channel, given in other._emitted.items():
            self._emitted[channel] += given

    def outputs(self) -> Outputs:
        found = {channel: self._joined(channel, given) for channel, given in self._emitted.items() if given}
        return {channel: Batch(given) for channel, given in found.items() if len(given)}

    def _joined(self, channel: str, given: list[Given]) -> Given:
        if len(given) == 1:
            return given[0]
        kind = self._node.emits(channel)
        assert kind is not None
        pieces = as_columns(kind, given, self._node.id)
        return pieces[0] if len(pieces) == 1 else [event for piece in pieces for event in piece.events]
