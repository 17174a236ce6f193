"""The instance executor: runs one instance of one chain, a step at a time.

A step is one piece of a source, or one item of an input. At a checkpoint event the executor stores the state, reports, and
passes the event on to every instance downstream; user code never sees it. Whoever schedules may choose among all steps that are
possible: the results are the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from streamwork.delivery.counts import Counts
from streamwork.engine.assignment import Assignment
from streamwork.engine.instance import Instance
from streamwork.engine.report import Report
from streamwork.flow.channel import Aligned, Channel, CheckpointEvent, Data, Watermark
from streamwork.flow.dispatcher import Dispatcher
from streamwork.flow.wiring import Ways

Tell = Callable[[int, Sequence[Report]], None]  # epoch, reports of one instance


class Executor:
    def __init__(
        self,
        name: str,
        instance: Instance,
        new_attempt: Callable[[], str],
        dispatcher: Dispatcher,
        timed: Sequence[str],
        ways: Ways,
        downstream: Sequence[Channel],
        tell: Tell,
    ) -> None:
        """`timed` are the names of the inputs that bring watermarks: each holds event time back until it has spoken."""
        self.name = name
        self._instance = instance
        self._new_attempt = new_attempt
        self._dispatcher = dispatcher
        self._ways = ways
        self._downstream = downstream
        self._tell = tell
        self._planned: deque[Assignment] = deque()  # of a source: the epochs to read
        self._works: dict[int, Assignment] = {}  # what each epoch brings
        self._reading: Iterator[None] | None = None
        self._sent: datetime | None = None  # the last watermark
        self._begun = False  # True when something has been processed since the states were restored
        self._closing: Aligned | None = None  # the checkpoint event that waits for an event to be tried again
        for channel in timed:
            instance.chain.watermarks.setdefault(channel, None)

    def plan(self, work: Assignment, reads: bool) -> None:
        """This is what an epoch brings. If it `reads`: when the slices before it are read, and then issue its checkpoint event."""
        self._works[work.epoch] = work
        self._instance.adopt(work.states)
        if reads:
            self._planned.append(work)

    def choices(self) -> list[Channel | None]:
        """What could be done next: an input to take from, or None for reading on. While an event waits to be tried again, that
        alone, when its time has come.
        """
        if (waiting := self._instance.chain.waiting) is not None:
            assert waiting.tries is not None
            return [None] if waiting.tries.is_due() else []
        ready: list[Channel | None] = list(self._dispatcher.ready())
        if self._planned or self._reading is not None:
            ready.append(None)
        return ready

    @property
    def waits_until(self) -> float | None:
        """When an event is tried again, by the monotonic clock; None if none waits."""
        waiting = self._instance.chain.waiting
        return None if waiting is None or waiting.tries is None else waiting.tries.until

    def refresh(self) -> None:
        """Say again what waits. May be called from any thread."""
        self._instance.marks.refresh()

    def step(self, choice: Channel | None) -> None:
        if self._instance.chain.waiting is not None:
            self._instance.chain.resume()
            self._pass_on()
            if self._closing is not None:
                self._finish(self._closing)
        elif choice is None:
            self._read_on()
        else:
            item = self._dispatcher.take(choice)
            if isinstance(item, Aligned):
                self._checkpoint(item)
            elif item is not None:
                self._in_epoch(item.epoch)
                if isinstance(item, Data):
                    self._begun = True
                    self._instance.chain.take(item.to, item.events)
                    self._pass_on()
                elif item.resumed and not self._begun:
                    self._instance.chain.watermarks[choice.name] = item.at
                    self._resume()
                else:
                    self._begun = True
                    self._instance.chain.take_watermark(choice.name, item.at)
                    self._pass_on()

    def _read_on(self) -> None:
        work = self._planned[0]
        if self._reading is None:
            self._in_epoch(work.epoch)
            self._reading = self._instance.read(work)
        try:
            next(self._reading)
        except StopIteration:
            self._reading = None
            self._planned.popleft()
            self._checkpoint(Aligned(work.epoch))
            return
        self._pass_on()

    def _in_epoch(self, epoch: int) -> None:
        """The first thing that is seen of an epoch begins it."""
        if self._instance.epoch == 0:
            work = self._works.pop(epoch, None) or self._instance.unplanned(epoch)
            self._instance.begin(work, self._new_attempt())
            if not self._begun:
                self._resume()
            self._instance.bring(work)

    def _checkpoint(self, event: Aligned) -> None:
        """Store, pass on, report: everything before the checkpoint event is in, nothing behind it."""
        self._in_epoch(event.epoch)
        self._instance.chain.drain()
        self._pass_on()
        self._begun = True
        self._finish(event)

    def _finish(self, event: Aligned) -> None:
        self._closing = event if self._instance.chain.waiting is not None else None
        if self._closing is not None:  # the checkpoint waits
            return
        reports = self._instance.finish(event.attempts)
        for channel in self._downstream:
            channel.send(CheckpointEvent(event.epoch, self._instance.attempt))
        self._tell(event.epoch, reports)

    def _pass_on(self) -> None:
        chain, epoch = self._instance.chain, self._instance.epoch
        for entry in chain.outbox:
            if isinstance(entry, datetime):
                self._send_watermark(entry)
                continue
            through, events = entry
            for to, route, channels in self._ways.get(through, ()):
                for target, share in route(events).items():
                    channels[target].send(Data(epoch, through, to, share))
        chain.outbox.clear()

    def _resume(self) -> None:
        """Tell those behind how far event time had come when the states were stored, as far as that is known."""
        now = self._instance.chain.watermark
        if now is not None:
            self._send_watermark(now, resumed=True)

    def _send_watermark(self, now: datetime, resumed: bool = False) -> None:
        if now != self._sent:
            self._sent = now
            for channel in self._downstream:
                channel.send(Watermark(self._instance.epoch, now, resumed))

    def counted(self, epoch: int) -> list[Counts]:
        """What it has counted so far of an epoch that it has not finished."""
        return self._instance.counted() if self._instance.epoch == epoch else []

    def close(self) -> None:
        self._instance.discard()
        self._instance.chain.close()

    def discard(self) -> None:
        """After an error: open files are let go, operators are not closed."""
        self._instance.discard()
