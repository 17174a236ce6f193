"""The steps of operators and of sources that people write."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import datetime
from functools import partial
from itertools import count, repeat
from typing import Any, cast

from streamwork.components import EventCollector, KeyedCollector, Slice, StatefulSource, TimerClock
from streamwork.components.schema import fields_of, show
from streamwork.components.validation import check_fits, fitting
from streamwork.engine.steps.key_check import KeyCheck
from streamwork.engine.steps.step import (
    RETURNED,
    Events,
    Outputs,
    Step,
    applying_failed,
    at,
    counter,
    cut,
    own_copy,
    several,
    told,
)
from streamwork.errors import StreamworkError
from streamwork.flow.lineage import UNMARKED, UNTRACKED, Tracked, marks_of
from streamwork.job import Node
from streamwork.state import InstanceState, KeyedState

UNKNOWN = object()


class OperatorStep(Step):
    """A stateless operator."""

    def set_up(self) -> None:
        self._guarded_set_up()

    def process(self, events: Events) -> Outputs:
        outputs = self._outputs()
        collector = EventCollector(self._emit(outputs), self.times)
        collector.tracking = self.following
        apply, event = self.operator.apply, None
        try:
            if self._atomic:
                self._process_atomically(events, outputs, collector)
            else:
                given, so_far, delivered = counter(outputs), 0, 0
                for event in self._followed(events, outputs):
                    if apply(event, collector) is not None:
                        raise TypeError(RETURNED)
                    if collector.failure is not None:
                        collector.check()
                    if (now := given()) != so_far:
                        delivered, so_far = delivered + 1, now
                self.delivered += delivered
        except (KeyboardInterrupt, StreamworkError):
            raise
        except BaseException as error:
            raise applying_failed(self, event, error) from error
        self.processed += len(events)
        return outputs

    def _process_atomically(self, events: Events, outputs: dict[str, Events], collector: EventCollector) -> None:
        apply = self.operator.apply

        def one(place: int, event: Any) -> None:
            collector.failure = None
            if apply(event, collector) is not None:
                raise TypeError(RETURNED)
            collector.check()

        self._each(events, outputs, one, lambda: None)


class InstanceStep(OperatorStep):
    """An operator with one record per instance."""

    state: InstanceState
    _given: Any = None  # the record that the operator object stands for
    _held: Any = UNKNOWN  # while an event waits to be tried again: the record that a fresh object is set up from first

    @property
    def is_stale(self) -> bool:
        """True if the state has moved on without this object: another process has computed epochs in between."""
        return self.state.record is not self._given

    def set_up(self) -> None:
        self._guarded_set_up(copy.deepcopy(self.state.record))
        self._given = self.state.record

    def _process_atomically(self, events: Events, outputs: dict[str, Events], collector: EventCollector) -> None:
        """What the object was before is kept until an event is done; after a failure a fresh object is set up from it."""
        before: Any = None
        after: Any = UNKNOWN

        def one(place: int, event: Any) -> None:
            nonlocal before, after
            if self._held is not UNKNOWN:  # setting it up is part of the try: it may need what is down
                before, operator = self._held, own_copy(self.node)
                operator.setup_instance(self.instance, copy.deepcopy(before))
                self.operator = operator
            else:
                before = self._taken() if after is UNKNOWN else after
            after = UNKNOWN
            collector.failure = None
            if self.operator.apply(event, collector) is not None:
                raise TypeError(RETURNED)
            collector.check()
            after = self._taken()
            self._held = UNKNOWN

        def undo() -> None:
            nonlocal after
            after = self._held = UNKNOWN
            self.operator = own_copy(self.node)
            self._guarded_set_up(before)

        self._each(events, outputs, one, undo)
        if self.rest is not None:
            self._held = before

    def _end_held(self, event: Any, root: int, error: Exception) -> None:
        super()._end_held(event, root, error)
        before, self._held = self._held, UNKNOWN
        self.operator = own_copy(self.node)
        self._guarded_set_up(before)

    def take_state(self) -> None:
        self.state.record = self._given = self._taken()

    def _taken(self) -> Any:
        """The record that the object stands for now, checked. None says that it has none."""
        try:
            record = self.operator.get_state()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise applying_failed(self, "get_state", error, is_one=False) from error
        if record is not None:
            assert self.node.keeps is not None
            check_fits(self.node.keeps, [record], self.node.id)
        return copy.deepcopy(record)


class SourceStep(InstanceStep):
    """A source that people wrote: it can only be asked what is there."""

    def set_up(self) -> None:
        if isinstance(self.operator, StatefulSource):
            super().set_up()
        else:
            self._guarded_set_up()

    def poll(self) -> Slice:
        events: Events = []
        try:
            collector = EventCollector(events.append, self.times)
            self.operator.get_events(collector)
            collector.check()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise applying_failed(self, "get_events", error, is_one=False) from error
        return self._fitting(events)

    def _fitting(self, events: Events) -> Slice:
        """What is no event of the declared type is left out, as the source's `on_error` says."""
        assert self.node.gives is not None
        if all(map(fitting(self.node.gives), events)):
            return Slice(events, 0)
        good: Events = []
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
                found.leave_out(self.operator.on_error, show(event), told(error))
        return found


