"""Routing: which instances of the next component an event goes to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import pairwise
from typing import Any

import numpy as np

from streamwork.components import Key
from streamwork.components.columns import Columns, as_events
from streamwork.components.grouping import AllInstances, Fields, Shuffle, Single
from streamwork.components.keys import instance_of
from streamwork.flow.blame import Blame
from streamwork.flow.lineage import Tracked
from streamwork.flow.origins import NONE, from_content, turns
from streamwork.job import Graph, Node, Port

Events = list[Any] | Columns
MOST_KEYS = 1_000_000  # whose instance is remembered


class Route(ABC):
    """Chooses by what an event is and where it comes from: never by epoch, attempt, or what came before it. So input that is read
    again goes the same way, wherever epochs are cut.
    """

    @abstractmethod
    def __call__(self, events: Events) -> dict[int, Events]:
        """Instance -> its events, in order; columns stay columns."""


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

    def __call__(self, events: Events) -> dict[int, Events]:
        return dict.fromkeys(self._instances, events)


class _InTurn(Route):
    """To one instance, in rotation, by the position of the event (`flow.origins`)."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __call__(self, events: Events) -> dict[int, Events]:
        return _shared(events, turns(_origins(events), self._count), self._count)


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
            return _shared(events, np.fromiter(instances, np.int64, len(events)), self._count)
        shares: list[list[Any]] = [[] for _ in range(self._count)]
        add = [share.append for share in shares]
        for event, instance in zip(events, instances, strict=True):
            add[instance](event)
        return {instance: share for instance, share in enumerate(shares) if share}

    def _split(self, events: Columns) -> dict[int, Events]:
        columns = [events.batch.column(name) for name in self._key.fields]
        instances = self._key.column_instances(columns, self._count, self._groups)
        return _shared(events, instances, self._count)


def _shared(events: Events, instances: np.ndarray[Any, Any], count: int) -> dict[int, Events]:
    """One sort of all events by instance, which keeps their order; each share is a part of the result."""
    order = np.argsort(instances, kind="stable")
    bounds = np.searchsorted(instances[order], np.arange(count + 1)).tolist()
    if isinstance(events, Columns):
        sorted_events: Events = events.take(order)
    elif isinstance(events, Tracked):
        places = order.tolist()
        sorted_events = Tracked([list.__getitem__(events, at) for at in places], [events.marks[at] for at in places])
    else:
        sorted_events = [events[at] for at in order.tolist()]
    return {instance: sorted_events[start:end] for instance, (start, end) in enumerate(pairwise(bounds)) if end > start}


def _origins(events: Events) -> np.ndarray[Any, Any]:
    """Of events that have no position, what is in them decides."""
    if isinstance(events, Columns):
        return np.array(from_content(events.events)) if events.origins is None else _known(events, events.origins)
    if not isinstance(events, Tracked):
        return np.array(from_content(events))
    return _known(events, np.array([mark.origin for mark in events.marks], np.int64))


def _known(events: Events, origins: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    missing = np.flatnonzero(origins == NONE)
    if len(missing):
        origins, content = origins.copy(), as_events(events)
        origins[missing] = from_content(content[at] for at in missing.tolist())
    return origins


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
