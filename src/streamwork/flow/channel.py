"""Channels between instances, and what flows through them: events, watermarks, checkpoint events."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from streamwork.components.columns import Columns
from streamwork.job import Input


@dataclass(frozen=True)
class Data:
    """Events for one component of the chain at the other end."""

    epoch: int
    through: Input
    to: str
    events: list[Any] | Columns


@dataclass(frozen=True)
class Watermark:
    """No event that happened before this will come here any more, as far as the sender knows."""

    epoch: int
    at: datetime
    resumed: bool = False  # what the sender begins with: nothing that it could set off is new


@dataclass(frozen=True)
class CheckpointEvent:
    """Stands between the last event of an epoch and the first of the next, in every channel alike."""

    epoch: int
    attempt: str  # of the sender: what it has sent belongs to this attempt


@dataclass(frozen=True)
class Aligned:
    """A checkpoint event that has come on all inputs, and the attempts that its senders made."""

    epoch: int
    attempts: tuple[str, ...] = ()


Item = Data | Watermark | CheckpointEvent


@dataclass
class Channel:
    """From one instance to another, in order."""

    name: str
    items: deque[Item] = field(default_factory=deque)

    def send(self, item: Item) -> None:
        self.items.append(item)
