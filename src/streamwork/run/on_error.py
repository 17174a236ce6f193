"""``--on-error COMPONENT=POLICY``: other error policies for one run, and advice on when to use one."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from streamwork.components.operator import check_batches
from streamwork.components.source import check_on_error
from streamwork.errors import StreamworkError, WrongUse
from streamwork.job import Graph, Node, NodeKind
from streamwork.job.job import resolved
from streamwork.job.retry import policy, policy_of_sink


def with_on_error(graph: Graph, chosen: Mapping[str, str]) -> Graph:
    """The graph with another `on_error` for these components."""
    known = {node.id for node in graph.nodes}
    if unknown := [component for component in chosen if component not in known]:
        raise WrongUse(
            "SW-USAGE",
            f"--on-error names {unknown[0]!r}, which job {graph.job} does not have",
            f"use one of: {', '.join(sorted(known))}",
        )
    return (
        replace(graph, nodes=tuple(_changed(graph, node, chosen.get(node.id)) for node in graph.nodes))
        if chosen
        else graph
    )


def _changed(graph: Graph, node: Node, on_error: str | None) -> Node:
    if on_error is None:
        return node
    if node.kind is NodeKind.SOURCE:
        return replace(node, component=node.component.with_on_error(check_on_error(on_error), override=True))
    if node.kind is NodeKind.SINK:
        return replace(node, on_error=policy_of_sink(node.id, on_error) or "")
    then, retry = policy(on_error)
    check_batches(node.component, then, retry is not None)
    return resolved(replace(node, on_error=then or "", retry=retry), graph.promise)


def advise(error: StreamworkError, command: Sequence[str]) -> None:
    """Add to an error about one event the exact command that sets this event aside and continues. `command` is what was run."""
    if not (error.about_one_event and error.component):
        return
    if not command:
        how = f'give {error.component} on_error="dead-letter", and start again'
    else:
        how = shlex.join([*command, "--on-error", f"{error.component}=dead-letter"])
    error.action += f". To set such events aside as dead letters, and continue: {how}"