class KeyedStep(Step):
    """An operator with one record per key."""

    state: KeyedState
    check_keys: KeyCheck | None = None  # of keys that come without an exchange, when they are first seen
    _timer: tuple[Any, datetime] | None = None  # that waits to be tried again

    def __init__(self, node: Node, instance: int, tracked: bool = False) -> None:
        super().__init__(node, instance, tracked)
        assert node.keeps is not None
        flat = not any(field.arrow.num_fields for field in fields_of(node.keeps).values())
        kept: Any = node.keeps
        self._copy: Callable[[Any], Any] = kept.__copy__ if flat else copy.deepcopy  # what copy.copy would call

    def set_up(self) -> None:
        self._guarded_set_up()

    def use_state(self) -> None:
        """The state has been given: it may come from a life in which the operator worked on columns."""
        self.state.use_records()

    def process(self, events: Events) -> Outputs:
        assert self.node.key is not None and self.node.keeps is not None
        outputs = self._outputs()
        collector = KeyedCollector(self._emit(outputs), self.times)
        collector.tracking = self.following
        event: Any = events[0]
        try:
            keys = self.node.key.values(events)
            if self.state.layers:
                self.state.warm(keys)
            if self._atomic:
                self._process_atomically(events, keys, outputs, collector)
            else:
                apply, new_record, records = self.operator.apply, self.node.keeps, self.state.records
                given, so_far, delivered = counter(outputs), 0, 0
                # `map` is lazy: a record is looked up when the event before it has been applied.
                given_events = self._followed(events, outputs)
                for event, key, record in zip(given_events, keys, map(records.get, keys), strict=True):
                    if record is None:
                        if self.check_keys is not None:
                            self.check_keys([key])
                        record = records[key] = new_record()
                    collector.key = key
                    if apply(event, record, collector) is not None:
                        raise TypeError(RETURNED)
                    if (now := given()) != so_far:
                        delivered, so_far = delivered + 1, now
                    if collector.asked:
                        self._settle(collector)
                self.delivered += delivered
                self.state.changed.update(keys)
        except (KeyboardInterrupt, StreamworkError):
            raise
        except BaseException as error:
            self.blame.check(events)  # the key of one that does not fit may be no key at all
            raise applying_failed(self, event, error) from error
        self.processed += len(events)
        return outputs

    def _process_atomically(
        self, events: Events, keys: list[Any], outputs: dict[str, Events], collector: KeyedCollector
    ) -> None:
        """The operator gets a copy of the record, which is kept on return. `_each`, written out: this is a hot loop."""
        assert self.node.keeps is not None
        apply, new_record, copied, following = self.operator.apply, self.node.keeps, self._copy, self.following
        records, changed, emitted = self.state.records, self.state.changed, list(outputs.values())
        marks = marks_of(events) if self.marked else repeat(UNMARKED)
        given, so_far, delivered, ends = counter(outputs), 0, 0, several(emitted)
        check, fits, newest, keeps_fitting = *self._check(outputs), emitted[0], fitting(new_record)
        for event, key, record, mark, place in zip(events, keys, map(records.get, keys), marks, count(), strict=False):
            if following is not None:
                following.begin(mark.root)
            if record is None and self.check_keys is not None:
                self.check_keys([key])
            mine = new_record() if record is None else copied(record)
            collector.key = key
            try:
                if apply(event, mine, collector) is not None:
                    raise TypeError(RETURNED)
                if collector.asked:
                    collector.check()
                if (now := given()) != so_far and not (now == so_far + 1 and fits(at(newest, -1))):
                    check(ends or [so_far])
                if not keeps_fitting(mine):
                    check_fits(new_record, [mine], self.node.id)
            except Exception as error:
                cut(emitted, ends or [so_far])
                collector.forget_wishes()
                if self.give_up(event, mark.root, error):
                    self.hold(events, place)
                    break
                continue
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                raise applying_failed(self, event, error) from error
            records[key] = mine
            changed.add(key)
            if now != so_far:
                delivered, so_far = delivered + 1, now
                if ends:
                    ends = [*map(len, emitted)]
                if self.marked:
                    for out in emitted:
                        cast(Tracked, out).came_from(mark)
            if collector.asked:
                self._settle(collector)
        self.delivered += delivered

    def fire(self, clock: TimerClock, now: datetime) -> Outputs:
        """Call `on_timer` for every timer of that clock that is due. Each is counted like an event."""
        outputs = self._outputs()
        collector = KeyedCollector(self._emit(outputs), self.times)
        assert self.node.keeps is not None
        collector.tracking = self.following  # it may acknowledge what it has gathered
        check, _ = self._check(outputs)
        while (due := self._timer or self.state.pop_due(clock, now)) is not None:
            key, at = due
            if self.following is not None:
                self.following.begin(UNTRACKED)
            record = self.state.records.get(key)
            mine = self.node.keeps() if record is None else self._copy(record) if self._atomic else record
            collector.key = key
            ends = [*map(len, outputs.values())]
            what = f"the timer of {key!r} at {at.isoformat()}"
            self.processed += 1
            try:
                if self._timer is not None:
                    self._try_timer_again()
                self.operator.on_timer(key, at, mine, collector)
                collector.check()
                check(ends)
                check_fits(self.node.keeps, [mine], self.node.id)
            except Exception as error:
                cut(list(outputs.values()), ends)
                collector.forget_wishes()
                if self.give_up(what, UNTRACKED, error):
                    self._timer, self.rest = due, partial(self.fire, clock, now)
                    self.processed -= 1
                    break
                self._timer = None
                continue
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                raise applying_failed(self, what, error) from error
            if self._timer is not None and self.tries is not None:
                self._timer = None
                self.tries.over()
            self.delivered += ends != [*map(len, outputs.values())]
            self.state.records[key] = mine
            if collector.asked:
                self._settle(collector)
        if self.marked:
            for out in outputs.values():
                cast(Tracked, out).came_from(UNMARKED)
        return outputs

    def _try_timer_again(self) -> None:
        """Raises what the last try has raised if the driver asks for the end of all waits."""
        assert self.tries is not None and self.tries.error is not None
        if self.tries.marks.ended():
            raise self.tries.error
        self.retried += 1

    def _settle(self, collector: KeyedCollector) -> None:
        """Carry out what the operator asked for in one call: to forget its key, or to be woken."""
        collector.check()
        key = collector.key
        if collector.cleared:
            self.state.forget(key)
        for timer in collector.timers:
            self.state.set_timer(key, timer)
            if key not in self.state.records:
                assert self.node.keeps is not None
                self.state.records[key] = self.node.keeps()
        self.state.changed.add(key)
        collector.forget_wishes()

    def counters(self) -> dict[str, int]:
        return {**super().counters(), "keys": len(self.state)}
