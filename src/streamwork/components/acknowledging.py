"""Acknowledging: a component marks the event being applied as processed or as failed."""

from __future__ import annotations

from typing import Protocol


class EventFailed(Exception):
    """Raised by `collector.fail(reason)`: the event being applied has failed."""


class Acknowledgement(Protocol):
    """The event being applied, for the acknowledger."""

    @property
    def event_id(self) -> str: ...

    def ack(self, event_id: str | None) -> None: ...
