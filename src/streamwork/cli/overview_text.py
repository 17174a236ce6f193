"""The text of ``streamwork status`` about all jobs of a root, about the graph of a job, and of ``checkpoints --show``."""

from __future__ import annotations

from rich.table import Table

from streamwork.cli.output import cell, console, say
from streamwork.observe.epoch import EpochDetails
from streamwork.observe.job_graph import JobGraph
from streamwork.observe.rates import Behind, SourceRate
from streamwork.observe.summary import JobSummary, Overview
from streamwork.wording import plural

WIDTH = 130


def show_overview(found: Overview) -> None:
    say(f"root {found.root}: {plural(len(found.jobs), 'job')}")
    if not found.jobs:
        return
    table = Table("job", "mode", "semantics", "checkpoint", "read/s", "lag", "verdict", box=None)
    for one in found.jobs:
        table.add_row(
            cell(one.job),
            one.mode,
            one.semantics,
            "" if one.checkpoint is None else str(one.checkpoint),
            _reading(one.rate),
            _lag(one.lag),
            cell(_sentence(one)),
        )
    console(width=max(WIDTH, console().width)).print(table)


def _sentence(one: JobSummary) -> str:
    return one.problem or ("" if one.verdict is None else one.verdict.text)


def _reading(rate: SourceRate | None) -> str:
    return "" if rate is None else f"{rate.reading:,.0f} {rate.unit}".strip()


def _lag(lag: Behind | None) -> str:
    return "" if lag is None else f"{lag.total:,} {lag.unit}".strip()


def show_graph(graph: JobGraph) -> None:
    table = Table("component", "kind", "rate/s", "processed", "state", "skew", "reads from", box=None)
    for node in graph.nodes:
        before = [f"{edge.sender}:{edge.channel}" if edge.channel else edge.sender for edge in graph.edges_to(node.id)]
        state = "" if node.state is None else f"{node.state.bytes:,} bytes"
        if node.state is not None and node.state.keys is not None:
            state = f"{plural(node.state.keys, 'key')}, {state}"
        table.add_row(
            cell(node.id),
            node.kind,
            "" if node.rate is None else f"{node.rate:,.1f}",
            f"{node.processed:,}",
            state,
            "" if node.skew is None else f"{node.skew:.2f}",
            cell(", ".join(before)),
        )
    console(width=max(WIDTH, console().width)).print(table)


def show_epoch(found: EpochDetails) -> None:
    say(f"epoch {found.epoch} of job {found.job}, root {found.root}: {found.state.value}")
    for row in found.attempts:
        say(
            f"fence {row.fence}: {row.outcome.value}, {plural(row.events, 'event')}{', ' + row.note if row.note else ''}"
        )
    if found.plan is not None:
        say(f"read from {found.plan.start} to {found.plan.end}, after epoch {found.plan.parent}")
    if found.manifest is not None:
        say(f"manifest {found.manifest.sha256}, positions {found.manifest.positions}")
    if found.files:
        table = Table("file", "kind", "component", "bytes", "sha256", box=None)
        for file in found.files:
            there = "" if file.present else " (missing)"
            name = file.component + (f"[{file.instance}]" if file.instance else "")
            table.add_row(cell(file.path + there), file.kind, cell(name), f"{file.bytes:,}", file.sha256[:16])
        console(width=max(WIDTH, console().width)).print(table)
    if found.instances:
        table = Table("component", "outcome", "processed", "delivered", "dropped", "dead letters", box=None)
        for one in found.instances:
            name = one.component if one.instance < 0 else f"{one.component}[{one.instance}]"
            numbers = [f"{one.counts[kind]:,}" for kind in ("processed", "delivered", "dropped", "dead_letters")]
            table.add_row(cell(name), one.outcome.value, *numbers)
        console(width=max(WIDTH, console().width)).print(table)
    for problem in found.problems:
        say(problem)
