"""Steps of operators that are given one event after another, and of user-written sources."""

from __future__ import annotations

import copy
from typing import Any

from streamwork.components import EventCollector, Slice, StatefulSource
from streamwork.components.field_types import show
from streamwork.components.validation import check_fits, fitting
from streamwork.engine.steps.emitted import Emitted, Outputs
from streamwork.engine.steps.failure import RETURNED, error_text
from streamwork.engine.steps.step import Step, own_copy
from streamwork.errors import StreamworkError
from streamwork.flow.batch import Batch
from streamwork.state import InstanceState

UNKNOWN = object()


class OperatorStep(Step):
    """A stateless operator."""

    def set_up(self) -> None:
        self._guarded_set_up()

    def process(self, batch: Batch) -> Outputs:
        emitted = self._emitted()
        collector = EventCollector(emitted.emit, self.times)
        collector.tracking = self.acks
        apply, event = self.operator.apply, None
        try:
            if self._atomic:
                self._process_atomically(batch, emitted, collector)
            else:
                count, so_far, delivered = emitted.count, 0, 0
                for event in emitted.applying(batch.events) if self.keeps_lineage else batch.events:
                    if apply(event, collector) is not None:
                        raise TypeError(RETURNED)
                    if collector.failure is not None:
                        collector.check()
                    if (now := count()) != so_far:
                        delivered, so_far = delivered + 1, now
                self.delivered += delivered
        except (KeyboardInterrupt, StreamworkError):
            raise
        except BaseException as error:
            raise self.failed(event, error) from error
        self.processed += len(batch)
        return emitted.outputs(batch.lineage)

    def _process_atomically(self, batch: Batch, emitted: Emitted, collector: EventCollector) -> None:
        apply = self.operator.apply

        def one(event: Any) -> None:
            collector.failure = None
            if apply(event, collector) is not None:
                raise TypeError(RETURNED)
            collector.check()

        self._each(batch, emitted, one, lambda: None)


class InstanceStep(OperatorStep):
    """An operator with one record per instance."""

    state: InstanceState
    _given: Any = None  # the record that the operator object stands for
    _held: Any = UNKNOWN  # while an event is to be retried: the record that a fresh object is set up from first

    @property
    def is_stale(self) -> bool:
        """True if the state has changed without this object: another process has computed epochs in between."""
        return self.state.record is not self._given

    def set_up(self) -> None:
        self._guarded_set_up(copy.deepcopy(self.state.record))
        self._given = self.state.record

    def _process_atomically(self, batch: Batch, emitted: Emitted, collector: EventCollector) -> None:
        """The record before an event is kept until the event is done; after a failure a fresh object is set up from it."""
        before: Any = None
        after: Any = UNKNOWN

        def one(event: Any) -> None:
            nonlocal before, after
            if self._held is not UNKNOWN:  # setting it up is part of the try: it may need what is down
                before, operator = self._held, own_copy(self.node)
                operator.setup_instance(self.instance, copy.deepcopy(before))
                self.operator = operator
            else:
                before = self._record() if after is UNKNOWN else after
            after = UNKNOWN
            collector.failure = None
            if self.operator.apply(event, collector) is not None:
                raise TypeError(RETURNED)
            collector.check()
            after = self._record()
            self._held = UNKNOWN

        def undo() -> None:
            nonlocal after
            after = self._held = UNKNOWN
            self.operator = own_copy(self.node)
            self._guarded_set_up(before)

        self._each(batch, emitted, one, undo)
        if self.rest is not None:
            self._held = before

    def _end_held(self, event: Any, root: int, error: Exception) -> None:
        super()._end_held(event, root, error)
        before, self._held = self._held, UNKNOWN
        self.operator = own_copy(self.node)
        self._guarded_set_up(before)

    def store_state(self) -> None:
        """Bring the state up to date with the object."""
        self.state.record = self._given = self._record()

    def _record(self) -> Any:
        """The record that the object stands for now, checked; None if it has none."""
        try:
            record = self.operator.get_state()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise self.failed("get_state", error, is_one=False) from error
        if record is not None:
            assert self.node.keeps is not None
            check_fits(self.node.keeps, [record], self.node.id)
        return copy.deepcopy(record)


class SourceStep(InstanceStep):
    """A user-written source: it is polled."""

    def set_up(self) -> None:
        if isinstance(self.operator, StatefulSource):
            super().set_up()
        else:
            self._guarded_set_up()

    def poll(self) -> Slice:
        events: list[Any] = []
        try:
            collector = EventCollector(events.append, self.times)
            self.operator.get_events(collector)
            collector.check()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise self.failed("get_events", error, is_one=False) from error
        return self._fitting(events)

    def _fitting(self, events: list[Any]) -> Slice:
        """The events that are of the declared type; the source's `on_error` applies to the others."""
        assert self.node.gives is not None
        if all(map(fitting(self.node.gives), events)):
            return Slice(events, 0)
        good: list[Any] = []
        offsets: list[int] = []
        found = Slice(good, offsets)
        for place, event in enumerate(events):
            try:
                check_fits(self.node.gives, [event], self.node.id)
                good.append(event)
                offsets.append(place)
            except StreamworkError as error:
                if self.operator.on_error in (None, "fail"):
                    error.component = self.node.id
                    raise
                found.leave_out(self.operator.on_error, show(event), error_text(error))
        return found
