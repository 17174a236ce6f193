"""What the newest completed checkpoint says of its components: the size of their state, and how far event time has come."""

from __future__ import annotations

import msgspec

from streamwork.epoch.history.lag import InputEnd
from streamwork.epoch.manifest import Manifest

MICROSECONDS = 1_000_000


class ComponentState(msgspec.Struct, frozen=True):
    """The state of one component."""

    keys: int | None  # None if it is not keyed
    bytes: dict[str, int]  # of its files, by instance


class EventTime(msgspec.Struct, frozen=True):
    """How far event time has come in one partition of a source."""

    source: str
    partition: str
    watermark: float  # seconds since 1970
    idle: bool  # it brings no events, and holds back no other partition


class Offsets(msgspec.Struct, frozen=True):
    """How far one partition of a source was read, and where its input ended when a driver last read that."""

    source: str
    partition: str
    unit: str
    read: int
    end: int


def read_states(at: Manifest | None) -> dict[str, ComponentState]:
    """By component; those without state are left out."""
    if at is None:
        return {}
    return {
        name: ComponentState(
            at.counters.get(name, {}).get("keys"),
            {instance: sum(ref.bytes for ref in chain) for instance, chain in instances.items()},
        )
        for name, instances in at.components.items()
        if instances
    }


def read_event_times(at: Manifest | None) -> tuple[EventTime, ...]:
    if at is None:
        return ()
    idle = {name for name, one in (at.idle or {}).items() if one.idle}
    return tuple(
        EventTime(*_ends(name), watermark / MICROSECONDS, name in idle)
        for name, watermark in sorted(at.watermarks.items())
    )


def read_offsets(ends: list[InputEnd], at: Manifest | None) -> tuple[Offsets, ...]:
    positions = {} if at is None else at.positions
    return tuple(
        Offsets(one.source, one.partition, one.unit, positions.get(f"{one.source}/{one.partition}", one.begin), one.end)
        for one in ends
    )


def _ends(name: str) -> tuple[str, str]:
    source, _, partition = name.partition("/")
    return source, partition
