"""The number of instances of a component for which the job sets none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamwork.components import OffsetSource
from streamwork.components.grouping import Single
from streamwork.errors import StreamworkError
from streamwork.job.node import Node, NodeKind


def instances(node: Node, asked: int | None, of_job: int, before: Sequence[Node]) -> int:
    """The number of instances of a component that reads from `before`.

    As asked for; else

        a source with offsets     the smaller of the job's parallelism and the number of its partitions
        another source            1: only its author knows how instances could divide its input
        a keyed operator, or
        an operator with a        the job's parallelism; 1 behind `single()`
        grouping
        any other step, a sink    as many as its input; with a union, as many as the input with the most. So events stay in
                                  their instance, and in order
    """
    if asked is not None:
        return asked
    if node.kind is NodeKind.SOURCE:
        return min(of_job, _partitions(node.component, of_job)) if isinstance(node.component, OffsetSource) else 1
    if any(isinstance(port.grouping, Single) for port in node.ports):
        return 1
    if node.is_routed:
        return of_job
    return max(one.parallelism for one in before)


def _partitions(source: OffsetSource[Any], otherwise: int) -> int:
    """The number of partitions of a source, if it is fixed and known."""
    try:
        found = source.fixed_partitions()
    except StreamworkError:  # the input does not exist yet; the run reports it when it plans
        return otherwise
    return otherwise if found is None else max(1, found)
