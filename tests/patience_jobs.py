"""Operators that take their time, for tests of waiting. Importable by Spark's workers."""

from __future__ import annotations

import os
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from sample import Payment, Seen, Sums
from streamwork import KeyedOperator, Operator
from streamwork.world import RealClock


class Waking(KeyedOperator[Payment, Sums, Seen]):
    """Says nothing until a moment of processing time has come."""

    def __init__(self, due: datetime) -> None:
        self.due = due

    def apply(self, event: Payment, state: Sums, collector: Any) -> None:
        state.number += 1
        collector.set_timer(self.due, clock="processing")

    def on_timer(self, key: str, at: datetime, state: Sums, collector: Any) -> None:
        collector.emit(Seen(key, state.number, state.total))


class Impatient(RealClock):
    """An hour passes when a file appears."""

    def __init__(self, sign: Path) -> None:
        self._sign = sign

    def monotonic(self) -> float:
        return super().monotonic() + (3600 if self._sign.exists() else 0)


class Dawdling(Operator[Payment, Payment]):
    """At one event, once, it puts up a sign and takes its time."""

    SECONDS = 240.0

    def __init__(self, sign: str, at: Payment) -> None:
        self.sign = sign
        self.at = at

    def apply(self, event: Payment, collector: Any) -> None:
        if event == self.at and not Path(self.sign).exists():
            Path(self.sign).touch()
            time.sleep(self.SECONDS)
        collector.emit(event)


class Dying(Operator[Payment, Payment]):
    """Takes its process with it, each time."""

    def apply(self, event: Payment, collector: Any) -> None:
        os._exit(1)
