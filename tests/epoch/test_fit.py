"""The fit check: a plan for a job that fits what is stored, all reasons for one that does not; a start raises the first."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamwork import Event, Job, JsonLines, KeyedOperator, Record, Refused, SqliteSink
from streamwork.components import Position
from streamwork.engine.instance import row_format
from streamwork.epoch import Manifest
from streamwork.epoch.recovery import fit as module
from streamwork.epoch.recovery.fit import Change, RestorePlan, Unfit, fit
from streamwork.epoch.store import Store
from streamwork.job import Graph
from streamwork.job.semantics import Promise
from streamwork.state import FileChains, Piece
from streamwork.state.evolution import Evolution, Misfits
from streamwork.state.restore_plan import groups_of
from streamwork.world import FileRef, RealDisk


class Use(Event):
    card: str
    shop: str


class Count(Record):
    seen: int = 0


class Grown(Record):
    seen: int = 0
    more: int = 7


class Other(Record):
    seen: str = ""


RECORDS: dict[str, type[Record]] = {"same": Count, "grown": Grown, "other": Other}


def operator(record: type[Record]) -> KeyedOperator[Any, Any, Any]:
    class Counting(KeyedOperator[Use, record, Use]):  # type: ignore[valid-type]
        def apply(self, event: Any, state: Any, collector: Any) -> None:
            collector.emit(event)

    return Counting()


def job(folder: Path, source: str = "uses", parallelism: int = 2, **components: type[Record]) -> Job:
    made = Job("fits", parallelism=parallelism, checkpoint_every=0)
    stream: Any = made.source(JsonLines(folder / "in.jsonl", Use), id=source)
    for name, record in components.items():
        stream = stream.apply(operator(record), key="card", id=name)
    stream.sink(SqliteSink(folder / "out.db", "t"), id="out")
    return made


def stored(graph: Graph, groups: int = 256) -> tuple[Manifest, FileChains, Any]:
    """What a checkpoint of this job would hold, and a reader of the schemas of its files."""
    chains: FileChains = {
        node.id: {
            str(number): (FileRef(f"state/{node.id}/{number}/000000000001-1-a.delta.parquet", "", 1, 1),)
            for number in range(node.parallelism)
        }
        for node in graph.stateful
    }
    positions = {f"{node.id}/0": 3 for node in graph.sources}
    manifest = Manifest(1, 0, "", 1, "u", Position(positions), chains, {}, {}, "")
    schemas = {node.id: row_format(graph, node, groups).schema for node in graph.stateful}

    def schema_of(ref: FileRef) -> pa.Schema:
        return schemas[ref.path.split("/")[1]]

    return manifest, chains, schema_of


EDITS = {
    "uses": ["uses", "renamed"],
    "parallelism": [2, 3],
    "a": ["same", "grown", "other", None],
    "b": ["same", None],
    "new": ["same", None],
}


def wanted(edit: dict[str, Any]) -> tuple[list[str], dict[str, Change]]:
    """The codes and changes that follow from an edit of a job with components a and b."""
    codes = ["SW-SOURCE-ORPHAN"] if edit["uses"] == "renamed" else []
    changes = {}
    for name in ("a", "b"):
        record = edit[name]
        if record is None:
            codes.append("SW-STATE-ORPHAN")
            changes[name] = Change.GONE
        elif record == "other":
            codes.append("SW-STATE-SCHEMA")
            changes[name] = Change.CHANGED
        else:
            same = record == "same" and edit["parallelism"] == 2
            changes[name] = Change.SAME if same else Change.CHANGED
    if edit["new"] is not None:
        changes["new"] = Change.ADDED
    return codes, changes


def check_all_edits(folder: Path) -> None:
    manifest, chains, schema_of = stored(job(folder, a=Count, b=Count).graph())
    for values in itertools.product(*EDITS.values()):
        edit: dict[str, Any] = dict(zip(EDITS, values, strict=True))
        components = {name: RECORDS[edit[name]] for name in ("a", "b", "new") if edit[name] is not None}
        graph = job(folder, edit["uses"], edit["parallelism"], **components).graph()
        found = fit(graph, 256, manifest, chains, schema_of, folder=folder)
        codes, changes = wanted(edit)
        assert found.changes == changes, edit
        if codes:
            assert isinstance(found, Unfit), edit
            assert [reason.code for reason in found.reasons] == codes, edit
            assert found.refused is found.reasons[0]
            assert all(reason.cause and reason.action for reason in found.reasons)
        else:
            assert isinstance(found, RestorePlan), edit
            check_plan(found, chains, edit["parallelism"])


def check_plan(plan: RestorePlan, chains: FileChains, parallelism: int) -> None:
    """As it is stored, or the key groups of each instance."""
    if plan.is_in_place:
        assert plan.chains == {name: chains[name] for name in plan.components}
    for name, part in plan.components.items():
        assert set(part.pieces) == {str(number) for number in range(parallelism)}
        taken = [
            (piece.chain[0].path, group)
            for pieces in part.pieces.values()
            for piece in pieces
            for group in groups(piece)
        ]
        stored = [
            (chain[0].path, group) for number, chain in chains[name].items() for group in groups_of(int(number), 2, 256)
        ]
        assert sorted(taken) == sorted(stored) if parallelism != 2 else part.is_spread is False


def groups(piece: Piece) -> list[int]:
    """The groups that a piece gives: those that it takes, of those that its chain has."""
    has = groups_of(int(piece.chain[0].path.split("/")[2]), 2, 256)
    return list(
        has if piece.groups is None else range(max(has.start, piece.groups.start), min(has.stop, piece.groups.stop))
    )


def test_every_edit_of_a_job(tmp_path: Path) -> None:
    check_all_edits(tmp_path)


def test_a_check_that_knows_no_schemas_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control."""
    monkeypatch.setattr(module.RowFormat, "misfits", lambda self, stored, drops: Misfits())
    monkeypatch.setattr(Evolution, "changes", lambda self, stored, drops: [])
    with pytest.raises(AssertionError, match="other"):
        check_all_edits(tmp_path)


