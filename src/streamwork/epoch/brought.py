"""The events that an epoch processes besides its slices of the sources: replayed dead letters and events to be retried."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from streamwork.delivery import Replay, Waiting


class Brought(msgspec.Struct, frozen=True):
    replays: tuple[Replay, ...] = ()
    lanes: dict[str, int] = {}  # under acknowledging: source/partition -> its lane
    instances: dict[str, int] = {}  # source/partition -> the instance that reads it
    again: tuple[Waiting, ...] = ()  # the events of lane 0

    def share(self, nodes: Iterable[str], instance: int) -> tuple[Replay, ...]:
        """The replays of one instance of a chain."""
        mine = set(nodes)
        return tuple(
            one for one in self.replays if one.component.partition(":")[0] in mine and one.instance == instance
        )
