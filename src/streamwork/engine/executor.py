"""The instance executor: runs one instance of one chain, a step at a time.

A step is one piece of a source, or one item of an input. At a checkpoint event the executor stores the state, reports, and
passes the event on to every instance downstream; user code never sees it. Whoever schedules may choose among all steps that are
possible: the results are the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from streamwork.engine.channel import Aligned, Channel, CheckpointEvent, Data, Watermark
from streamwork.engine.dispatcher import Dispatcher
from streamwork.engine.instance import Instance
from streamwork.engine.report import Report
from streamwork.engine.routing import Route
from streamwork.engine.work import Work
from streamwork.job import Input

Tell = Callable[[int, Sequence[Report]], None]  # epoch, reports of one instance


class Executor:
    def __init__(
        self,
        name: str,
        instance: Instance,
        new_attempt: Callable[[], str],
        dispatcher: Dispatcher,
        routes: dict[tuple[Input, str], tuple[Route, list[Channel]]],
        downstream: list[Channel],
        tell: Tell,
    ) -> None:
        self.name = name
        self._instance = instance
        self._new_attempt = new_attempt
        self._dispatcher = dispatcher
        self._routes = routes  # (what, to which component) -> how, and the channels to its instances
        self._downstream = downstream
        self._tell = tell
        self._planned: deque[Work] = deque()  # of a source: the epochs to read
        self._reading: Iterator[None] | None = None
        self._sent: datetime | None = None
        for channel in dispatcher.inputs:
            instance.chain.watermarks.setdefault(channel.name, None)

    def plan(self, work: Work) -> None:
        """Read this slice when the ones before it are read, then issue the checkpoint event of its epoch."""
        self._planned.append(work)

    def choices(self) -> list[Channel | None]:
        """What could be done next: an input to take from, or None for reading on."""
        ready: list[Channel | None] = list(self._dispatcher.ready())
        if self._planned or self._reading is not None:
            ready.append(None)
        return ready

    def step(self, choice: Channel | None) -> None:
        if choice is None:
            self._read_on()
        else:
            item = self._dispatcher.take(choice)
            if isinstance(item, Aligned):
                self._checkpoint(item)
            elif item is not None:
                self._in_epoch(item.epoch)
                if isinstance(item, Data):
                    self._instance.chain.take(item.through, item.to, item.events)
                elif isinstance(item, Watermark):
                    self._instance.chain.take_watermark(choice.name, item.at)
                self._pass_on()

    def _read_on(self) -> None:
        work = self._planned[0]
        if self._reading is None:
            self._in_epoch(work.epoch)
            self._instance.tick(work.ticks)
            self._reading = self._instance.read(work.ranges)
        try:
            next(self._reading)
        except StopIteration:
            self._reading = None
            self._planned.popleft()
            self._pass_on()
            self._checkpoint(Aligned(work.epoch))
            return
        self._pass_on()

    def _in_epoch(self, epoch: int) -> None:
        """The first thing that is seen of an epoch begins it."""
        if self._instance.epoch == 0:
            self._instance.begin(epoch, self._new_attempt())

    def _checkpoint(self, event: Aligned) -> None:
        """Store, pass on, report: everything before the checkpoint event is in, nothing behind it."""
        self._in_epoch(event.epoch)
        reports = self._instance.finish(event.attempts)
        for channel in self._downstream:
            channel.send(CheckpointEvent(event.epoch, self._instance.attempt))
        self._tell(event.epoch, reports)

    def _pass_on(self) -> None:
        chain, epoch = self._instance.chain, self._instance.epoch
        for (through, to), (route, channels) in self._routes.items():
            events = chain.outbox.get(through)
            if events:
                for target, share in route(events).items():
                    channels[target].send(Data(epoch, through, to, share))
        chain.outbox.clear()
        now = chain.watermark
        if now is not None and now != self._sent:
            self._sent = now
            for channel in self._downstream:
                channel.send(Watermark(epoch, now))

    def close(self) -> None:
        self._instance.discard()
        self._instance.chain.close()

    def discard(self) -> None:
        """After an error: open files are let go, operators are not closed."""
        self._instance.discard()
