"""`KeyCheck`: the check that an instance holds the keys that reach it without an exchange."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from streamwork.components import Key
from streamwork.components.keys import instance_of
from streamwork.errors import JobFailed
from streamwork.job import Graph, Node, NodeKind


class KeyCheck:
    """Called with each key when a keyed step first sees it; a key that belongs to another instance fails the job.

    A step behind an exchange needs no check: the exchange has routed its keys.
    """

    def __init__(self, graph: Graph, node: Node, instance: int, groups: int) -> None:
        assert node.key is not None
        self._graph = graph
        self._node = node
        self._key = node.key
        self._instance = instance
        self._groups = groups

    def __call__(self, keys: list[Any]) -> None:
        for key, group in zip(keys, self._key.groups(keys, self._groups), strict=True):
            if (home := instance_of(group, self._node.parallelism, self._groups)) != self._instance:
                raise self._moved(key, home)

    def check_columns(self, batch: pa.RecordBatch, key: Key) -> None:
        """The same for the rows of a batch, whose fields of the key may have other names at this port."""
        columns = [batch.column(name) for name in key.fields]
        homes = key.column_instances(columns, self._node.parallelism, self._groups)
        moved = np.flatnonzero(homes != self._instance)
        if len(moved):
            first = moved[0]
            parts = tuple(column[int(first)].as_py() for column in columns)
            raise self._moved(parts[0] if len(parts) == 1 else parts, int(homes[first]))

    def _moved(self, key: Any, home: int) -> JobFailed:
        fields = ", ".join(self._key.fields)
        claimed = list(dict.fromkeys(self._claims(self._node)))
        who = " or ".join(claimed) or "the source"
        return JobFailed(
            "SW-KEY-MOVED",
            f"{self._node.id} (instance {self._instance}) got an event with {fields} = {key!r}, whose state is in instance {home}: "
            f"{who} claims to keep {fields}, but has emitted another value than it was given",
            f"emit events with the {fields} of the event that was given, or remove keeps_key = True from {who}; then start "
            "again: the last checkpoint is good",
            retryable=False,
        )

    def _claims(self, node: Node) -> Iterable[str]:
        """The operators before a node, as far as the last exchange by its key, that declare `keeps_key`."""
        for one in node.inputs:
            before = self._graph[one.node]
            if before.kind is not NodeKind.OPERATOR:
                continue
            if not getattr(before.component, "preserves_events", False):
                yield before.id
            if before.key is None:
                yield from self._claims(before)
