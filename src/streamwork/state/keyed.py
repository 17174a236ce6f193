"""The state of one keyed component's instance, in memory."""

from __future__ import annotations

from typing import Any

from streamwork.components import Record


class KeyedState:
    """Key value -> record, and which of them changed since the last checkpoint."""

    __slots__ = ("changed", "records")

    def __init__(self) -> None:
        self.records: dict[Any, Record] = {}
        self.changed: set[Any] = set()

    def __len__(self) -> int:
        return len(self.records)
