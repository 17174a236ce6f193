"""Recovery: which checkpoint to build on, and whether everything still fits it. Looks only; writes nothing.

What cannot be used is refused by name: a file that was changed, a sink that is elsewhere, a job that was altered. Nothing ever
starts empty where state existed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamwork.components import LedgerRow, Sink
from streamwork.engine.instance import row_format
from streamwork.epoch.commit import wrong_ledger
from streamwork.epoch.manifest import Manifest
from streamwork.epoch.position import same
from streamwork.epoch.slices import CLOCK
from streamwork.epoch.store import Identity, Store, damaged_manifest
from streamwork.errors import Refused
from streamwork.job import Graph
from streamwork.state import StateFiles
from streamwork.state.files import misfitting_schema


def newest(store: Store, identity: Identity) -> Manifest:
    """The newest completed manifest, or the prepared one that was built on it. Newer means a higher fence, then number.

    A prepared manifest that was built on another one is what a driver left behind that had lost its job to a newer one.
    """
    completed = set(store.completed())
    if not completed:
        raise Refused(
            "SW-CHECKPOINT-NONE",
            f"{store.folder} belongs to a job, but holds no checkpoint at all",
            "bring the folder checkpoints/ back from a copy; to begin anew, take another --root and an empty target",
        )
    base = max((store.read_completed(number) for number in sorted(completed)[-LOOK_BACK:]), key=_age)
    _verify(store, identity, base, completed=True)
    waiting = [store.read_prepared(number) for number in store.prepared()[-LOOK_BACK:] if number not in completed]
    built = [m for m in waiting if m.parent_sha256 == base.sha256 and _age(m) > _age(base)]
    if not built:
        return base
    _verify(store, identity, max(built, key=_age), completed=False)
    return max(built, key=_age)


LOOK_BACK = 20
"""Among so many of the newest numbers the newest manifest is looked for: a driver that was fenced off leaves at most one."""


def _age(manifest: Manifest) -> tuple[int, int]:
    return manifest.fence, manifest.epoch


def _verify(store: Store, identity: Identity, manifest: Manifest, completed: bool) -> None:
    """A manifest is written twice and agrees with its plan and its job: a change that is still JSON shows there."""
    if manifest.uid != identity.uid:
        raise damaged_manifest(store, manifest.epoch, f"belongs to another job (uid {manifest.uid})")
    if manifest.epoch == 0:
        return
    if completed and store.read_prepared(manifest.epoch).sha256 != manifest.sha256:
        raise damaged_manifest(store, manifest.epoch, "differs from its prepared twin")
    plan = store.plan(manifest.epoch)
    planned = {name: manifest.positions.get(name) for name in plan.end}  # sources that are polled add how far they came
    if (plan.end, plan.parent, plan.fence) != (planned, manifest.parent, manifest.fence):
        raise damaged_manifest(store, manifest.epoch, "does not agree with its plan")


def check_ledgers(
    sinks: Mapping[str, Sink[Any]], rows: Mapping[str, LedgerRow | None], manifest: Manifest, parent: Manifest | None
) -> None:
    """Refuse a sink that is neither where the newest checkpoint left it nor, if that is only prepared, where its parent did."""
    for sink_id in sinks:
        row, known = rows[sink_id], sink_id in manifest.sinks
        if row is None or row.position is None:
            # A new sink has no position; nor has one that was in no checkpoint before the prepared one.
            if known and (parent is None or sink_id in parent.sinks):
                raise wrong_ledger(sink_id, row, f"checkpoint {manifest.epoch} was written to it")
        elif not known:
            if not same(row.position, manifest.positions):
                raise wrong_ledger(sink_id, row, f"the job is at {manifest.positions} without it")
        elif row.manifest_sha256 not in (manifest.sha256, parent.sha256 if parent else ""):
            raise wrong_ledger(
                sink_id, row, f"its last commit was not checkpoint {manifest.epoch} as it is stored here"
            )


def check_fit(store: Store, graph: Graph, manifest: Manifest, groups: int) -> None:
    """Refuse a job that cannot go on from `manifest`: with other sources, records, keys or instances than it was left with."""
    sources = {node.id for node in graph.sources}
    for name in manifest.positions:
        source = name.partition("/")[0]
        if name != CLOCK and source not in sources:
            raise Refused(
                "SW-SOURCE-ORPHAN",
                f"checkpoint {manifest.epoch} is at {manifest.positions[name]:,} in source {source!r}, which the job does "
                "not have any more; under another id it would be read again from its start",
                f"give the source the id {source!r} again, or run the new job in another --root, with new targets",
            )
    formats = {node.id: row_format(graph, node, groups) for node in graph.stateful}
    files = StateFiles(store.disk, store.folder)
    for component, instances in manifest.components.items():
        if component not in formats:
            raise Refused(
                "SW-STATE-ORPHAN",
                f"checkpoint {manifest.epoch} holds state of {component!r}, which the job does not have any more",
                f"give the component that goes on with it the id {component!r}, or run the new job in another --root, with "
                "new targets",
            )
        wanted = {str(number) for number in range(graph[component].parallelism)}
        if instances.keys() != wanted:
            raise Refused(
                "SW-STATE-PARALLELISM",
                f"the state of {component!r} is spread over instances {', '.join(instances)}, but its parallelism is now "
                f"{len(wanted)}",
                f"run it with parallelism={len(instances)}",
            )
        for ref in (chain[-1] for chain in instances.values() if chain):
            found = files.read(ref).schema
            if not found.equals(formats[component].schema):
                raise misfitting_schema(formats[component], ref, found)


def check_sources(graph: Graph, known: Mapping[str, str]) -> None:
    """Refuse a source that is not the one that was read before: its offsets would mean something else."""
    for node in graph.planned:
        now = node.component.identity()
        if node.id in known and now is not None and now != known[node.id]:
            raise Refused(
                "SW-SOURCE-CHANGED",
                f"source {node.id!r} does not begin as it did when the job last read it: it is another file or log",
                "bring the old one back; or give the new one an id of its own and run it in another --root",
            )
