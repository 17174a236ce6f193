"""Routing: the instances of the next component that an event goes to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import pairwise
from typing import Any

import numpy as np

from streamwork.components import Key
from streamwork.components.columns import Columns
from streamwork.components.grouping import AllInstances, Fields, Shuffle, Single
from streamwork.components.keys import instance_of
from streamwork.flow.batch import Batch
from streamwork.flow.blame import Blame
from streamwork.flow.origins import NONE, from_content, turns
from streamwork.job import Graph, Node, Port

MOST_KEYS = 1_000_000  # whose instance is cached
Shares = dict[int, Batch]
"""Instance -> its events, in order."""


class Route(ABC):
    """Chooses by the content of an event and by its origin: never by epoch, attempt, or earlier events. So replayed input takes
    the same route, wherever epochs are cut.
    """

    @abstractmethod
    def __call__(self, batch: Batch) -> Shares:
        """The share of each instance; columns stay columns."""


def route_to(graph: Graph, before: Node, node: Node, port: Port, groups: int, sender: int) -> Route:
    """The route of events that the instance `sender` of `before` emits to a port of `node`."""
    count = node.parallelism
    if count == 1 or isinstance(port.grouping, Single):
        return _ToEach((0,))
    if isinstance(port.grouping, AllInstances):
        return _ToEach(tuple(range(count)))
    if port.key is not None:
        return _ByKey(port.key, count, groups, Blame.of(graph, port.inputs))
    if isinstance(port.grouping, Fields):
        given = graph[port.inputs[0].node].emits(port.inputs[0].channel)
        assert given is not None
        return _ByKey(Key.of(given, port.grouping.fields), count, groups, Blame.of(graph, port.inputs))
    if isinstance(port.grouping, Shuffle):
        return _InTurn(count)
    return _ToEach((sender * count // before.parallelism,))  # what an instance emits stays together, and in order


class _ToEach(Route):
    def __init__(self, instances: tuple[int, ...]) -> None:
        self._instances = instances

    def __call__(self, batch: Batch) -> Shares:
        return dict.fromkeys(self._instances, batch)


class _InTurn(Route):
    """To one instance, in rotation, by the origin of the event (`flow.origins`)."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __call__(self, batch: Batch) -> Shares:
        return _shared(batch, turns(_origins(batch), self._count), self._count)


class _ByKey(Route):
    def __init__(self, key: Key, count: int, groups: int, blame: Blame) -> None:
        self._key = key
        self._count = count
        self._groups = groups
        self._blame = blame
        self._instance = _Instances(key, count, groups)

    def __call__(self, batch: Batch) -> Shares:
        if isinstance(batch.given, Columns):
            return self._split(batch, batch.given)
        try:
            return self._dealt(batch, batch.given)
        except Exception:  # the key of an event that was not checked so far may not fit its type
            self._blame.check(batch.given)
            raise

    def _dealt(self, batch: Batch, events: list[Any]) -> Shares:
        instances = map(self._instance.__getitem__, self._key.values(events))
        if batch.lineage is not None:
            return _shared(batch, np.fromiter(instances, np.int64, len(events)), self._count)
        shares: list[list[Any]] = [[] for _ in range(self._count)]
        add = [share.append for share in shares]
        for event, instance in zip(events, instances, strict=True):
            add[instance](event)
        return {instance: Batch(share) for instance, share in enumerate(shares) if share}

    def _split(self, batch: Batch, columns: Columns) -> Shares:
        keys = [columns.batch.column(name) for name in self._key.fields]
        return _shared(batch, self._key.column_instances(keys, self._count, self._groups), self._count)


def _shared(batch: Batch, instances: np.ndarray[Any, Any], count: int) -> Shares:
    """Sort the events by instance once, keeping their order; each share is a part of the result."""
    order = np.argsort(instances, kind="stable")
    bounds = np.searchsorted(instances[order], np.arange(count + 1)).tolist()
    ordered = batch.take(order)
    return {instance: ordered[start:end] for instance, (start, end) in enumerate(pairwise(bounds)) if end > start}


def _origins(batch: Batch) -> np.ndarray[Any, Any]:
    """The origins of the events. The content of an event stands in for an origin that it does not have."""
    origins = None if batch.lineage is None else batch.lineage.origins
    if origins is None:
        return np.array(from_content(batch.events))
    missing = np.flatnonzero(origins == NONE)
    if len(missing):
        origins, events = origins.copy(), batch.events
        origins[missing] = from_content(events[at] for at in missing.tolist())
    return origins


class _Instances(dict[Any, int]):
    """Key value -> its instance. Hashing a key's bytes costs more than a look-up here."""

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
