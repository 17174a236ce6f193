"""Recovery: which checkpoint to build on, and whether the job still fits it. Looks only; writes nothing."""

from __future__ import annotations

from streamwork.engine.instance import row_format
from streamwork.epoch.manifest import Manifest
from streamwork.epoch.slices import CLOCK
from streamwork.epoch.store import Store
from streamwork.errors import Refused
from streamwork.job import Graph
from streamwork.state import StateFiles
from streamwork.state.files import misfitting_schema


def newest(store: Store) -> Manifest:
    """The newest manifest, completed or prepared. Never starts empty where state existed."""
    completed, prepared = max(store.completed(), default=-1), max(store.prepared(), default=-1)
    if max(completed, prepared) < 0:
        raise Refused(
            "SW-CHECKPOINT-NONE",
            f"{store.folder} belongs to a job, but holds no checkpoint at all",
            "bring the folder checkpoints/ back from a copy; to begin anew, take another --root and an empty target",
        )
    return store.read_prepared(prepared) if prepared > completed else store.read_completed(completed)


def check_fit(store: Store, graph: Graph, manifest: Manifest, groups: int) -> None:
    """Refuse a job that cannot go on from `manifest`: with other sources, records, keys or instances than it was left with."""
    sources = {node.id for node in graph.sources}
    for name in manifest.positions:
        source = name.partition("/")[0]
        if name != CLOCK and source not in sources:
            raise Refused(
                "SW-SOURCE-ORPHAN",
                f"checkpoint {manifest.epoch} is at {manifest.positions[name]:,} in source {source!r}, which the job does not "
                "have any more; under another id it would be read again from its start",
                f"give the source the id {source!r} again, or run the new job in another --root",
            )
    formats = {node.id: row_format(graph, node, groups) for node in graph.stateful}
    files = StateFiles(store.disk, store.folder)
    for component, instances in manifest.components.items():
        if component not in formats:
            raise Refused(
                "SW-STATE-ORPHAN",
                f"checkpoint {manifest.epoch} holds state of {component!r}, which the job does not have any more",
                f"give the component that goes on with it the id {component!r}, or run the new job in another --root",
            )
        wanted = {str(number) for number in range(graph[component].parallelism)}
        if instances.keys() != wanted:
            raise Refused(
                "SW-STATE-PARALLELISM",
                f"the state of {component!r} is spread over {len(instances)} instances, but its parallelism is now {len(wanted)}",
                f"run it with parallelism={len(instances)}",
            )
        for ref in (chain[-1] for chain in instances.values() if chain):
            found = files.read(ref).schema
            if not found.equals(formats[component].schema):
                raise misfitting_schema(formats[component], ref, found)
