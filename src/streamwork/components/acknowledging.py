"""What a component can say of the event that it applies: that it is done, or that it has failed."""

from __future__ import annotations

from typing import Protocol


class EventFailed(Exception):
    """`collector.fail(reason)`: the event that is being applied has failed."""


class Acknowledgement(Protocol):
    """The event that is being applied, as the acknowledger knows it."""

    @property
    def event_id(self) -> str: ...

    def ack(self, event_id: str | None) -> None: ...
