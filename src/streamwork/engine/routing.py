"""Routing: which instances of the next component an event goes to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from streamwork.components import Key
from streamwork.components.columns import Columns
from streamwork.components.grouping import AllInstances, Fields, Shuffle, Single
from streamwork.components.keys import instance_of
from streamwork.engine.blame import Blame
from streamwork.engine.tracked import Tracked
from streamwork.job import Graph, Node

Events = list[Any] | Columns
MOST_KEYS = 1_000_000  # whose instance is remembered


class Route(ABC):
    def begin(self, epoch: int) -> None:  # noqa: B027 (most have nothing to do)
        """What is chosen may depend on the epoch, never on the one before: an epoch that is computed again goes the same way."""

    @abstractmethod
    def __call__(self, events: Events) -> dict[int, Events]:
        """Instance -> its events, in order; columns stay columns."""


def route_to(graph: Graph, before: Node, node: Node, groups: int, sender: int) -> Route:
    """How events that the instance `sender` of `before` emits reach `node`."""
    count = node.parallelism
    if count == 1 or isinstance(node.grouping, Single):
        return _ToEach((0,))
    if isinstance(node.grouping, AllInstances):
        return _ToEach(tuple(range(count)))
    if node.key is not None:
        return _ByKey(node.key, count, groups, Blame.of(graph, node.inputs))
    if isinstance(node.grouping, Fields):
        given = graph[node.inputs[0].node].emits(node.inputs[0].channel)
        assert given is not None
        return _ByKey(Key.of(given, node.grouping.fields), count, groups, Blame.of(graph, node.inputs))
    if isinstance(node.grouping, Shuffle):
        return _InTurn(count, sender)
    return _ToEach((sender * count // before.parallelism,))  # what an instance emits stays together, and in order


class _ToEach(Route):
    def __init__(self, instances: tuple[int, ...]) -> None:
        self._instances = instances

    def __call__(self, events: Events) -> dict[int, Events]:
        return dict.fromkeys(self._instances, events)


class _InTurn(Route):
    def __init__(self, count: int, first: int) -> None:
        self._count = count
        self._first = self._turn = first

    def begin(self, epoch: int) -> None:
        self._turn = self._first + epoch  # else epochs of one event would all go to one instance

    def __call__(self, events: Events) -> dict[int, Events]:
        count, turn = self._count, self._turn
        self._turn += len(events)
        starts = {instance: (instance - turn) % count for instance in range(count)}
        if isinstance(events, Columns):
            places = {i: pa.array(np.arange(at, len(events), count)) for i, at in starts.items() if at < len(events)}
            return {i: Columns(events.kind, events.batch.take(mine)) for i, mine in places.items()}
        return {instance: events[at::count] for instance, at in starts.items() if at < len(events)}


class _ByKey(Route):
    def __init__(self, key: Key, count: int, groups: int, blame: Blame) -> None:
        self._key = key
        self._count = count
        self._groups = groups
        self._blame = blame
        self._instance = _Instances(key, count, groups)

    def __call__(self, events: Events) -> dict[int, Events]:
        if isinstance(events, Columns):
            return self._split(events)
        try:
            return self._dealt(events)
        except Exception:  # a key that does not fit its type, and was not asked to so far
            self._blame.check(events)
            raise

    def _dealt(self, events: list[Any]) -> dict[int, Events]:
        instances = map(self._instance.__getitem__, self._key.values(events))
        if isinstance(events, Tracked):
            found = [Tracked() for _ in range(self._count)]
            for event, root, instance in zip(events, events.roots, instances, strict=True):
                found[instance].append(event)
                found[instance].roots.append(root)
            return {instance: share for instance, share in enumerate(found) if share}
        shares: list[list[Any]] = [[] for _ in range(self._count)]
        add = [share.append for share in shares]
        for event, instance in zip(events, instances, strict=True):
            add[instance](event)
        return {instance: share for instance, share in enumerate(shares) if share}

    def _split(self, events: Columns) -> dict[int, Events]:
        """One sort of all rows by instance, which keeps their order; each share is a part of the result."""
        columns = [events.batch.column(name) for name in self._key.fields]
        instances = self._key.column_instances(columns, self._count, self._groups)
        order = np.argsort(instances, kind="stable")
        bounds = np.searchsorted(instances[order], np.arange(self._count + 1)).tolist()
        batch = events.batch.take(pa.array(order))
        return {
            instance: Columns(events.kind, batch.slice(start, end - start))
            for instance, (start, end) in enumerate(pairwise(bounds))
            if end > start
        }


class _Instances(dict[Any, int]):
    """Key value -> its instance. Hashing a key's bytes costs more than finding it here."""

    def __init__(self, key: Key, count: int, groups: int) -> None:
        self._key = key
        self._count = count
        self._groups = groups

    def __missing__(self, value: Any) -> int:
        if len(self) >= MOST_KEYS:
            self.clear()
        instance = instance_of(self._key.groups([value], self._groups)[0], self._count, self._groups)
        self[value] = instance
        return instance
