"""Summaries of the reports of an epoch, by component, as a manifest names them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from streamwork.components import Position
from streamwork.engine import Report
from streamwork.epoch.manifest import Plan
from streamwork.job import Graph
from streamwork.state import FileChains, is_snapshot
from streamwork.world import FileRef


def chains(component: str, reports: Sequence[Report]) -> dict[str, tuple[FileRef, ...]]:
    return {str(report.instance): report.state for report in reports if report.component == component}


def floors(reports: Sequence[Report]) -> dict[str, int]:
    """By component, the minimum behind an exchange. Each of its instances has come to the same."""
    return {report.component: report.floor for report in reports if report.floor is not None}


def events(graph: Graph, reports: Sequence[Report]) -> int:
    sources = {node.id for node in graph.sources}
    return sum(report.counters["processed"] for report in reports if report.component in sources)


def end_of(start: Position, plan: Plan, reports: Sequence[Report]) -> Position:
    """Where an epoch ends: the planned ends, and the ends that were reported. A source that was not read stays where it was."""
    ends = {f"{report.component}/{partition}": at for report in reports for partition, at in report.ends.items()}
    return start.moved(plan.end).moved(ends)


def moved(graph: Graph, chains: FileChains, reports: Sequence[Report]) -> bool:
    """True if the state of a source differs from the one that `chains` names. State is written only when it has changed."""
    sources = {node.id for node in graph.sources}
    mine = [report for report in reports if report.component in sources]
    return any(_newest(r.state) != _newest(chains.get(r.component, {}).get(str(r.instance), ())) for r in mine)


def newest_files(chains: Mapping[str, Sequence[FileRef]]) -> dict[str, str]:
    """Instance -> its newest file that is not a snapshot: another one if its state has changed."""
    return {instance: _newest(chain) for instance, chain in chains.items()}


def _newest(chain: Sequence[FileRef]) -> str:
    return next((ref.path for ref in reversed(chain) if not is_snapshot(ref)), "")


def counters(component: str, reports: Sequence[Report]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for report in reports:
        if report.component == component:
            total.update(report.counters)
    return dict(total)


def letters(reports: Sequence[Report]) -> dict[str, dict[str, FileRef]]:
    found: dict[str, dict[str, FileRef]] = {}
    for report in reports:
        if report.letters is not None:
            found.setdefault(report.component, {})[str(report.instance)] = report.letters
    return found


def staged(sink: str, reports: Sequence[Report]) -> dict[str, FileRef]:
    return {str(r.instance): r.staged for r in reports if r.component == sink and r.staged is not None}
