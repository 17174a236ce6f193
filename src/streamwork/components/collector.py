"""What an operator is given to speak through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class EventCollector:
    """Takes what a component emits.

    `emit(event)` sends an event on. It is the hottest call in the system, so it is the destination's own function and
    not a method.
    """

    __slots__ = ("emit",)

    emit: Callable[[Any], None]

    def __init__(self, emit: Callable[[Any], None]) -> None:
        self.emit = emit
