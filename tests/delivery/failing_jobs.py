"""Operators that fail in ways that can be foretold, importable by Spark's workers."""

from __future__ import annotations

import zlib
from typing import Any, ClassVar

from streamwork import Event, KeyedOperator, Operator, Record, Source


class Item(Event):
    name: str


class Result(Event):
    name: str
    by: str = ""


class Tries(Record):
    tries: int = 0


class Calls(Operator[Item, Result]):
    """Writes down what it is asked for. Some names fail so many times, some are invalid, some are refused."""

    log: ClassVar[list[str]] = []
    left: ClassVar[dict[str, int]] = {}

    def __init__(
        self, failing: dict[str, int] | None = None, invalid: set[str] | None = None, refusing: set[str] | None = None
    ) -> None:
        Calls.log.clear()
        Calls.left.clear()
        Calls.left.update(failing or {})
        self._invalid, self._refusing = invalid or set(), refusing or set()

    def apply(self, event: Item, collector: Any) -> None:
        if self.left.get(event.name, 0):
            self.left[event.name] -= 1
            self.log.append(f"{event.name} failed")
            raise ValueError("not now")
        if event.name in self._invalid:
            self.log.append(f"{event.name} invalid")
            return
        if event.name in self._refusing:
            collector.emit(Result("half done"))
            collector.fail("please not")
        self.log.append(event.name)
        collector.emit(Result(event.name))


class Held(Operator[Item, Result]):
    """Acknowledges by hand: what it is given with C, and what came as A."""

    manual_ack = True
    log: ClassVar[list[str]] = []
    held: ClassVar[dict[str, str]] = {}

    def apply(self, event: Item, collector: Any) -> None:
        self.held[event.name] = collector.event_id
        self.log.append(event.name)
        if event.name == "C":
            collector.ack(self.held["A"])
            collector.ack()
        collector.emit(Result(event.name))


def chance(*parts: object) -> float:
    return zlib.crc32(repr(parts).encode()) / 2**32


class Sometimes(KeyedOperator[Item, Tries, Result]):
    """Fails by name and by how often it was tried, which it remembers outside of its state: that is rolled back."""

    tries: ClassVar[dict[str, int]] = {}

    def __init__(self, rate: float) -> None:
        self.rate = rate
        Sometimes.tries.clear()

    @staticmethod
    def never(name: str, rate: float) -> bool:
        """Whether it fails each time, whatever process it is tried in."""
        return chance(name, "always") < rate / 2

    def apply(self, event: Item, state: Tries, collector: Any) -> None:
        state.tries += 1
        self.tries[event.name] = self.tries.get(event.name, 0) + 1
        if self.never(event.name, self.rate):
            raise ConnectionError("never")
        if self.tries[event.name] == 1 and chance(event.name, "once") < self.rate:
            raise ConnectionError("not yet")
        collector.emit(Result(event.name, "left"))


class Erratic(Operator[Item, Result]):
    """Fails now and then, by whatever it has seen so far."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.seen = 0

    def apply(self, event: Item, collector: Any) -> None:
        self.seen += 1
        if chance(event.name, self.seen) < self.rate:
            raise TimeoutError("late")
        collector.emit(Result(event.name, "right"))


class Spreading(Operator[Result, Result]):
    """Two for each."""

    def apply(self, event: Result, collector: Any) -> None:
        for number in range(2):
            collector.emit(Result(event.name, f"{event.by}-{number}"))


class Twice(KeyedOperator[Result, Tries, Result]):
    """Fails now and then, behind an exchange."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.seen = 0

    def apply(self, event: Result, state: Tries, collector: Any) -> None:
        self.seen += 1
        if chance(event.name, event.by, self.seen) < self.rate:
            raise TimeoutError("late")
        collector.emit(event)


class Fountain(Source[Item]):
    """Gives each event once and keeps nothing: what is lost is lost."""

    left: ClassVar[list[Item]] = []
    max_events = 20

    def get_events(self, collector: Any) -> None:
        for _ in range(min(10, len(self.left))):
            collector.emit(self.left.pop(0))


class Finite(Fountain):
    """A run that catches up asks it until it is silent."""

    bounded = True