def test_reasons_beyond_the_state_come_in_order(tmp_path: Path) -> None:
    graph = job(tmp_path, a=Count).graph()
    manifest, chains, schema_of = stored(graph)
    before = Promise.of("at-most-once", None)
    asked = []

    def changed() -> list[tuple[str, str]]:
        asked.append(1)
        return [("uses", "0")]

    found = fit(graph, 256, manifest, chains, schema_of, folder=tmp_path, changed_inputs=changed, promise=before)
    assert isinstance(found, Unfit)
    assert [reason.code for reason in found.reasons] == ["SW-SOURCE-CHANGED", "SW-SEMANTICS-CHANGED"]
    found = fit(
        graph,
        256,
        manifest,
        chains,
        schema_of,
        folder=tmp_path,
        unknown_drops=["x"],
        held=["a"],
        changed_inputs=changed,
        promise=before,
    )
    assert isinstance(found, Unfit)
    assert [reason.code for reason in found.reasons] == ["SW-STATE-UNKNOWN", "SW-SEMANTICS-CHANGED"]
    assert len(asked) == 1, "no input is opened for a job that does not fit"
    assert isinstance(fit(graph, 256, manifest, chains, schema_of, folder=tmp_path, promise=graph.promise), RestorePlan)


def test_a_start_raises_the_first_reason_and_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"card": "a", "shop": "s"}\n')
    job(tmp_path, a=Count, b=Count).run(mode="local", root=tmp_path / "root", until_caught_up=True)
    changed = job(tmp_path, "renamed", 2, a=Other)
    folder = Store(RealDisk(), tmp_path / "root", "fits").folder
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(Refused, match="SW-SOURCE-ORPHAN"):
        changed.run(mode="local", root=tmp_path / "root", until_caught_up=True)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
