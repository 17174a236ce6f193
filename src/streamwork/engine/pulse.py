"""Writes the vital signs of one process each second, from a thread of its own: it also sees instances that hang."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from streamwork.components.field_types import show
from streamwork.engine.latency import Recent, SinkMeter
from streamwork.engine.vitals import (
    FRESH_SECONDS,
    EdgeVital,
    Episode,
    InstanceVital,
    LatencyVital,
    TaskVital,
    write_vitals,
)
from streamwork.flow.channel import Data
from streamwork.flow.gauge import Gauge
from streamwork.flow.wiring import Place
from streamwork.job import Layout
from streamwork.world import Clock, Disk, RealProcesses

STILL_SECONDS = 5.0
"""The stack of an instance that has been in one turn for so long is recorded."""
MOST_FRAMES = 12
MOST_TEXT = 200


class Watched(Protocol):
    """An executor, as far as its vital signs are concerned."""

    turns: int

    @property
    def epoch(self) -> int: ...
    @property
    def is_busy(self) -> bool: ...
    @property
    def waiting(self) -> int: ...
    @property
    def newest(self) -> Data | None: ...
    @property
    def meters(self) -> Sequence[SinkMeter]: ...


class Pulse:
    def __init__(
        self,
        disk: Disk,
        folder: Path,
        fence: int,
        task: str,
        clock: Clock,
        layout: Layout,
        executors: Mapping[Place, Watched],
        gauges: Mapping[tuple[Place, Place], Gauge],
    ) -> None:
        """`folder` is that of the job. The instances run in the thread that makes this object."""
        self._disk, self._folder, self._clock, self._layout = disk, folder, clock, layout
        self._executors, self._gauges = executors, gauges
        self._fence, self._task = fence, task
        self._process = RealProcesses().me()
        self._moved: dict[Place, tuple[int, float]] = {}  # turns, and when they last changed
        self._recent = [Recent(meter, clock.monotonic()) for one in executors.values() for meter in one.meters]
        self._runs_in = threading.get_ident()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="streamwork-pulse", daemon=True)

    def __enter__(self) -> Pulse:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._ends.wait(FRESH_SECONDS):
            write_vitals(self._disk, self._folder, self.now())

    def now(self) -> TaskVital:
        """The vital signs at this moment."""
        return TaskVital(
            fence=self._fence,
            task=self._task,
            pid=self._process.pid,
            host=self._process.machine,
            at=self._clock.now(),
            instances=tuple(self._instance(place, one) for place, one in self._executors.items()),
            edges=tuple(self._edge(*ends, gauge) for ends, gauge in self._gauges.items()),
            latencies=tuple(self._latencies()),
        )

    def _latencies(self) -> Iterator[LatencyVital]:
        for one in self._recent:
            seconds, recent, total = one.read(self._clock.monotonic())
            yield LatencyVital(
                sink=one.meter.sink, staged=one.meter.staged, seconds=seconds, recent=recent, total=total
            )

    def _instance(self, place: Place, one: Watched) -> InstanceVital:
        now, turns = self._clock.now(), one.turns
        if place not in self._moved or self._moved[place][0] != turns or not one.is_busy:
            self._moved[place] = (turns, now)
        moved_at = self._moved[place][1]
        is_still = one.is_busy and now - moved_at >= STILL_SECONDS
        return InstanceVital(
            components=self._layout.chains[place[0]].nodes,
            instance=place[1],
            epoch=one.epoch,
            turns=turns,
            moved_at=moved_at,
            busy=one.is_busy,
            waiting=one.waiting,
            last_event=_text(one.newest) if is_still else "",
            stack=self._stack() if is_still else (),
        )

    def _stack(self) -> tuple[str, ...]:
        frame = sys._current_frames().get(self._runs_in)
        found = traceback.extract_stack(frame)[-MOST_FRAMES:] if frame is not None else []
        return tuple(
            f"{Path(one.filename).name}:{one.lineno} {one.name}: {one.line or ''}"[:MOST_TEXT] for one in found
        )

    def _edge(self, sender: Place, receiver: Place, gauge: Gauge) -> EdgeVital:
        now, since = self._clock.now(), gauge.since
        over = tuple(Episode(began, ended) for began, ended in list(gauge.episodes))
        lasting = () if since is None else (Episode(since),)
        return EdgeVital(
            sender=self._name(sender),
            receiver=self._name(receiver),
            policy=gauge.policy.value,
            events=max(0, gauge.events),
            bytes=max(0, gauge.bytes),
            most_events=gauge.limit.events,
            most_bytes=gauge.limit.bytes,
            since=since,
            full_seconds=gauge.full_seconds + (0.0 if since is None else max(0.0, now - since)),
            episodes=(*over, *lasting),
            sent=gauge.sent,
            received=max(0, gauge.sent - gauge.dropped - gauge.events),
            dropped=gauge.dropped,
        )

    def _name(self, place: Place) -> str:
        return f"{self._layout.chains[place[0]].nodes[0]}[{place[1]}]"


def _text(newest: Data | None) -> str:
    """The first of the events that came last."""
    if newest is None or not len(newest):
        return ""
    batch = next(part.batch for part in newest.parts if len(part.batch))
    more = f" (the first of {len(newest)} that came together)" if len(newest) > 1 else ""
    return f"{show(batch[:1].events[0])[:MOST_TEXT]}{more}"
