"""The step of an operator with one record per key, and its timers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count, repeat
from operator import length_hint
from typing import Any

import numpy as np

from streamwork.components import KeyedCollector, TimerClock
from streamwork.components.schema import flat_copy
from streamwork.components.times import from_microseconds, microseconds
from streamwork.components.validation import check_fits, fitting
from streamwork.engine.fired import Fired
from streamwork.engine.steps.emitted import Emitted, Outputs
from streamwork.engine.steps.failure import RETURNED
from streamwork.engine.steps.key_check import KeyCheck
from streamwork.engine.steps.step import Step
from streamwork.errors import StreamworkError
from streamwork.flow.batch import Batch
from streamwork.flow.lineage import NEVER, UNTRACKED, Lineage
from streamwork.job import Node
from streamwork.state import KeyedState
from streamwork.state.keyed import UNKNOWN


class KeyedStep(Step):
    """An operator with one record per key."""

    state: KeyedState
    check_keys: KeyCheck | None = None  # of keys that come without an exchange, when they are first seen
    moment_of_timers = 0  # of what timers emit, counted from the moment of the advance (`engine.routes`)
    fired: Fired | None = None  # under at-most-once, with timers
    until = NEVER  # the time that the clock of a wave comes to
    alarm: datetime | None = None  # `process` stops behind an event that sets a timer up to this event time
    stopped: int | None = None  # how many events it has processed then
    _timer: tuple[Any, datetime] | None = None  # that is to be retried
    # With `ttl` by event time: the next advance behind each event that is processed next; `NEVER` if it is not known yet.
    touched_at: Sequence[int] = ()

    def __init__(self, node: Node, instance: int, tracked: bool = False) -> None:
        super().__init__(node, instance, tracked)
        assert node.keeps is not None
        self._copy: Callable[[Any], Any] = flat_copy(node.keeps) or copy.deepcopy

    def set_up(self) -> None:
        self._guarded_set_up()

    # ---- events -------------------------------------------------------------------------------------------------

    def process(self, batch: Batch) -> Outputs:
        assert self.node.key is not None and self.node.keeps is not None
        emitted = self._emitted()
        collector = KeyedCollector(emitted.emit, self.times)
        collector.tracking = self.acks
        events = batch.events
        event: Any = events[0]
        try:
            keys = self.node.key.values(events)
            if self.state.layers is not None:
                self.state.warm(keys)
            if self._atomic:
                self._process_atomically(batch, keys, emitted, collector)
            else:
                apply, new_record, records = self.operator.apply, self.node.keeps, self.state.records
                add = self.state.add
                emissions, so_far, delivered = emitted.count, 0, 0
                # `map` is lazy: a record is looked up when the event before it has been applied.
                remaining = iter(emitted.applying(events) if self.keeps_lineage else events)
                waiting = iter(keys)
                for event, key, record in zip(remaining, waiting, map(records.get, keys), strict=True):
                    if record is None:
                        if self.check_keys is not None:
                            self.check_keys([key])
                        add(key, record := new_record())
                    collector.key = key
                    if apply(event, record, collector) is not None:
                        raise TypeError(RETURNED)
                    if (now := emissions()) != so_far:
                        delivered, so_far = delivered + 1, now
                    if collector.asked and self._carry_out(collector):
                        self.stopped = len(keys) - length_hint(waiting)
                        if self.keeps_lineage:
                            emitted.came()
                        break
                self.delivered += delivered
                self.state.changed.update(keys if self.stopped is None else keys[: self.stopped])
        except (KeyboardInterrupt, StreamworkError):
            raise
        except BaseException as error:
            self.blame.check(events)  # the key of an event that does not fit may be no key at all
            raise self.failed(event, error) from error
        self.processed += len(batch) if self.stopped is None else self.stopped
        if self.node.ttl is not None:
            self._touch(keys, len(batch) if self.stopped is None else self.stopped)
        return emitted.outputs(batch.lineage)

    def _touch(self, keys: list[Any], count: int) -> None:
        """Put off the time at which the keys of the first events of a batch are forgotten."""
        assert self.node.ttl is not None
        if self.rest is not None:  # the others are processed later
            count = self.held_at
        ttl, state = timedelta(microseconds=self.node.ttl), self.state
        if self.node.ttl_clock is TimerClock.PROCESSING:
            times: Iterable[datetime] = repeat(_later(self.times.now, ttl))
        else:
            marks = self.touched_at or [NEVER] * count
            known = {at: UNKNOWN if at == NEVER else _later(from_microseconds(at), ttl) for at in set(marks)}
            times = map(known.__getitem__, marks)
        for key, at in zip(keys[:count], times, strict=False):
            if key in state.records:
                state.touch(key, at)

    def _process_atomically(self, batch: Batch, keys: list[Any], emitted: Emitted, collector: KeyedCollector) -> None:
        """The operator gets a copy of the record, which is kept on return. `_each`, written out: this is a hot loop."""
        assert self.node.keeps is not None
        apply, new_record, copied, acks = self.operator.apply, self.node.keeps, self._copy, self.acks
        records, changed, add = self.state.records, self.state.changed, self.state.add
        roots = batch.roots if acks is not None else repeat(UNTRACKED)
        emissions, fits, newest, keeps_fitting = emitted.count, emitted.fits, emitted.first, fitting(new_record)
        so_far = delivered = 0
        for event, key, record, root, place in zip(
            batch.events, keys, map(records.get, keys), roots, count(), strict=False
        ):
            if acks is not None:
                acks.begin(root)
            if record is None and self.check_keys is not None:
                self.check_keys([key])
            mine = new_record() if record is None else copied(record)
            collector.key = key
            try:
                if apply(event, mine, collector) is not None:
                    raise TypeError(RETURNED)
                if collector.asked:
                    collector.check()
                if (now := emissions()) != so_far and not (now == so_far + 1 and fits(newest[-1])):
                    emitted.check(so_far)
                if not keeps_fitting(mine):
                    check_fits(new_record, [mine], self.node.id)
            except BaseException as error:
                emitted.undo(so_far)
                collector.forget_wishes()
                if self.is_held(event, root, error):
                    self.hold(batch, place)
                    break
                if self.keeps_lineage:
                    emitted.came()
                continue
            if record is None:
                add(key, mine)
            else:
                records[key] = mine
            changed.add(key)
            if now != so_far:
                delivered, so_far = delivered + 1, now
                if emitted.several:
                    emitted.keep()
            if self.keeps_lineage:
                emitted.came()
            if collector.asked and self._carry_out(collector):
                self.stopped = place + 1
                break
        self.delivered += delivered

    def _carry_out(self, collector: KeyedCollector) -> bool:
        """Do what the operator requested in one call: forget its key, set and delete timers. True if a timer ends the stretch."""
        collector.check()
        key, rings = collector.key, False
        if collector.cleared:
            self.state.forget(key)
        for timer, is_set in collector.timers:
            if not is_set:
                self.state.delete_timer(key, timer)
                continue
            self.state.set_timer(key, timer)
            if key not in self.state.records:
                assert self.node.keeps is not None
                self.state.add(key, self.node.keeps())
            if self.alarm is not None and timer.clock is TimerClock.EVENT and timer.at <= self.alarm:
                rings = True
        self.state.changed.add(key)
        collector.forget_wishes()
        return rings

    # ---- timers -------------------------------------------------------------------------------------------------

    def fired_at(self, outputs: Outputs, moment: int, watermark: int | None) -> Outputs:
        """What timers emitted at the moment of an advance, to this watermark."""
        if not self.keeps_lineage:
            return outputs
        return {
            channel: Batch(batch.given, self._lineage_of_timers(len(batch), moment, watermark))
            for channel, batch in outputs.items()
        }

    def _lineage_of_timers(self, count: int, moment: int, watermark: int | None) -> Lineage:
        known = None if watermark is None else np.full(count, watermark, np.int64)
        return Lineage(watermarks=known, moments=np.full(count, moment + self.moment_of_timers, np.int64))

    def next_due(self, clock: TimerClock) -> datetime | None:
        """When the next timer of that clock is due, or the next key is forgotten by it."""
        found = [self.state.next_timer(clock)]
        if self._forgets_by(clock):
            found.append(self.state.next_expiry())
        return min((at for at in found if at is not None), default=None)

    def _forgets_by(self, clock: TimerClock) -> bool:
        return self.node.ttl is not None and self.node.ttl_clock is clock

    def _expire(self, clock: TimerClock, until: datetime, now: datetime) -> None:
        """Forget keys that were not touched for too long. For one that was touched since the last advance, time counts from now."""
        if not self._forgets_by(clock):
            return
        assert self.node.ttl is not None
        self.state.settle(_later(now, timedelta(microseconds=self.node.ttl)))
        while (expired := self.state.pop_expired(until)) is not None:
            self.state.forget(expired[0])

    def fire(self, clock: TimerClock, now: datetime) -> Outputs:
        """Call `on_timer` for every timer of that clock that is due, and forget keys, in the order of their times. Each timer is
        counted like an event.
        """
        emitted = Emitted(self._output)
        collector = KeyedCollector(emitted.emit, self.times)
        assert self.node.keeps is not None
        collector.tracking = self.acks  # it may acknowledge the events that it has gathered
        forgets = self._forgets_by(clock)
        while True:
            if forgets and self._timer is None and (first := self.state.next_timer(clock)) is not None and first <= now:
                self._expire(clock, _just_before(first), now)
            if (due := self._timer or self.state.pop_due(clock, now)) is None:
                break
            key, at = due
            if self.acks is not None:
                self.acks.begin(UNTRACKED)
            record = self.state.records.get(key)
            mine = self.node.keeps() if record is None else self._copy(record) if self._atomic else record
            collector.key = key
            before = emitted.count()
            self.processed += 1
            try:
                if self._timer is not None:
                    self._retry_timer()
                self.operator.on_timer(key, at, mine, collector)
                collector.check()
                emitted.check(before)
                check_fits(self.node.keeps, [mine], self.node.id)
            except BaseException as error:
                emitted.undo(before)
                collector.forget_wishes()
                if self.is_held(f"the timer of {key!r} at {at.isoformat()}", UNTRACKED, error):
                    self._timer, self.rest = due, partial(self.fire, clock, now)
                    self.processed -= 1
                    break
                self._timer = None
                continue
            if self._timer is not None and self.tries is not None:
                self._timer = None
                self.tries.over()
            self.delivered += emitted.count() != before
            emitted.keep()
            if record is None:
                self.state.add(key, mine)
            else:
                self.state.records[key] = mine
            if collector.asked:
                self._carry_out(collector)
        if self.rest is None:
            self._expire(clock, now, now)
        if self.fired is not None and emitted.count():
            self.fired.record(clock, max(microseconds(now), self.until))
        return emitted.outputs()

    def drop_due(self, clock: TimerClock, until: int) -> None:
        """Drop timers that are due up to this time: what they emitted may have been written before."""
        while self.state.pop_due(clock, from_microseconds(until)) is not None:
            self.processed += 1
            self.dropped += 1

    def _retry_timer(self) -> None:
        """Raises the error of the last try if the driver requests the end of all waits."""
        assert self.tries is not None and self.tries.error is not None
        if self.tries.marks.ended():
            raise self.tries.error
        self.retried += 1

    def counters(self) -> dict[str, int]:
        return {**super().counters(), "keys": len(self.state)}


def _later(at: datetime, ttl: timedelta) -> datetime:
    try:
        return at + ttl
    except OverflowError:  # never
        return datetime.max.replace(tzinfo=UTC)


def _just_before(at: datetime) -> datetime:
    try:
        return at - timedelta(microseconds=1)
    except OverflowError:  # the first time that there is
        return at
