"""Jobs of the tests of live mode. Importable by the processes of isolated components."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from streamwork import Event, KeyedOperator, Operator, Record


class Order(Event):
    number: int
    shop: str


class Count(Event):
    shop: str
    number: int
    nth: int


class Orders(Record):
    count: int = 0


class Counting(KeyedOperator[Order, Orders, Count]):
    """Numbers the orders of each shop."""

    def apply(self, event: Order, state: Orders, collector: Any) -> None:
        state.count += 1
        collector.emit(Count(event.shop, event.number, state.count))


class Fragile(KeyedOperator[Order, Orders, Count]):
    """Like `Counting`; does what the file `trouble` says with the next event: exit, hang or raise. The file then goes."""

    def __init__(self, folder: Path) -> None:
        self._trouble = folder / "trouble"
        self._pid = folder / "pid"

    def setup_instance(self, instance: int) -> None:
        self._pid.write_text(str(os.getpid()))

    def apply(self, event: Order, state: Orders, collector: Any) -> None:
        if self._trouble.exists():
            what = self._trouble.read_text()
            self._trouble.unlink()
            if what == "exit":
                os._exit(9)
            elif what == "hang":
                time.sleep(60)
            else:
                raise ValueError(what)
        state.count += 1
        collector.emit(Count(event.shop, event.number, state.count))


class Waiting(KeyedOperator[Order, Orders, Count]):
    """Emits each order after 10 ms of processing time."""

    def apply(self, event: Order, state: Orders, collector: Any) -> None:
        state.count = event.number
        collector.set_timer(collector.now + timedelta(milliseconds=10), clock="processing")

    def on_timer(self, key: str, at: Any, state: Orders, collector: Any) -> None:
        collector.emit(Count(key, state.count, 1))


class Doubling(Operator[Order, Order]):
    def apply(self, event: Order, collector: Any) -> None:
        collector.emit(event)


class Moody(KeyedOperator[Order, Orders, Count]):
    """Fails every third order `times` times; a file counts how often."""

    def __init__(self, folder: Path, times: int = 1) -> None:
        self._folder = folder
        self._times = times

    def apply(self, event: Order, state: Orders, collector: Any) -> None:
        state.count += 1
        collector.emit(Count(event.shop, event.number, state.count))
        if event.number % 3 == 0:
            tries = self._folder / f"tries-{event.number}"
            count = len(tries.read_text()) if tries.exists() else 0
            if count < self._times:
                tries.write_text("x" * (count + 1))
                collector.fail("moody")
