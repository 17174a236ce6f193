"""`MemoryStore`: state by hand in memory, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from streamwork.manual.store import Changes, ManualStore, Saved, Seat, Stored, fenced, other_instances


class MemoryStore(ManualStore):
    """All copies are the same store, so it survives a crash in the simulator (`streamwork.testing`). One process only."""

    def __init__(self) -> None:
        self._instances: dict[tuple[str, int], tuple[int, int]] = {}  # how many, fence
        self._saved: dict[tuple[str, int], Saved] = {}

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    def __copy__(self) -> Self:
        return self

    def begin(self, component: str, instance: int, instances: int) -> tuple[Seat, Saved]:
        place = (component, instance)
        stored, fence = self._instances.get(place, (instances, 0))
        if stored != instances:
            raise other_instances(component, stored, instances)
        self._instances[place] = instances, fence + 1
        saved = self._saved.get(place, Saved())
        return Seat(component, instance, fence + 1), Saved(dict(saved.offsets), dict(saved.records))

    def save(self, seat: Seat, offsets: Mapping[str, int], changes: Changes) -> None:
        place = (seat.component, seat.instance)
        if self._instances[place][1] != seat.fence:
            raise fenced(seat)
        records = {**self._saved.get(place, Saved()).records, **changes}
        self._saved[place] = Saved(dict(offsets), {name: one for name, one in records.items() if one is not None})

    def all(self) -> list[Stored]:
        return [
            Stored(component, instance, count, fence, dict(self._saved.get((component, instance), Saved()).offsets))
            for (component, instance), (count, fence) in sorted(self._instances.items())
        ]

    def close(self) -> None:
        """Nothing is open."""
