"""The instance executor: runs one instance of one chain, a turn at a time.

A turn processes one slice of a source, or one item of an input. At a checkpoint event the executor stores the state, reports, and
passes the event on to every instance downstream; user code never sees it. A schedule may choose among all turns that are
possible: the results are the same.

Where an output is bounded and stops its sender, no more events are processed. Watermarks and checkpoint events pass: an instance
that is blocked still takes its checkpoint event, so that alignment cannot deadlock. A source that is to read nothing
(`flow.brakes`) still sends its checkpoint event.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

import numpy as np

from streamwork.components.times import from_microseconds, microseconds
from streamwork.delivery.counts import Counts
from streamwork.engine.assignment import Assignment
from streamwork.engine.instance import Instance
from streamwork.engine.latency import SinkMeter
from streamwork.engine.report import Report
from streamwork.engine.wave import Leaving
from streamwork.flow.batch import Batch
from streamwork.flow.channel import Advances, Aligned, Channel, CheckpointEvent, Data, Idle, Part, Watermark
from streamwork.flow.dispatcher import Dispatcher
from streamwork.flow.lineage import NEVER, Lineage, again, lane_of
from streamwork.flow.wiring import Ways

ReportTo = Callable[[int, Sequence[Report]], None]  # epoch, reports of one instance
Behind = Callable[[Callable[[], None]], None]  # does something later, in the order of the calls


def at_once(act: Callable[[], None]) -> None:
    act()


class Executor:
    def __init__(
        self,
        name: str,
        instance: Instance,
        new_attempt: Callable[[], str],
        dispatcher: Dispatcher,
        ways: Ways,
        outputs: Sequence[Channel],
        report: ReportTo,
        is_held: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_held`: True while a source of this chain is to read nothing."""
        self.name = name
        self.instance = instance
        self._new_attempt = new_attempt
        self._dispatcher = dispatcher
        self._ways = ways
        self._outputs = outputs
        self._report = report
        self._is_held = is_held
        self.turns = 0  # of slices and items; another thread may read this and the following two
        self.is_busy = False  # in the middle of a turn
        self.newest: Data | None = None  # the events that came last through an exchange
        self.closes: Callable[[int], bool] | None = None
        """Where sources are read all the time: True if an epoch is to be closed."""
        self.behind: Behind = at_once
        """Where the files of a checkpoint are written: at once, or behind the checkpoint event, which is passed on before."""
        self._planned: deque[Assignment] = deque()  # of a source: the epochs to read
        self._works: dict[int, Assignment] = {}  # what each epoch brings
        self._reading: Iterator[bool] | None = None
        self._sent = NEVER  # the last watermark
        self._idle = False  # True if the instances downstream know that all inputs are idle
        self._begun = False  # True when something has been processed since the states were restored
        self._closing: Aligned | None = None  # the checkpoint event that waits for an event to be retried

    def live(self, closes: Callable[[int], bool], behind: Behind, guard: Callable[[], None]) -> None:
        """Process events all the time: read sources until an epoch `closes`, write files `behind` the flow, let no row wait in a
        step, call `guard` before each write to a sink, which raises if another driver has the job, and measure latencies.
        """
        self.closes, self.behind = closes, behind
        self.instance.follows = True
        self.instance.chain.hurry(guard)
        self.instance.measure()

    def see(self, now: int) -> None:
        """Processing time is `now`, in microseconds: operators see it."""
        self.instance.chain.now = from_microseconds(now)

    def plan(self, work: Assignment, reads: bool) -> None:
        """Prepare for an epoch. If it `reads`, its slices follow those of the epochs before, and then its checkpoint event."""
        self._works[work.epoch] = work
        self.behind(lambda: self.instance.adopt(work.states))
        if reads:
            self._planned.append(work)

    def set_up(self) -> None:
        """Begin the first epoch before its first event, so that no event waits for operators to be set up."""
        if not self.instance.chain.is_set_up:
            self._in_epoch(min(self._works))

    def choices(self) -> list[Channel | None]:
        """The possible turns: an input to receive from, or None for reading on. While an event waits to be retried, that alone,
        when it is due.
        """
        if (waiting := self.instance.chain.waiting) is not None:
            assert waiting.tries is not None
            return [None] if waiting.tries.is_due() else []
        has_room = self._has_room()
        ready: list[Channel | None] = [
            channel for channel in self._dispatcher.ready() if has_room or not isinstance(channel.items[0], Data)
        ]
        if (self._planned or self._reading is not None) and ((has_room and not self._is_held()) or self._may_close()):
            ready.append(None)
        return ready

    def _has_room(self) -> bool:
        return all(channel.has_room() for channel in self._outputs)

    def _may_close(self) -> bool:
        """True if the next turn of a source that is read all the time sends a checkpoint event, and no event."""
        is_between = self._reading is None or self.instance.reading.is_between
        return self.closes is not None and is_between and self.closes(self._planned[0].epoch)

    @property
    def dispatcher(self) -> Dispatcher:
        """Its inputs, and which of them are blocked. For readers."""
        return self._dispatcher

    @property
    def waiting(self) -> int:
        """The number of items at the inputs."""
        return sum(len(channel.items) for channel in self._dispatcher.inputs)

    @property
    def epoch(self) -> int:
        """The epoch under way; 0 if none is."""
        return self.instance.epoch

    @property
    def follows_clock(self) -> bool:
        """True if something may happen when processing time advances."""
        return self.instance.chain.follows_clock

    @property
    def waits_until(self) -> float | None:
        """When an event is retried, by the monotonic clock; None if none waits."""
        waiting = self.instance.chain.waiting
        return None if waiting is None or waiting.tries is None else waiting.tries.until

    @property
    def meters(self) -> Sequence[SinkMeter]:
        """Of its sinks, in live mode."""
        return self.instance.chain.meters

    def refresh(self) -> None:
        """Renew the mark of the event that waits. May be called from any thread."""
        self.instance.marks.refresh()

    def turn(self, choice: Channel | None) -> bool:
        """One of the possible turns. False if it found nothing to process."""
        self.is_busy = True
        try:
            return self._turn(choice)
        finally:
            self.is_busy = False
            self.turns += 1

    def _turn(self, choice: Channel | None) -> bool:
        chain = self.instance.chain
        if chain.waiting is not None:
            chain.resume()
            self._pass_on()
            if self._closing is not None:
                self._finish(self._closing)
        elif choice is None:
            return self._read_on()
        else:
            item, watch = self._dispatcher.receive(choice), chain.stopwatch
            if isinstance(item, Aligned):
                if watch is not None:
                    watch.start()
                self._checkpoint(item)
            elif item is not None:
                self._in_epoch(item.epoch)
                if isinstance(item, Watermark) and item.resumed and not self._begun:
                    chain.progress.resume({choice.name: microseconds(item.at)})
                    self._resume()
                    return True
                if isinstance(item, Idle) and item.resumed and not self._begun:
                    chain.progress.mark_idle(choice.name)
                    self._resume()
                    return True
                self._begun = True
                if watch is not None:  # behind `_in_epoch`, which may replay events
                    watch.start(None if isinstance(item, Idle) else item.began)
                if isinstance(item, Data):
                    self.newest = item
                    chain.receive(choice.name, item)
                elif isinstance(item, Idle):
                    chain.idle(choice.name, item.idle)
                else:
                    chain.advance(choice.name, item.at)
                self._pass_on()
        return True

    def tick(self, now: int) -> bool:
        """Processing time has come to `now`: fire the timers that are due, in the epoch that is open. False if none is."""
        chain, epoch = self.instance.chain, self.instance.epoch or min(self._works, default=0)
        if chain.waiting is not None or not epoch or not chain.follows_clock:
            return False
        self.set_up()  # timers may have been restored
        due = chain.next_tick()
        if due is None or microseconds(due) > now or not self._has_room():
            return False
        self._in_epoch(epoch)
        self._begun = True
        chain.tick(from_microseconds(now))
        self._pass_on()
        return True

    def reads_lane(self, lane: int) -> bool:
        """Under acknowledging: True if the source partition of a lane is read here, in the epoch under way."""
        name = next((name for name, mine in self.instance.lanes.items() if mine == lane), "")
        source, _, partition = name.partition("/")
        return partition in self.instance.reading.partitions(source)

    def replay(self, root: int) -> None:
        """Replay an event of the epoch under way at once. Its source is in this chain."""
        instance = self.instance
        lane, number = lane_of(root)
        name = next(name for name, mine in instance.lanes.items() if mine == lane)
        source, _, partition = name.partition("/")
        event = instance.reading.read_again(source, partition, number)
        instance.reading.again.setdefault(source, []).append(again(root))
        instance.chain.replay(source, Batch([event], Lineage(roots=np.array([again(root)], np.int64))))
        self._pass_on()

    def _read_on(self) -> bool:
        work, brought = self._planned[0], False
        if self._reading is None:
            brought = self._in_epoch(work.epoch)
            reading, closes = self.instance.reading, self.closes
            self._reading = reading.read(work) if closes is None else reading.follow(work, lambda: closes(work.epoch))
        try:
            found = next(self._reading)
        except StopIteration:
            self._reading = None
            self._planned.popleft()
            self._checkpoint(Aligned(work.epoch))
            return True
        self._pass_on()
        return found or brought

    def _in_epoch(self, epoch: int) -> bool:
        """The first item of an epoch begins it. True if that fires timers or replays events."""
        if self.instance.epoch == 0:
            work = self._works.pop(epoch, None) or self.instance.unplanned(epoch)
            self.instance.begin(work, self._new_attempt())
            if not self._begun:
                self._resume()
            due = self.instance.chain.next_tick() if work.ticks else None
            self.instance.bring(work)
            return bool(work.replays) or (due is not None and microseconds(due) <= work.ticks[-1])
        return False

    def _checkpoint(self, event: Aligned) -> None:
        """Store, pass on, report: everything before the checkpoint event is included, nothing behind it."""
        self._in_epoch(event.epoch)
        for component, events in event.dropped:
            self.instance.chain.drop(component, events)
        self.instance.chain.drain()
        self._pass_on()
        self._begun = True
        self._finish(event)

    def _finish(self, event: Aligned) -> None:
        self._closing = event if self.instance.chain.waiting is not None else None
        if self._closing is not None:  # the checkpoint waits
            return
        write, attempt = self.instance.seal(event.attempts), self.instance.attempt
        self.behind(lambda: self._report(event.epoch, write()))
        for channel in self._outputs:
            channel.send(CheckpointEvent(event.epoch, attempt))

    def _pass_on(self) -> None:
        outbox, idle = self.instance.chain.outbox, self.instance.chain.progress.all_idle
        if self._idle and not idle:
            self._send_idle(False)
        for entry in outbox:
            if isinstance(entry, datetime):
                self._send_watermark(microseconds(entry))
            else:
                self._send(entry)
        outbox.clear()
        if idle and not self._idle:
            self._send_idle(True)

    def _send_idle(self, idle: bool, resumed: bool = False) -> None:
        self._idle = idle
        for channel in self._outputs:
            channel.send(Idle(self.instance.epoch, idle, resumed))

    def _send(self, leaving: Leaving) -> None:
        """Each instance downstream gets its share of the events, and every advance of event time."""
        epoch, watch = self.instance.epoch, self.instance.chain.stopwatch
        began = None if watch is None else watch.began
        parts: dict[str, list[Part]] = {}
        for through, batch in leaving.parts:
            for to, port, route, channels in self._ways.get(through, ()):
                for target, share in route(batch).items():
                    parts.setdefault(channels[target].name, []).append(Part(through, to, share, port))
        advances = self._advances(leaving.advances)
        for channel in self._outputs:
            mine = parts.get(channel.name, [])
            if mine or len(advances.times):
                channel.send(Data(epoch, tuple(mine), advances, began))

    def _advances(self, advances: Advances) -> Advances:
        """Those that raise the watermark of this instance."""
        moments, times = advances
        if not len(times):
            return advances
        rising = np.flatnonzero(times > np.maximum(np.concatenate(([self._sent], times[:-1])), self._sent))
        self._sent = max(self._sent, int(times[-1]))
        return Advances(moments[rising], times[rising])

    def _resume(self) -> None:
        """Send downstream how far event time had come when the states were stored, as far as that is known."""
        now = self.instance.chain.progress.minimum
        if now is not None:
            self._send_watermark(now, resumed=True)
        if self.instance.chain.progress.all_idle and not self._idle:
            self._send_idle(True, resumed=True)

    def _send_watermark(self, now: int, resumed: bool = False) -> None:
        if now != self._sent:
            self._sent, watch = now, self.instance.chain.stopwatch
            began = None if watch is None or resumed else watch.began
            for channel in self._outputs:
                channel.send(Watermark(self.instance.epoch, from_microseconds(now), resumed, began))

    def counted(self, epoch: int) -> list[Counts]:
        """The counters of an epoch that is not finished."""
        return self.instance.counted() if self.instance.epoch == epoch else []

    def close(self) -> None:
        self.instance.discard()
        self.instance.chain.close()

    def discard(self) -> None:
        """After an error: close open files, but not the operators."""
        self.instance.discard()
