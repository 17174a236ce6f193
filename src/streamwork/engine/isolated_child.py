"""The process of an isolated component: one instance of one chain, which its task feeds (`engine.isolated`)."""

from __future__ import annotations

import os
import select
import socket
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import msgspec

from streamwork.engine.assignment import Assignment
from streamwork.engine.attempt import placed
from streamwork.engine.executor import Executor
from streamwork.engine.isolated_link import Kind, Link, LinkClosed
from streamwork.engine.process import Process
from streamwork.engine.report import Failure, Report, Reports
from streamwork.flow.channel import Data
from streamwork.flow.transport import ParcelTransport
from streamwork.job import Layout
from streamwork.job.params import unpack
from streamwork.world import RealClock, RealDisk
from streamwork.world.pauses import keep_loaded, short_pauses

_decode_work = msgspec.json.Decoder(Assignment).decode
TIMER_SECONDS = 0.005
"""Maximum seconds between two checks of timers. A component without timers of processing time is not woken for them."""


class Child:
    def __init__(self, link: Link) -> None:
        self._link = link
        self._layout: Layout
        self._executor: Executor
        self._transport: ParcelTransport
        self._behind = ThreadPoolExecutor(1, "streamwork-behind")
        self._writing: list[Future[None]] = []
        self._written: list[tuple[int, Reports]] = []
        self._wake, self._woken = os.pipe()
        self._epoch = 0

    def run(self) -> None:
        """Until the other end is closed."""
        try:
            while True:
                link = self._link.fileno()
                came, _, _ = select.select(
                    [link, self._wake], [link] if self._link.waits else [], [], self._until_timer()
                )
                for message in self._link.receive() if link in came else ():
                    self._take(message)
                    self._link.flush()  # what one parcel brings leaves together
                self._tick()
                self._send_reports()
                self._link.flush()
        except LinkClosed:
            return
        except Exception as error:
            if not hasattr(self, "_layout"):  # the layout itself cannot be read: the parent sees an end without a cause
                raise
            failure = Failure.of(placed(error, self._layout.graph, self._epoch))
            self._link.send(Kind.FAILED, msgspec.json.encode(Reports(failure=failure)))
            self._link.flush()
            while self._link.waits:
                select.select([], [self._link.fileno()], [], 1.0)
                self._link.flush()

    def _take(self, message: Any) -> None:
        match message.kind:
            case Kind.SETUP:
                self._layout = unpack(message.content)
            case Kind.START:
                self._start(_decode_work(message.head), message.content.decode())
            case Kind.OPEN:
                self._open(_decode_work(message.head))
            case Kind.ITEM:
                parcel = message.parcel()
                events = 0
                for channel, item in self._transport.unpack(parcel):
                    channel.send(item)
                    events += len(item) if isinstance(item, Data) else 0
                self._turns()
                self._link.send(Kind.DONE, str(events).encode())

    def _start(self, work: Assignment, attempt: str) -> None:
        place = (work.chain, work.instance)
        self._transport = ParcelTransport(self._layout, place, attempt, rows=True)
        process = Process(self._layout, RealDisk(), RealClock())
        self._executor = process.executor(work, self._transport, lambda: attempt, self._report)
        self._executor.live(lambda epoch: False, self._later, lambda: None)
        keep_loaded()
        self._link.send(Kind.READY)

    def _open(self, work: Assignment) -> None:
        self._epoch = work.epoch
        self._executor.plan(work, reads=False)
        self._executor.set_up()

    def _turns(self) -> None:
        self._executor.see(_now())
        while (choices := self._executor.choices()) and choices[0] is not None:
            self._executor.turn(choices[0])
        self._send()

    def _until_timer(self) -> float | None:
        """Seconds until timers are checked; None: there are none."""
        return TIMER_SECONDS if hasattr(self, "_executor") and self._executor.follows_clock else None

    def _tick(self) -> None:
        if hasattr(self, "_executor") and self._executor.tick(_now()):
            self._send()

    def _send(self) -> None:
        self._transport.flush()
        for parcel in self._transport.ready():
            self._link.send_parcel(Kind.OUT, parcel)

    def _later(self, act: Any) -> None:
        self._writing.append(self._behind.submit(self._do, act))

    def _do(self, act: Any) -> None:
        act()
        os.write(self._woken, b"x")

    def _report(self, epoch: int, reports: Sequence[Report]) -> None:
        self._written.append((epoch, Reports(tuple(reports))))

    def _send_reports(self) -> None:
        """In this thread: the link has one user."""
        while self._writing and self._writing[0].done():
            self._writing.pop(0).result()
            os.read(self._wake, 1)
        while self._written:
            epoch, reports = self._written.pop(0)
            self._link.send(Kind.REPORT, str(epoch).encode(), reports.to_json())


def _now() -> int:
    return round(RealClock().now() * 1_000_000)


def main(descriptor: int) -> None:
    with short_pauses():
        Child(Link(socket.socket(fileno=descriptor))).run()
    os._exit(0)  # threads of libraries must not keep it


if __name__ == "__main__":
    main(int(sys.argv[1]))
