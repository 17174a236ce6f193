"""Groupings: which instances of the next component get an event."""

from __future__ import annotations

import msgspec


class Grouping(msgspec.Struct, frozen=True, tag=True):
    """A way to select instances."""


class Shuffle(Grouping, frozen=True):
    """To the instances in turn, by the position of the event in its source. The order of events is lost."""


class Fields(Grouping, frozen=True):
    """Events with equal values of these fields to the same instance."""

    fields: tuple[str, ...]


class AllInstances(Grouping, frozen=True):
    """To every instance."""


class Single(Grouping, frozen=True):
    """All to the first instance."""


def shuffle() -> Grouping:
    return Shuffle()


def fields(*names: str) -> Grouping:
    return Fields(names)


def all_instances() -> Grouping:
    return AllInstances()


def single() -> Grouping:
    return Single()
