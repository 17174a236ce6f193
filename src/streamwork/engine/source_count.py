"""The counters of a source."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from streamwork.components import Slice


@dataclass
class SourceCount:
    """What a source has given in one epoch."""

    delivered: int = 0
    dropped: int = 0
    replayed: int = 0
    letters: list[tuple[Any, str]] = field(default_factory=list)  # input that is no event, as text, or events, and why
    read: dict[str, int] = field(default_factory=dict)  # under acknowledging: events of each partition so far

    def add(self, piece: Slice) -> int:
        """Count a slice. Returns the number of its events before any filter."""
        came = len(piece.given) + sum(piece.left_out.values())
        self.delivered += came
        self.dropped += piece.dropped
        self.letters += piece.letters
        return came

    def counters(self) -> dict[str, int]:
        return {
            "processed": self.delivered + self.dropped + len(self.letters),
            "delivered": self.delivered,
            "ended_early": 0,
            "dropped": self.dropped,
            "dead_letters": len(self.letters),
            "failed": 0,
            "replayed": self.replayed,
            "retried": 0,
            "late": 0,
        }
