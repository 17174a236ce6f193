"""`RewindingSource`: a source that stores how far it has come, and goes back a little at each restart."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import msgspec

from streamwork.components import Event, EventCollector, Instance, Located, OffsetSource, Source
from streamwork.components.duration import seconds
from streamwork.components.source import OnError
from streamwork.errors import Refused, WrongUse
from streamwork.manual.journal import Gap, Journal, Rewind
from streamwork.manual.positioned import Positioned
from streamwork.manual.store import ManualStore, Stored

E = TypeVar("E", bound=Positioned)
OnGap = Literal["refuse", "reread", "skip"]
AT_ONCE = 8_192
"""Maximum events of a partition in one call of `get_events`."""


class RewindingSource(Located, Source[E]):
    """Reads a source with offsets, for operators that keep their state by hand (`by_hand`).

    Each `every`, it stores how far it has emitted. At a start it goes back behind that by `rewind`: a number of events, or a
    duration (what was emitted in that time before the last store; the time between stores is how exact that is). What operators
    have already is ignored there.

    If an operator's stored offset is before the place where a restart begins, events would be missing. `on_gap` decides:
    "refuse" stops the job (SW-MANUAL-GAP), "reread" goes back as far as the operator needs, "skip" goes on without these events and
    records it (`gaps`).

    It emits events of a subclass of `Positioned`, with their partition and offset. The engine keeps nothing of it.
    """

    long_lived = True

    def __init__(
        self,
        source: OffsetSource[E],
        store: ManualStore,
        *,
        rewind: int | str,
        every: str | float = "1s",
        on_gap: OnGap = "refuse",
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not issubclass(source.event, Positioned):
            raise WrongUse(
                "SW-MANUAL-POSITION",
                f"{source.event.__name__} has no place for its partition and offset",
                f"write class {source.event.__name__}(Positioned): the input does not need the two fields",
            )
        if on_gap not in ("refuse", "reread", "skip"):
            raise WrongUse("SW-MANUAL-REWIND", f"on_gap={on_gap!r}", 'use "refuse", "reread" or "skip"')
        self._source = source
        self._store = store
        self._rewind = Rewind.of(rewind)
        self._every = seconds(every)
        self._on_gap = on_gap
        self._clock = clock
        self.bounded = source.bounded
        self.max_events = source.max_events
        self.path = Path()

    @property
    def event(self) -> type[Event]:
        return self._source.event

    def located(self, home: Path) -> Self:
        moved = copy.copy(self)
        moved._source, moved._store = at_home(self._source, home), at_home(self._store, home)
        return moved

    def with_on_error(self, on_error: OnError, override: bool = False) -> Self:
        mine = super().with_on_error(on_error, override)
        mine._source = self._source.with_on_error(on_error, override)
        return mine

    def setup_instance(self, instance: Instance) -> None:
        self._seat, saved = self._store.begin(instance.component, int(instance), instance.count)
        self._mine = self._source.partitions()[instance :: instance.count]
        self._journals = {
            name.decode(): msgspec.json.decode(content, type=Journal) for name, content in saved.records.items()
        }
        self._at: dict[str, int] | None = None  # offset by partition; None before the first call
        self._emitted: dict[str, int] = {}  # since the last store
        self._stored = self._clock()

    def get_events(self, collector: EventCollector) -> None:
        if self._at is None:
            self._at = self._begin()
        for partition, end in self._source.ends(self._at, AT_ONCE).items():
            start = self._at[partition]
            if end <= start:
                continue
            place = f"{self._seat.component}/{partition}"
            for piece in self._source.slices(self._seat.component, partition, start, end):
                for event, offset in zip(piece.events, piece.offsets.tolist(), strict=True):
                    collector.emit(msgspec.structs.replace(event, partition=place, offset=offset))
                self._emitted[partition] = self._emitted.get(partition, 0) + len(piece.given)
            self._at[partition] = end
        if self._clock() >= self._stored + self._every:
            self._save(self._at)

    def close(self) -> None:
        if getattr(self, "_at", None) is not None:
            self._save(self._at or {})
        self._store.close()

    def gaps(self) -> Mapping[str, tuple[Gap, ...]]:
        """By partition: what restarts with ``on_gap="skip"`` have left out."""
        return {partition: journal.gaps for partition, journal in self._journals.items() if journal.gaps}

    # ---- where it begins ------------------------------------------------------------------------------------------

    def _begin(self) -> dict[str, int]:
        """Called for the first events, when all operators have begun."""
        earliest = self._source.earliest(self._mine)
        latest = self._source.latest(self._mine) if self._source.start == "latest" else earliest
        readers = [one for one in self._store.all() if one.component != self._seat.component]
        found = {}
        for partition in self._mine:
            journal = self._journals.get(partition)
            if journal is None:
                found[partition] = latest.get(partition, 0)
                self._journals[partition] = Journal.begin(found[partition], self._clock())
                continue
            found[partition], gaps = self._restart(journal, partition, readers, earliest.get(partition, 0))
            self._journals[partition] = journal.rewound(found[partition], gaps)
        self._save(found)
        return found

    def _restart(self, journal: Journal, partition: str, readers: list[Stored], earliest: int) -> tuple[int, list[Gap]]:
        start = self._rewind.point(journal.points).offset
        place = f"{self._seat.component}/{partition}"
        needed = {(one.component, one.instance): one.offsets.get(place, journal.began) for one in readers}
        if self._on_gap == "reread":
            start = min([start, *needed.values()])
        begun = max(start, earliest)  # what is before that is gone
        gaps = [Gap(*one, offset, begun) for one, offset in needed.items() if offset < begun]
        if gaps and self._on_gap != "skip":
            raise _gap(place, min(gaps, key=lambda gap: gap.stored), gone=earliest > start)
        return begun, gaps

    def _save(self, at: Mapping[str, int]) -> None:
        now, changes = self._clock(), dict[bytes, bytes | None]()
        for partition, offset in at.items():
            journal = self._journals[partition].advanced(offset, self._emitted.pop(partition, 0), now, self._rewind)
            self._journals[partition] = journal
            changes[partition.encode()] = msgspec.json.encode(journal)
        self._store.save(self._seat, at, changes)
        self._stored = now


def at_home(component: Any, home: Path) -> Any:
    """With its relative path resolved against the folder of the job file."""
    return component.located(home) if isinstance(component, Located) else component


def _gap(place: str, gap: Gap, gone: bool) -> Refused:
    where = f"{gap.component}[{gap.instance}] has stored its state up to offset {gap.stored:,} of {place}"
    if gone:
        return Refused(
            "SW-MANUAL-GAP",
            f"{where}, and the input begins at offset {gap.begun:,} now: the events between are gone",
            'restore the input; or use on_gap="skip" to go on without these events, which are then recorded as a gap',
        )
    return Refused(
        "SW-MANUAL-GAP",
        f"{where}, and this restart begins behind that, at offset {gap.begun:,}: the events between would be missing",
        'raise rewind= beyond the interval of the operators, or use on_gap="reread" to go back as far as they need; '
        'on_gap="skip" goes on without these events, and records the gap',
    )
