"""Does a job fit what is stored? The answer is a `RestorePlan`, or the reasons why not. Pure: files are read by what is passed in.

A start raises the first reason (`Unfit.refused`); tools may list all of them. Reasons are found in this order:

    1  --drop-state names a component without state
    2  a source of the manifest is gone
    3  component by component: it is gone, has another parallelism, or another schema
    4  an input is not the one that was read before (asked only if 1 to 3 found nothing)
    5  the semantics changed
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from streamwork.components.position import CLOCK, INBOX
from streamwork.components.source import source_changed
from streamwork.engine.instance import row_format
from streamwork.epoch.manifest import Manifest
from streamwork.errors import Refused
from streamwork.job import Graph, Node, NodeKind
from streamwork.job.semantics import Promise
from streamwork.state import Change, ComponentPlan, FileChains, RestorePlan
from streamwork.state.files import schema_error
from streamwork.state.rows import RowFormat
from streamwork.world import FileRef

NO_FIELDS: Mapping[str, Collection[str]] = {}


@dataclass(frozen=True)
class Unfit:
    """Why a job cannot be restored from a manifest. There is at least one reason."""

    reasons: tuple[Refused, ...]
    changes: Mapping[str, Change]
    details: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # component -> what is different

    @property
    def refused(self) -> Refused:
        """The first reason: the one that a start raises."""
        return self.reasons[0]


def fit(
    graph: Graph,
    groups: int,
    manifest: Manifest,
    chains: FileChains,
    schema_of: Callable[[FileRef], pa.Schema],
    *,
    folder: Path,
    stored_in: Path | None = None,
    unknown_drops: Sequence[str] = (),
    held: Collection[str] = (),
    drop_fields: Mapping[str, Collection[str]] = NO_FIELDS,
    requested: Mapping[str, Collection[str]] = NO_FIELDS,
    changed_inputs: Callable[[], Iterable[tuple[str, str]]] = tuple,
    promise: Promise | None = None,
) -> RestorePlan | Unfit:
    """Compare a job with a manifest.

    `chains` are its sound state files, without components whose state is dropped: below `folder`, that of the job, or in another
    folder that they are `stored_in`. `unknown_drops` are components whose state is to be dropped although the manifest holds
    none, `held` those it holds; `drop_fields` are fields that are left out, by component, and those that are `requested` must be
    there. `changed_inputs` gives (source, partition) of inputs that are not recognised. `promise` is what the last start
    promised, if it must not change.
    """
    formats = {node.id: row_format(graph, node, groups) for node in graph.stateful}
    reasons = [not_held(unknown_drops, held)] if unknown_drops else []  # 1
    reasons += _sources(graph, manifest)  # 2
    changes = dict.fromkeys(formats, Change.ADDED)
    details: dict[str, tuple[str, ...]] = {}
    parts: dict[str, ComponentPlan] = {}
    for component, instances in chains.items():  # 3
        changes[component] = Change.GONE
        if component not in formats:
            reasons.append(_orphan(manifest, component))
            continue
        compared = _Comparison(graph[component], groups, formats[component], drop_fields.get(component, ()))
        compared.requested = requested.get(component, ())
        found = compared.plan(instances, schema_of, stored_in or folder)
        details[component] = tuple(compared.details)
        reasons += compared.reasons
        changes[component] = Change.CHANGED
        if found is not None:
            parts[component] = found
            changes[component] = Change.CHANGED if found.is_changed else Change.SAME
    if not reasons:
        reasons += [source_changed(source, partition) for source, partition in changed_inputs()]  # 4
    if promise is not None and promise != graph.promise:
        reasons.append(_semantics(promise, graph.promise))  # 5
    if reasons:
        return Unfit(tuple(reasons), changes, details)
    return RestorePlan(folder, parts, changes, details)


class _Comparison:
    """What is stored of one component, compared with what it keeps now."""

    def __init__(self, node: Node, groups: int, rows: RowFormat, drops: Collection[str]) -> None:
        self.details: list[str] = []
        self.reasons: list[Refused] = []
        self.requested: Collection[str] = ()  # fields that a person wants to drop
        self._node = node
        self._groups = groups
        self._rows = rows
        self._drops = drops

    def plan(
        self, instances: Mapping[str, tuple[FileRef, ...]], schema_of: Callable[[FileRef], pa.Schema], stored_in: Path
    ) -> ComponentPlan | None:
        """What the component is restored from; None, with reasons, if it cannot be."""
        casts, drops = self._columns([chain[-1] for chain in instances.values() if chain], schema_of)
        plan = _layout(self._node, self._groups, instances, stored_in)
        if isinstance(plan, Refused):
            self.reasons.append(plan)
            return None
        if plan.is_spread:
            self.details.append(f"parallelism was {len(instances)} and is now {len(plan.pieces)}")
        return None if self.reasons else replace(plan, casts=casts, drops=drops)

    def _columns(
        self, newest: Sequence[FileRef], schema_of: Callable[[FileRef], pa.Schema]
    ) -> tuple[bool, tuple[str, ...]]:
        """Must rows be brought to other columns? And the fields that are left out."""
        rows, casts, names = self._rows, False, set[str]()
        for ref in newest:
            stored = schema_of(ref)
            names |= set(stored.names)
            if misfits := rows.misfits(stored, self._drops):
                self.reasons.append(schema_error(rows, ref, misfits))
                return False, ()
            casts = casts or not rows.evolution.is_current(stored)
            self.details += [one for one in rows.evolution.changes(stored, self._drops) if one not in self.details]
        kept = {*rows.key_names, *(name for name in names if name.startswith("__"))}
        if unknown := [name for name in self.requested if newest and (name not in names or name in kept)]:
            self.reasons.append(_no_field(self._node.id, unknown[0], sorted(names - kept)))
        drops = tuple(sorted((names - kept) & set(self._drops)))
        return casts or bool(drops), drops


def _layout(
    node: Node, groups: int, instances: Mapping[str, tuple[FileRef, ...]], stored_in: Path
) -> ComponentPlan | Refused:
    """Which instance takes what."""
    numbers = {str(number) for number in range(len(instances))}
    if instances.keys() == numbers and len(instances) == node.parallelism:
        return ComponentPlan.as_stored(stored_in, instances)
    if not any(instances.values()):
        return ComponentPlan.as_stored(stored_in, {str(number): () for number in range(node.parallelism)})
    if instances.keys() == numbers and node.key is not None:
        return ComponentPlan.by_groups(stored_in, instances, node.parallelism, groups)
    if instances.keys() == numbers and node.rescale is not None:
        return ComponentPlan.divided(stored_in, instances, node.parallelism)
    return _parallelism(node, instances)


def _sources(graph: Graph, manifest: Manifest) -> Iterator[Refused]:
    sources = {node.id for node in graph.sources}
    for name in manifest.positions:
        source = name.partition("/")[0]
        if name not in (CLOCK, INBOX) and source not in sources:
            yield Refused(
                "SW-SOURCE-ORPHAN",
                f"checkpoint {manifest.epoch} is at {manifest.positions[name]:,} in source {source!r}, which the job no longer "
                "has; under another id it would be read again from its start",
                f"if it has another id now, give it renamed_from={source!r}; else give a source the id {source!r} again, or run "
                "the new job in another --root, with new targets",
            )


def _orphan(manifest: Manifest, component: str) -> Refused:
    return Refused(
        "SW-STATE-ORPHAN",
        f"checkpoint {manifest.epoch} holds state of {component!r}, which the job no longer has",
        f"give the component that goes on with it the id {component!r}, or renamed_from={component!r}; or, if its state is no "
        f"longer needed, start once with --drop-state {component}",
    )


def _parallelism(node: Node, instances: Collection[str]) -> Refused:
    kind = type(node.component).__name__
    return Refused(
        "SW-STATE-PARALLELISM",
        f"{node.id!r} keeps one record per instance, stored for instances {', '.join(instances)}, but its parallelism is now "
        f"{node.parallelism}: which part of a record belongs to which instance is not known",
        f"define rescale(self, states, count) in {kind}: it divides the records; or run it with parallelism={len(instances)}"
        + _how(node)
        + f"; or begin with empty state: start once with --drop-state {node.id}",
    )


def _how(node: Node) -> str:
    """What else another parallelism of a component needs, so that it is not refused for the sake of order."""
    if node.kind is NodeKind.SOURCE or node.is_routed:
        return ""
    return ", and what it reads too, or with the grouping that it had"


def _semantics(before: Promise, now: Promise) -> Refused:
    return Refused(
        "SW-SEMANTICS-CHANGED",
        f"this job ran {before} until now, and is to run {now}: its targets were written under the old promise",
        f"to change the semantics, start once with --change-semantics; else run it with {before.options}",
    )


def _no_field(component: str, name: str, known: Sequence[str]) -> Refused:
    return Refused(
        "SW-STATE-UNKNOWN",
        f"--drop-state {component}.{name}: the stored state of {component!r} has no field {name!r} to drop; it has "
        f"{', '.join(known)}",
        "leave --drop-state out if it was dropped before; else correct the name",
    )


def not_held(unknown: Sequence[str], held: Collection[str]) -> Refused:
    """`--drop-state` names a component without state."""
    have = f"there is state of {', '.join(sorted(held))}" if held else "there is no state yet"
    return Refused(
        "SW-STATE-UNKNOWN",
        f"--drop-state {unknown[0]}: the newest checkpoint holds no state of {unknown[0]!r}; {have}",
        "leave --drop-state out if it was dropped before; else correct the id",
    )
