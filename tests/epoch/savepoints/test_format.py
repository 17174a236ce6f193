"""The format of a savepoint: complete in itself, wherever it lies; whatever is wrong with it is refused and named."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sample import expected_journal
from savepoint_world import JOB, ROOT, World, every_file, put_all
from streamwork import Refused, StreamworkError, WrongUse
from streamwork.engine.instance import row_format
from streamwork.epoch.savepoints import FORMAT, Begun, Savepoint, SavepointWriter
from streamwork.state import KeyedState, StateFiles, is_snapshot
from streamwork.testing.disk import SimulatedDisk

ELSEWHERE = Path("/copy/of/it")


@pytest.fixture(scope="module")
def saved() -> tuple[World, dict[str, bytes]]:
    """After four epochs of four events, and the files of a savepoint of that."""
    world = World()
    driver = world.run(4)
    return world, every_file(world.disk, world.save(driver, note="before v2"))


def copied(files: dict[str, bytes]) -> Savepoint:
    disk = SimulatedDisk()
    return Savepoint.open(disk, put_all(disk, ELSEWHERE, files))


def sums(savepoint: Savepoint, world: World) -> dict[object, int]:
    graph = world.graph()
    found: dict[object, int] = {}
    for chain in savepoint.chains["sums"].values():
        state = KeyedState()
        StateFiles(savepoint.disk, savepoint.folder).load(row_format(graph, graph["sums"], 256), chain, state)
        found.update((key, record.total) for key, record in state.records.items())
    return found


def test_a_copy_holds_all_that_a_start_needs(saved: tuple[World, dict[str, bytes]]) -> None:
    world, files = saved
    savepoint = copied(files)
    record, manifest = savepoint.record, world.store.manifest(4)
    assert not savepoint.problems()
    savepoint.check()
    assert files["checkpoints/000000000004.json"] == manifest.to_bytes(), "byte for byte"
    assert files["job.json"] == world.disk.read(ROOT / JOB / "job.json")
    assert savepoint.manifest == manifest
    assert savepoint.identity == world.store.identity()
    assert (record.epoch, record.positions, record.note) == (4, {"in/0": 16}, "before v2")
    assert record.ledgers["out"].position == world.table.ledger.position  # type: ignore[union-attr]
    assert record.ledgers["out"].manifest_sha256 == world.table.ledger.manifest_sha256  # type: ignore[union-attr]
    assert (record.parallelism["sums"], record.groups, record.semantics) == (2, 256, "exactly-once")
    assert record.bytes == sum(len(files[path]) for path in record.files)
    assert {*record.files, "begun.json", "savepoint.json"} == files.keys(), "every file is named, and no other is there"
    assert savepoint.graph.fingerprint == world.graph().fingerprint
    node = next(node for node in savepoint.graph.nodes if node.id == "sums")
    assert node.keeps is not None and [field.name for field in node.keeps.fields] == ["number", "total"]


def test_the_state_is_that_of_the_checkpoint_in_one_snapshot_for_each_instance(
    saved: tuple[World, dict[str, bytes]],
) -> None:
    world, files = saved
    savepoint = copied(files)
    expected = {card: total for card, _, total in expected_journal(world.events[:16])}
    assert sums(savepoint, world) == expected
    chains = savepoint.chains["sums"]
    assert all(len(chain) == 1 and is_snapshot(chain[0]) for chain in chains.values())
    assert any(len(chain) > 1 for chain in savepoint.manifest.components["sums"].values()), "else nothing was merged"
    assert savepoint.record.rows == len(expected)


def test_a_damaged_file_is_refused_wherever_it_is(saved: tuple[World, dict[str, bytes]]) -> None:
    _, files = saved
    for path in files:
        for content in (b"", files[path][:-2], files[path][:-3] + bytes([files[path][-3] ^ 1]) + files[path][-2:]):
            if path == "begun.json":
                continue  # it counts only as long as there is no savepoint.json
            with pytest.raises(Refused) as refused:
                copied({**files, path: content}).check()
            assert refused.value.code == "SW-SAVEPOINT-DAMAGED"
            assert path in refused.value.cause


def test_a_half_copied_savepoint_is_refused(saved: tuple[World, dict[str, bytes]]) -> None:
    _, files = saved
    for path in sorted(files.keys() - {"begun.json"}):
        with pytest.raises(Refused) as refused:
            copied({name: data for name, data in files.items() if name != path}).check()
        expected = "SW-SAVEPOINT-INCOMPLETE" if path == "savepoint.json" else "SW-SAVEPOINT-DAMAGED"
        assert refused.value.code == expected and path in refused.value.cause


def test_control_without_the_hashes_a_stale_file_would_count(
    saved: tuple[World, dict[str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, files = saved
    monkeypatch.setattr("streamwork.world.FileRef._checked", lambda ref, read, folder, kind: read(folder / ref.path))
    path = next(path for path in files if path.endswith(".parquet"))
    copied({**files, path: b"another"}).check()


def test_a_newer_format_is_refused(saved: tuple[World, dict[str, bytes]]) -> None:
    _, files = saved
    record = msgspec.json.decode(files["savepoint.json"])
    newer = msgspec.json.encode({**record, "format": FORMAT + 1, "what": "this version does not know"})
    with pytest.raises(Refused) as refused:
        copied({**files, "savepoint.json": newer})
    assert refused.value.code == "SW-SAVEPOINT-FORMAT"


def test_a_manifest_of_another_job_does_not_fit(saved: tuple[World, dict[str, bytes]]) -> None:
    _, files = saved
    other = World()
    other._ids = iter(range(900, 1000))  # type: ignore[assignment]
    foreign = every_file(other.disk, other.save(other.run(4)))
    mixed = {**files, "checkpoints/000000000004.json": foreign["checkpoints/000000000004.json"]}
    with pytest.raises(Refused, match="sha256"):
        copied(mixed)


def test_a_folder_without_a_savepoint_is_wrong_use() -> None:
    with pytest.raises(WrongUse) as wrong:
        Savepoint.open(SimulatedDisk(), ELSEWHERE)
    assert wrong.value.code == "SW-SAVEPOINT-UNKNOWN"


def test_a_name_is_taken_once(saved: tuple[World, dict[str, bytes]]) -> None:
    world = World()
    driver = world.run(2)
    folder = world.save(driver, "one")
    before = every_file(world.disk, folder)
    with pytest.raises(Refused) as refused:
        world.save(driver, "one")
    assert refused.value.code == "SW-SAVEPOINT-EXISTS" and "a@b" in refused.value.cause
    assert every_file(world.disk, folder) == before


@pytest.mark.parametrize("name", ["", "a/b", "..", "a b", "x" * 65, "é"])
def test_a_bad_name_is_wrong_use(name: str) -> None:
    disk = SimulatedDisk()
    with pytest.raises(StreamworkError) as wrong:
        SavepointWriter.begin(disk, Path("/savepoints") / name, Begun(name, 0.0, "a@b"))
    assert wrong.value.code == "SW-JOB-NAME"
    assert disk.names(Path("/savepoints")) == [], "nothing was written"
