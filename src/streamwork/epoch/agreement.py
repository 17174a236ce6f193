"""Do the attempts of an epoch fit together?

A task may be run again after its output was consumed (Spark does that when a worker is lost). Then the state that is kept and
the outputs that were made from it would come from different attempts, which differ where operators are random. Each instance
says which upstream attempts it consumed; an epoch counts only if these are the very attempts that reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from streamwork.engine import Report
from streamwork.job import Graph, Layout


def missing(graph: Graph, reports: Sequence[Report]) -> str:
    """Whether every instance of every component has reported exactly once; else what is wrong."""
    told = Counter((report.component, report.instance) for report in reports)
    wanted = Counter((node.id, number) for node in graph.nodes for number in range(node.parallelism))
    lacking = [f"{component}[{instance}] is missing" for component, instance in wanted - told]
    return ", ".join(lacking + [f"{component}[{instance}] came twice" for component, instance in told - wanted])


def disagreement(layout: Layout, reports: Sequence[Report]) -> str:
    """Where an instance consumed other attempts than those that reported; empty if all agree."""
    attempts: dict[int, set[str]] = {}
    for report in reports:
        attempts.setdefault(layout.chain_of(report.component), set()).add(report.attempt)
    for report in reports:
        upstream = layout.upstream[layout.chain_of(report.component)]
        reported: set[str] = set().union(*(attempts.get(one, set()) for one in upstream))
        if set(report.consumed) != reported:
            return (
                f"{report.component}[{report.instance}] consumed attempts {sorted(report.consumed)}, but {sorted(reported)} "
                "reported"
            )
    return ""
