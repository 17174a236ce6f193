"""Routing: which instances of the next component an event goes to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamwork.components import Key
from streamwork.components.grouping import AllInstances, Fields, Single
from streamwork.components.keys import instance_of
from streamwork.job import Graph, Node

Route = Callable[[list[Any]], dict[int, list[Any]]]  # events -> instance -> its events, in order


def route_to(graph: Graph, node: Node, groups: int, first: int) -> Route:
    """How events reach `node`; `first` is where taking turns begins."""
    count = node.parallelism
    if count == 1 or isinstance(node.grouping, Single):
        return lambda events: {0: events}
    if isinstance(node.grouping, AllInstances):
        return lambda events: dict.fromkeys(range(count), events)
    if node.key is not None:
        return _by_key(node.key, count, groups)
    if isinstance(node.grouping, Fields):
        given = graph[node.inputs[0].node].emits(node.inputs[0].channel)
        assert given is not None
        return _by_key(Key.of(given, node.grouping.fields), count, groups)
    return _in_turn(count, first)


def _by_key(key: Key, count: int, groups: int) -> Route:
    known: dict[Any, int] = {}

    def route(events: list[Any]) -> dict[int, list[Any]]:
        shares: dict[int, list[Any]] = {}
        for event, value in zip(events, key.values(events), strict=True):
            instance = known.get(value)
            if instance is None:
                group = key.groups([value], groups)[0]
                instance = known[value] = instance_of(group, count, groups)
            shares.setdefault(instance, []).append(event)
        return shares

    return route


def _in_turn(count: int, first: int) -> Route:
    turn = first

    def route(events: list[Any]) -> dict[int, list[Any]]:
        nonlocal turn
        shares: dict[int, list[Any]] = {}
        for event in events:
            shares.setdefault(turn % count, []).append(event)
            turn += 1
        return shares

    return route
