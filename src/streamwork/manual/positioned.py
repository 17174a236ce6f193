"""`Positioned`: an event that knows its place in the input."""

from __future__ import annotations

import msgspec

from streamwork.components import Event

NOWHERE = -1


class Positioned(Event, frozen=True, kw_only=True):
    """The base class of events that a `RewindingSource` emits. It fills in both fields: the input needs none of them."""

    partition: str = ""
    offset: int = NOWHERE


def placed(event: Positioned, partition: str, offset: int) -> Positioned:
    """The event with its place."""
    msgspec.structs.force_setattr(event, "partition", partition)  # it was made by the source, and is not shared yet
    msgspec.structs.force_setattr(event, "offset", offset)
    return event
