"""The inlet of a chain: small slices of a source are joined for operators that work on whole columns.

The fixed cost of a batch is shared by its rows, and a window that reduces before it sends reduces more. Operators that take one
event at a time get slices as the source reads them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from streamwork.components import Slice
from streamwork.components.columns import Columns, as_columns
from streamwork.components.table_operator import TableOperator
from streamwork.engine.steps.batch_steps import ROWS
from streamwork.job import Graph
from streamwork.operators.functions import Where


def takes_columns(graph: Graph, node_id: str) -> bool:
    """True if all components that get a component's events work on columns: table operators, perhaps behind filters."""
    behind = [node for node in graph.nodes if any(one.node == node_id for one in node.inputs)]
    return bool(behind) and all(
        isinstance(node.component, TableOperator)
        or (isinstance(node.component, Where) and takes_columns(graph, node.id))
        for node in behind
    )


def gathered(slices: Iterator[Slice], rows: int = ROWS) -> Iterator[Slice]:
    """The same events of one partition, in slices of at least `rows` events where they are columns. Lists stay as they are."""
    run: list[Slice] = []
    count = 0
    for one in slices:
        if not isinstance(one.given, Columns):
            yield from _joined(run)
            yield one
            run, count = [], 0
            continue
        run.append(one)
        count += len(one.given)
        if count >= rows:
            yield from _joined(run)
            run, count = [], 0
    yield from _joined(run)


def _joined(run: list[Slice]) -> list[Slice]:
    """One slice, unless that is beyond the limit of a batch."""
    given = [one.given for one in run]
    first = given[0] if given else None
    if (
        len(run) < 2
        or not isinstance(first, Columns)
        or any(one.left_out.keys() != run[0].left_out.keys() for one in run)
    ):
        return run
    columns = as_columns(first.kind, given, "")
    if len(columns) != 1:
        return run
    left_out = {name: sum(one.left_out[name] for one in run) for name in run[0].left_out}
    found = Slice(
        columns[0], lambda: np.concatenate([one.offsets for one in run]), sum(one.dropped for one in run), left_out
    )
    found.letters = [letter for one in run for letter in one.letters]
    return [found]
