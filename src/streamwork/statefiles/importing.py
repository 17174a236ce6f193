"""``streamwork state import``: the first savepoint of a job that has not run yet, so that it begins with known state.

The savepoint has the state of Parquet files and no positions: `run --from` reads every source from where a first start would. It
is written as every savepoint, `savepoint.json` last; what a crash leaves before is half-made, and `savepoint drop` removes it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pyarrow as pa

from streamwork.components import Position
from streamwork.epoch.manifest import Manifest
from streamwork.epoch.savepoints import FOLDER, Begun, SavepointRecord, SavepointWriter
from streamwork.epoch.savepoints.sealing import Content, seal
from streamwork.epoch.savepoints.writer import check_free
from streamwork.epoch.store import Identity, Store
from streamwork.errors import Refused, WrongUse
from streamwork.job import Graph, Job
from streamwork.job.names import check_name
from streamwork.state.chain import SNAPSHOT
from streamwork.statefiles.editing import read_rows
from streamwork.statefiles.row_check import RowCheck
from streamwork.world import Clock, FileRef


class Imported(msgspec.Struct, frozen=True):
    """The savepoint that was made."""

    job: str
    root: str
    name: str
    path: str
    bytes: int
    rows: dict[str, int]  # component -> how many it begins with


def import_state(
    job: Job, store: Store, name: str, files: Mapping[str, Path], note: str, by: str, clock: Clock
) -> Imported:
    """Check everything, then write the savepoint."""
    check_name(name, "savepoint")
    graph, folder = job.graph(), store.folder / FOLDER / name
    if store.identity() is not None:
        raise Refused(
            "SW-STATE-IMPORT",
            f"job {job.name} has state of its own already ({store.folder})",
            "change that with `streamwork state edit JOBFILE NAME`; or import for a new --root. Nothing was written",
        )
    check_free(store.disk, folder)
    groups, checks = job.settings.groups, _checks(graph, job.settings.groups, files)
    tables = {one: checks[one].checked(read_rows(file), str(file), 0, defaults=True) for one, file in files.items()}
    for one, table in tables.items():
        if any(table.column("__deleted").to_pylist()):
            raise Refused(
                "SW-STATE-EDIT",
                f"{files[one]} has rows of deleted keys: it is a delta",
                "give the file of `streamwork state export job.py COMPONENT rows.parquet`; nothing was written",
            )
    writer = SavepointWriter.begin(store.disk, folder, Begun(name, clock.now(), by, note))
    record = _write(writer, graph, Identity(job.name, secrets.token_hex(16), groups, clock.now()), checks, tables)
    return Imported(
        job.name, str(store.folder.parent), name, str(folder), record.bytes, {o: t.num_rows for o, t in tables.items()}
    )


def _checks(graph: Graph, groups: int, files: Mapping[str, Path]) -> dict[str, RowCheck]:
    nodes = {node.id: node for node in graph.stateful}
    if unknown := [name for name in files if name not in nodes]:
        raise WrongUse(
            "SW-STATE-COMPONENT",
            f"job {graph.job} has no component {unknown[0]!r} with state",
            f"use one of: {', '.join(nodes) or 'none'}",
        )
    return {name: RowCheck.of(graph, nodes[name], groups, nodes[name].parallelism) for name in files}


def _write(
    writer: SavepointWriter,
    graph: Graph,
    identity: Identity,
    checks: Mapping[str, RowCheck],
    tables: Mapping[str, pa.Table],
) -> SavepointRecord:
    state: dict[str, dict[str, tuple[FileRef, ...]]] = {}
    for component, table in tables.items():
        check = checks[component]
        state[component] = {str(instance): () for instance in range(check.instances)}
        for instance, rows in check.by_instance(table).items():
            path = f"state/{component}/{instance}/{0:012d}-0-{secrets.token_hex(4)}{SNAPSHOT}"
            state[component][instance] = (writer.files.write(path, rows, check.rows.key_names),)
    manifest = Manifest(0, 0, "", 0, identity.uid, Position(), state, {}, {}, graph.fingerprint)
    made = ", ".join(f"{name} with {table.num_rows:,} rows" for name, table in tables.items())
    return seal(writer, graph, identity, manifest, Content(state, origin=f"imported: {made}"))
