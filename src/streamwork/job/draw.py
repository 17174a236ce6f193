"""A graph as text and as a Mermaid diagram."""

from __future__ import annotations

from streamwork.job.graph import Graph
from streamwork.job.node import Node, NodeKind

_SHAPES = {NodeKind.SOURCE: ('(["', '"])'), NodeKind.OPERATOR: ('["', '"]'), NodeKind.SINK: ('[("', '")]')}


def describe(graph: Graph) -> str:
    """One line per component: id, class, inputs, types and key."""
    rows = [("id", "component", "reads", "types", "key")]
    rows += [
        (node.id, node.title, ", ".join(map(str, node.inputs)) or "-", _types(node), _key(node) or "-")
        for node in graph.nodes
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([f"job {graph.job}", *(f"  {line}" for line in lines)])


def to_mermaid(graph: Graph) -> str:
    """A diagram that GitHub, GitLab and most editors render."""
    numbers = {node.id: f"n{i}" for i, node in enumerate(graph.nodes)}
    lines = ["flowchart LR"]
    for node in graph.nodes:
        opening, closing = _SHAPES[node.kind]
        kept = f"<br/>keeps {node.keeps.__name__}" if node.keeps else ""
        lines.append(f"    {numbers[node.id]}{opening}{node.id}<br/><i>{node.title}</i>{kept}{closing}")
    for node in graph.nodes:
        for one in node.inputs:
            given = graph[one.node].emits(one.channel)
            label = (given.__name__ if given else "") + (f" by {_key(node)}" if node.key else "")
            lines.append(f"    {numbers[one.node]} -->|{label}| {numbers[node.id]}")
    return "\n".join(lines)


def _types(node: Node) -> str:
    parts = [kind.__name__ for kind in (node.takes, node.keeps, node.gives) if kind is not None]
    return " -> ".join(parts)


def _key(node: Node) -> str:
    return ", ".join(node.key.fields) if node.key else ""
