"""The steps of a chain: each takes a list of events and gives the lists that go on, by channel.

A step works through a whole list before the next step sees any of it. Along a line this is the same as going event by
event, since each step meets the same events in the same order; where it is not, the chain feeds single events.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from streamwork.components import EventCollector, KeyedCollector, StatefulSource, TimerClock
from streamwork.components.collector import MAIN
from streamwork.components.columns import Columns, check_types
from streamwork.components.schema import fields_of, holds_mutable, show
from streamwork.engine.staging import Staging
from streamwork.errors import JobFailed, StreamworkError
from streamwork.job import Node, NodeKind
from streamwork.state import InstanceState, KeyedState

RETURNED = "apply returned a value, which nobody gets: send it with collector.emit(event)"
Events = list[Any]
Given = Events | Columns
Outputs = Mapping[str, Given]


class Step(ABC):
    """One component at work in one instance. It has a copy of the operator of its own."""

    takes_columns = False
    """True if `process` is to be given columns as they are, and not the events in them."""

    def __init__(self, node: Node, instance: int) -> None:
        self.node = node
        self.instance = instance
        self.operator = _own_copy(node)
        self.processed = self.delivered = self.dropped = 0
        self._copies = any(holds_mutable(kind) for kind in (node.gives, *node.channels.values()) if kind is not None)
        # Where the job goes on after an error, an event is applied wholly or not at all.
        self._atomic = node.on_error != "fail"

    @abstractmethod
    def process(self, events: Any) -> Outputs: ...

    @abstractmethod
    def set_up(self) -> None:
        """Called before the first event, when the state has been given."""

    def counters(self) -> dict[str, int]:
        """Every event that was processed was delivered (it gave something), ended early (it gave nothing), or was dropped."""
        return {
            "processed": self.processed,
            "delivered": self.delivered,
            "ended_early": self.processed - self.delivered - self.dropped,
            "dropped": self.dropped,
        }

    def count(self, processed: int, left_out: int) -> None:
        """Of a filter that was applied elsewhere: what it has seen, and what it has not let through."""
        self.processed += processed
        self.delivered += processed - left_out

    def reset(self) -> None:
        self.processed = self.delivered = self.dropped = 0

    def _emit(self, outputs: dict[str, Events]) -> Callable[..., None]:
        """The fastest function that takes an event to where it goes."""
        if self._copies:  # an event may hold a list of the state's: what was emitted must not change with it
            return _emit({name: _Copies(events) for name, events in outputs.items()})
        return _emit(outputs)

    def _undo(self, emitted: list[Events], mark: list[int]) -> None:
        """Drop an event: take back what it has emitted since the lists had these lengths."""
        for events, length in zip(emitted, mark, strict=True):
            del events[length:]
        self.dropped += 1

    def _outputs(self) -> dict[str, Events]:
        return {MAIN: [], **{name: [] for name in self.node.channels}}

    def _guarded_set_up(self, *state: Any) -> None:
        try:
            self.operator.setup_instance(self.instance, *state)
        except Exception as error:
            raise JobFailed(
                "SW-OPERATOR-SETUP",
                f"{self.node.id} (instance {self.instance}) could not be set up: {type(error).__name__}: {error}",
                f"mend setup_instance of {self.node.title}, or what it connects to, and start again",
            ) from error


class OperatorStep(Step):
    """A stateless operator."""

    def set_up(self) -> None:
        self._guarded_set_up()

    def process(self, events: Events) -> Outputs:
        outputs = self._outputs()
        collector = EventCollector(self._emit(outputs))
        apply, event = self.operator.apply, None
        given, so_far, delivered = _counter(outputs), 0, 0
        try:
            if self._atomic:
                emitted = list(outputs.values())
                for event in events:
                    mark = [*map(len, emitted)]
                    try:
                        apply(event, collector)
                    except Exception:
                        self._undo(emitted, mark)
                    if (now := given()) != so_far:
                        delivered, so_far = delivered + 1, now
            else:
                for event in events:
                    if apply(event, collector) is not None:
                        raise TypeError(RETURNED)
                    if (now := given()) != so_far:
                        delivered, so_far = delivered + 1, now
        except (Exception, SystemExit) as error:
            raise applying_failed(self, event, error) from error
        self.processed += len(events)
        self.delivered += delivered
        return outputs


class InstanceStep(OperatorStep):
    """An operator with one record per instance."""

    state: InstanceState
    _given: Any = None  # the record that the operator object stands for

    @property
    def is_stale(self) -> bool:
        """True if the state has moved on without this object: another process has computed epochs in between."""
        return self.state.record is not self._given

    def set_up(self) -> None:
        self._guarded_set_up(copy.deepcopy(self.state.record))
        self._given = self.state.record

    def process(self, events: Events) -> Outputs:
        if not self._atomic:
            return super().process(events)
        outputs = self._outputs()
        collector = EventCollector(self._emit(outputs))
        emitted = list(outputs.values())
        given = _counter(outputs)
        for event in events:
            so_far = given()
            mark, before = [*map(len, emitted)], copy.deepcopy(self.operator.get_state())
            try:
                self.operator.apply(event, collector)
            except Exception:
                self._undo(emitted, mark)
                self.operator = _own_copy(self.node)
                self._guarded_set_up(before)
            self.delivered += given() != so_far
        self.processed += len(events)
        return outputs

    def take_state(self) -> None:
        self.state.record = self._given = copy.deepcopy(self.operator.get_state())


class SourceStep(InstanceStep):
    """A source that people wrote: it is asked, until it has nothing to say."""

    def set_up(self) -> None:
        if isinstance(self.operator, StatefulSource):
            super().set_up()
        else:
            self._guarded_set_up()

    def poll(self) -> Events:
        events: Events = []
        try:
            self.operator.get_events(EventCollector(events.append))
        except (Exception, SystemExit) as error:
            raise applying_failed(self, "get_events", error) from error
        check_types(self.node.gives, events, self.node.id)
        return events


class KeyedStep(Step):
    """An operator with one record per key."""

    state: KeyedState

    def __init__(self, node: Node, instance: int) -> None:
        super().__init__(node, instance)
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
        collector = KeyedCollector(self._emit(outputs))
        event: Any = events[0]
        try:
            keys = self.node.key.values(events)
            if self.state.layers:
                self.state.warm(keys)
            if self._atomic:
                self._process_atomically(events, keys, outputs, collector)
            else:
                apply, new_record, records = self.operator.apply, self.node.keeps, self.state.records
                given, so_far, delivered = _counter(outputs), 0, 0
                # `map` is lazy: a record is looked up when the event before it has been applied.
                for event, key, record in zip(events, keys, map(records.get, keys), strict=True):
                    if record is None:
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
        except (Exception, SystemExit) as error:
            raise applying_failed(self, event, error) from error
        self.processed += len(events)
        return outputs

    def _process_atomically(
        self, events: Events, keys: list[Any], outputs: dict[str, Events], collector: KeyedCollector
    ) -> None:
        """The operator gets a copy of the record, which is kept on return."""
        assert self.node.keeps is not None
        apply, new_record, copied = self.operator.apply, self.node.keeps, self._copy
        records, changed, emitted = self.state.records, self.state.changed, list(outputs.values())
        for event, key, record in zip(events, keys, map(records.get, keys), strict=True):
            mark = [*map(len, emitted)]
            mine = new_record() if record is None else copied(record)
            collector.key = key
            try:
                apply(event, mine, collector)
            except Exception:
                self._undo(emitted, mark)
                collector.forget_wishes()
                continue
            records[key] = mine
            changed.add(key)
            self.delivered += [*map(len, emitted)] != mark
            if collector.asked:
                self._settle(collector)

    def fire(self, clock: TimerClock, now: datetime) -> Outputs:
        """Call `on_timer` for every timer of that clock that is due."""
        outputs = self._outputs()
        collector = KeyedCollector(self._emit(outputs))
        assert self.node.keeps is not None
        while (due := self.state.pop_due(clock, now)) is not None:
            key, at = due
            record = self.state.records.get(key)
            if record is None:
                record = self.state.records[key] = self.node.keeps()
            collector.key = key
            try:
                self.operator.on_timer(key, at, record, collector)
            except (Exception, SystemExit) as error:
                raise applying_failed(self, f"the timer of {key!r} at {at.isoformat()}", error) from error
            if collector.asked:
                self._settle(collector)
        return outputs

    def _settle(self, collector: KeyedCollector) -> None:
        """Carry out what the operator asked for in one call: to forget its key, or to be woken."""
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


class StageStep(Step):
    """The last step before a sink: outputs become durable here, and visible when the driver commits them."""

    takes_columns = True
    staging: Staging

    def set_up(self) -> None:
        """The staging is all it needs."""

    def process(self, events: Given) -> Outputs:
        self.staging.add(events)
        self.processed += len(events)
        self.delivered += len(events)
        return {}


def _counter(outputs: dict[str, Events]) -> Callable[[], int]:
    """How many events have been emitted so far."""
    if len(outputs) == 1:
        return outputs[MAIN].__len__
    return lambda: sum(map(len, outputs.values()))


class _Copies:
    """Appends copies to a list."""

    def __init__(self, to: Events) -> None:
        self._to = to

    def append(self, event: Any) -> None:
        self._to.append(copy.deepcopy(event))


def _emit(outputs: Mapping[str, Any]) -> Callable[..., None]:
    if len(outputs) == 1:
        return outputs[MAIN].append  # type: ignore[no-any-return]

    def emit(event: Any, channel: str = MAIN) -> None:
        outputs[channel].append(event)

    return emit


def _own_copy(node: Node) -> Any:
    """Instances in one process must not share an object: each may hold temporary data."""
    if node.kind is NodeKind.SINK:
        return None  # it is the driver's; here its input is only staged
    try:
        return copy.deepcopy(node.component)
    except Exception as error:
        raise JobFailed(
            "SW-OPERATOR-COPY",
            f"{node.id} cannot be copied, but every instance needs an object of its own: {type(error).__name__}: {error}",
            f"open connections and the like in setup_instance of {node.title}, not in its constructor",
        ) from error


def applying_failed(step: Step, event: Any, error: BaseException) -> StreamworkError:
    """The error of an operator that raised. The chain adds the epoch."""
    if isinstance(error, StreamworkError):
        return error
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    code = traceback.tb_frame.f_code if traceback is not None else None
    place = f" ({code.co_filename}:{traceback.tb_lineno} in {code.co_name})" if code and traceback else ""
    who, what = f"{step.node.id} (instance {step.instance})", f"{type(error).__name__}: {error}{place}"
    undeclared = isinstance(error, KeyError | TypeError) and ("append" in str(error) or code is _emit_code)
    hint = "; a channel must be declared: channels = {...}" if undeclared else ""
    return JobFailed(
        "SW-OPERATOR-FAILED",
        f"{who} raised {what} while applying {show(event)}{hint}",
        "mend the operator or the input and start again: the last checkpoint is good, and the job resumes there",
    )


_emit_code = _emit({MAIN: [], "": []}).__code__
