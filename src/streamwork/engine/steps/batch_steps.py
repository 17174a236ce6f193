"""Steps of operators that work on whole columns: events are gathered into large batches, and no object is made of them.

What waits here is applied when it is enough, and before a checkpoint in any case. Where the chain feeds single events, because
something may come between two of them, nothing waits.
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
from streamwork.engine.steps.operator_steps import InstanceStep, KeyedStep, OperatorStep
from streamwork.engine.steps.step import RETURNED, Given, Outputs, Step, applying_failed, told
from streamwork.wording import plural

ROWS = 65_536
"""Rows to a batch. Whatever a batch costs that does not depend on its rows is shared by them."""


class BatchStep(Step):
    """What they share."""

    takes_columns = True
    rows = ROWS

    def __init__(self, *place: Any) -> None:
        super().__init__(*place)
        self._waiting: list[Given] = []
        self._count = 0

    def reset(self) -> None:
        super().reset()
        self._waiting, self._count = [], 0

    def process(self, events: Given) -> Outputs:
        self._waiting.append(events)
        self._count += len(events)
        return self.drain() if self._count >= self.rows else {}

    def drain(self) -> Outputs:
        """Apply what waits."""
        if not self._count:
            return {}
        first = self._waiting[0]
        pieces = self.blame.columns(first.kind if isinstance(first, Columns) else type(first[0]), self._waiting)
        self._waiting, self._count = [], 0
        return self._do(pieces)

    def _do(self, pieces: Sequence[Columns]) -> Outputs:
        """Apply them in order; where one is to be tried again, it and those behind it are what is left to do."""
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
                if self._is_to_be_tried_again(columns, error):
                    self.rest = partial(self._do_again, pieces[place:])
                    break
                raise applying_failed(self, _Batch(columns), error, is_one=False) from error
            self.processed += len(columns)
            self.delivered += len(columns)  # of a batch nobody can tell which of its events gave what
            done.take(out)
        return done.outputs()

    def _is_to_be_tried_again(self, columns: Columns, error: BaseException) -> bool:
        return (
            self.tries is not None
            and isinstance(error, Exception)
            and self.tries.failed(_Batch(columns), error, told(error))
        )

    def _do_again(self, pieces: Sequence[Columns]) -> Outputs:
        """Try a whole batch again: of a stateless operator nothing else has to be taken back than what it has emitted. If it is
        done, those behind it are what is left to do.
        """
        assert self.tries is not None
        if self.tries.marks.ended() and (error := self.tries.error) is not None:
            self.tries.over()
            raise applying_failed(self, _Batch(pieces[0]), error, is_one=False) from error
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
    """An operator with one record per key, which it has as columns."""

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


class _Out:
    """Takes what is emitted, on every channel in order."""

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

    def take(self, other: _Out) -> None:
        """What another has, behind what is here."""
        for channel, given in other._emitted.items():
            self._emitted[channel] += given

    def outputs(self) -> Outputs:
        return {channel: self._joined(channel, given) for channel, given in self._emitted.items() if given}

    def _joined(self, channel: str, given: list[Given]) -> Given:
        if len(given) == 1:
            return given[0]
        kind = self._node.emits(channel)
        assert kind is not None
        pieces = as_columns(kind, given, self._node.id)
        return pieces[0] if len(pieces) == 1 else [event for piece in pieces for event in piece.events]


class _Batch:
    """Stands in an error for the events of a batch."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns

    def __repr__(self) -> str:
        return (
            f"a batch of {plural(len(self._columns), 'event')}, the first of which is {self._columns[:1].events[0]!r}"
        )
