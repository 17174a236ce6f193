"""Groupings: to which instances of the next component an event goes."""

from __future__ import annotations

import msgspec


class Grouping(msgspec.Struct, frozen=True, tag=True):
    """One way to choose."""


class Shuffle(Grouping, frozen=True):
    """To one instance, in rotation: the position of an event in its source decides. Order is lost behind it."""


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
