"""What the components of a job count, and what must hold of it. Pure.

    processed == delivered + ended early + dropped + dead letters + failed        CLOSED: per component and epoch

`failed` are events that come again, under acknowledging. `replayed` are those that came again, or out of the inbox; they are
among the processed ones. `retried` are the tries, in place, at events that had failed before (`on_error=Retry(...)`): an event is
processed once, however often it was tried. `late` are the events that came too late for all their windows, or for a join; they are
among the delivered ones, also if no component reads their channel. Timers that came due are counted like events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

ENDS = ("delivered", "ended_early", "dropped", "dead_letters", "failed")
"""The outcomes of an event that a component has processed: exactly one of these."""
KINDS = ("processed", *ENDS, "replayed", "retried", "late")
TOGETHER = -1
"""Stands for all instances of a component, where the instance is not known."""


class Counts(msgspec.Struct, frozen=True):
    """What one instance of a component has counted in one epoch."""

    component: str
    instance: int
    processed: int = 0
    delivered: int = 0
    ended_early: int = 0
    dropped: int = 0
    dead_letters: int = 0
    failed: int = 0
    replayed: int = 0
    retried: int = 0
    late: int = 0

    @classmethod
    def of(cls, component: str, instance: int, counters: Mapping[str, int]) -> Counts:
        return cls(component, instance, *(counters.get(kind, 0) for kind in KINDS))

    @property
    def numbers(self) -> dict[str, int]:
        return {kind: getattr(self, kind) for kind in KINDS}


Refusals = Mapping[str, tuple[str, int]]
"""Sink -> how the rows that it refused at the commit were handled ("dead_letters" or "dropped"), and their number."""


def is_closed(counters: Mapping[str, int]) -> bool:
    """CLOSED, of one component in one completed epoch."""
    numbers = [counters.get(kind, 0) for kind in KINDS]
    return min(numbers) >= 0 and counters.get("processed", 0) == sum(counters.get(end, 0) for end in ENDS)


def not_closed(counters: Mapping[str, Mapping[str, int]]) -> dict[str, Mapping[str, int]]:
    """The components, with what they counted, of which CLOSED does not hold."""
    return {name: counted for name, counted in counters.items() if not is_closed(counted)}


def broken_off(counters: Mapping[str, int]) -> dict[str, int]:
    """What a component had counted when its attempt broke off, made to fit.

    Events are counted as processed when the whole list that they came in is done, but those that could not be done at once: so
    these may be ahead.
    """
    found = {kind: counters.get(kind, 0) for kind in KINDS}
    known = sum(found[end] for end in ENDS if end != "ended_early")
    found["processed"] = max(found["processed"], known)
    found["ended_early"] = found["processed"] - known
    return found


def summed(counts: Iterable[Counts]) -> dict[str, dict[str, int]]:
    """By component, over its instances."""
    found: dict[str, Counter[str]] = {}
    for one in counts:
        found.setdefault(one.component, Counter()).update(one.numbers)
    return {name: {kind: numbers[kind] for kind in KINDS} for name, numbers in found.items()}


def final_counts(
    counters: Mapping[str, Mapping[str, int]], reported: Sequence[Counts], refused: Refusals
) -> list[Counts]:
    """The counts of a completed epoch, by instance where it is known.

    `counters` are those of the manifest, `reported` those of the instances' reports. They differ where the driver has decided
    something (an event has failed for the last time), and so they do where a sink has `refused` rows after the reports.
    """
    by_instance = summed(reported)
    found: list[Counts] = []
    for name, counted in counters.items():
        numbers = {kind: counted.get(kind, 0) for kind in KINDS}
        if name in refused:
            what, rows = refused[name]
            numbers["delivered"] -= rows
            numbers[what] += rows
        if by_instance.get(name) == numbers:
            found += [one for one in reported if one.component == name]
        else:
            found.append(Counts.of(name, TOGETHER, numbers))
    return found
