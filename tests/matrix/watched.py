"""Disk, source and operators that tell the world what they do."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sample import Payment, Seen, Summing, Sums
from streamwork import Instance, KeyedOperator, ListSource, Source, StatefulOperator
from streamwork.components import Slice
from streamwork.testing.clock import START
from streamwork.world import RealDisk
from streamwork.world.disk import RealDiskFile

if TYPE_CHECKING:
    from matrix.world import World

FACTOR, DRAWS, PRIME = 1_000_003, 1_000, 2**61 - 1


class WatchedDisk(RealDisk):
    """The machine's disk, without the syncs (what they are for is tested on a simulated one); each change passes by."""

    def __init__(self, world: World) -> None:
        self._world = world

    def create(self, path: Path, data: bytes) -> None:
        self._watched("create", path, lambda: super(WatchedDisk, self).create(path, data))

    def replace(self, path: Path, data: bytes) -> None:
        self._watched("replace", path, lambda: super(WatchedDisk, self).replace(path, data))

    def discard(self, path: Path) -> None:
        if path.exists():
            self._watched("discard", path, lambda: super(WatchedDisk, self).discard(path))

    def remove(self, path: Path) -> None:
        self._watched("remove", path, lambda: super(WatchedDisk, self).remove(path))

    def move(self, path: Path, target: Path) -> None:
        self._watched("move", path, lambda: super(WatchedDisk, self).move(path, target))

    def open_append(self, path: Path) -> RealDiskFile:
        return WatchedFile(self._world, path)

    def _watched(self, action: str, path: Path, act: Callable[[], None]) -> None:
        name = self._world.name(path)
        self._world.passes(f"before {action} {name}")
        act()
        self._world.passes(f"after {action} {name}")

    @staticmethod
    def _sync_folder(folder: Path) -> None: ...


class WatchedFile(RealDiskFile):
    def __init__(self, world: World, path: Path) -> None:
        super().__init__(path)
        self._world, self._named = world, world.name(path)

    def write(self, data: Any) -> int:
        self._world.passes(f"before write {self._named}")
        return super().write(data)

    def sync(self) -> None:
        self._world.passes(f"before sync {self._named}")


class WatchedSource(ListSource[Payment]):
    world: World

    def read(self, partition: str, start: int, end: int) -> Iterator[Slice]:
        half = (start + end) // 2
        yield from super().read(partition, start, half)
        self.world.passes(f"half read {start}")
        yield from super().read(partition, half, end)


class WatchedQueue(Source[Payment]):
    """Takes events from a queue, a few at a time; nobody gets them again."""

    max_events = 6
    world: World

    def get_events(self, collector: Any) -> None:
        assert self.world.queue is not None
        for event in self.world.queue[:2]:
            self.world.queue.remove(event)
            self.world.taken.append(event.amount)
            collector.emit(event)


class Watched(Summing):
    """Sums per card, as the batch program in `oracles` does."""

    def __init__(self, world: World) -> None:
        self._world = world

    def apply(self, event: Payment, state: Sums, collector: Any) -> None:
        self._world.passes(f"apply {event.card}")
        super().apply(event, state, collector)


class Echoing(Watched):
    """The same state, but each row tells the event that it was made from: its amount, which no other event has.

    An amount in `world.flaky` makes it raise, as often as it says there; one below zero always.
    """

    def apply(self, event: Payment, state: Sums, collector: Any) -> None:
        self._world.passes(f"apply {event.card}")
        if self._world.flaky.get(event.amount, 0) > 0:
            self._world.flaky[event.amount] -= 1
            raise RuntimeError("not now")
        if event.amount < 0:
            raise ValueError("an amount below zero")
        state.number += 1
        state.total += event.amount
        collector.emit(Seen(event.card, state.number, event.amount))


class Drawing(Watched):
    """Each sum follows from the one before and a random number: nobody can compute this again, but anybody can see a break."""

    deterministic = False

    def apply(self, event: Payment, state: Sums, collector: Any) -> None:
        state.number += 1
        state.total = (state.total * FACTOR + random.SystemRandom().randrange(DRAWS)) % PRIME
        self._world.passes(f"apply {event.card}")
        collector.emit(Seen(event.card, state.number, state.total))


class Timing(Watched):
    """As `Drawing`, but in the place of the random number stands the time: a replay must find the same."""

    deterministic = True

    def apply(self, event: Payment, state: Sums, collector: Any) -> None:
        state.number += 1
        state.total = (state.total * FACTOR + self.microseconds(collector) % DRAWS) % PRIME
        self._world.passes(f"apply {event.card}")
        collector.emit(Seen(event.card, state.number, state.total))

    def microseconds(self, collector: Any) -> int:
        return round(collector.now.timestamp() * 1_000_000)


class Guessing(Timing):
    """The control: it asks the machine's clock."""

    def microseconds(self, collector: Any) -> int:
        return round(self._world.clock.now() * 1_000_000)


class Ringing(KeyedOperator[Payment, Sums, Seen]):
    """Sums, and sets a timer for each event: one second after the other, by the machine's clock."""

    def apply(self, event: Payment, state: Sums, collector: Any) -> None:
        state.number += 1
        state.total += event.amount
        collector.emit(Seen(event.card, state.number, state.total))
        collector.set_timer(datetime.fromtimestamp(START + state.number, UTC), "processing")

    def on_timer(self, key: Any, at: datetime, state: Sums, collector: Any) -> None:
        collector.emit(Seen(f"bell {key}", round(at.timestamp() - START), 0))


class Turning(StatefulOperator[Payment, Sums, Seen]):
    """Sums per instance, behind `shuffle()`: every row names its instance."""

    def __init__(self, world: World) -> None:
        self._world = world

    def setup_instance(self, instance: Instance, state: Sums | None) -> None:
        self._instance, self._sums = instance, state or Sums()

    def apply(self, event: Payment, collector: Any) -> None:
        self._world.passes(f"apply {event.card}")
        self._sums.number += 1
        self._sums.total += event.amount
        collector.emit(Seen(f"instance {self._instance}", self._sums.number, self._sums.total))

    def get_state(self) -> Sums:
        return self._sums


OPERATORS: dict[str, Callable[[World], KeyedOperator[Any, Any, Any] | Turning]] = {
    "sums": Watched,
    "echo": Echoing,
    "draws": Drawing,
    "now": Timing,
    "the machine's clock": Guessing,
    "timers": lambda world: Ringing(),
    "shuffled": Turning,
}
