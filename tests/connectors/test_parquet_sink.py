"""ParquetSink beyond the contract: what readers see, power cuts, drivers that register at the same time."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import polars
import pytest

from connectors.kits import Died, Gate, Gated, batch, entry, seen, staged
from sample import Seen
from streamwork import Event, JobFailed, ParquetSink, Refused, WrongUse
from streamwork.connectors import parquet_sink
from streamwork.connectors.folders import Folders


def driver(folder: Path, fence: int = 1, folders: Any = None, **options: Any) -> Any:
    sink: Any = ParquetSink(folder / "out", **options)
    if folders is not None:
        sink._folders = folders
    sink.open(Seen)
    sink.register("u", "s", fence)
    return sink


def filled(folder: Path, **options: Any) -> Any:
    sink = driver(folder, **options)
    sink.commit(entry(1, 0, 2), staged(seen(1, 2)))
    sink.commit(entry(2, 2, 4), iter(()))
    sink.commit(entry(7, 4, 5), staged(seen(3)))
    return sink


def test_the_layout_that_is_documented(tmp_path: Path) -> None:
    sink = filled(tmp_path)
    sink.write(batch(seen(9)))
    found = sorted(str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*") if p.is_file())
    at_once = next(name for name in found if name.startswith("epoch=0/"))
    assert at_once.endswith(".parquet")
    assert [name for name in found if name != at_once] == [
        "_owner.json",
        "epoch=1/_ledger.json",
        "epoch=1/part-1.parquet",
        "epoch=1/part-7.parquet",
    ]
    assert json.loads((tmp_path / "out" / "epoch=1" / "_ledger.json").read_text()) == {
        "uid": "u", "sink": "s", "position": {"a/0": 5}, "fence": 1, "manifest_sha256": "m7", "last": 7,
        "rows": 3, "commits": [["m1", 2], ["m2", 2], ["m7", 3]],
    }  # fmt: skip


def test_a_folder_for_each_checkpoint_where_that_is_asked_for(tmp_path: Path) -> None:
    filled(tmp_path, folder_bytes=0)
    found = sorted(str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*.parquet"))
    assert found == ["epoch=1/part-1.parquet", "epoch=7/part-7.parquet"]


def test_duckdb_and_polars_read_it(tmp_path: Path) -> None:
    filled(tmp_path, folder_bytes=0)
    pattern = f"{tmp_path}/out/epoch=*/*.parquet"
    expected = [("c1", 1, 10, 1), ("c2", 2, 20, 1), ("c0", 3, 30, 7)]
    rows = duckdb.sql(f"SELECT card, number, total, epoch FROM read_parquet('{pattern}', hive_partitioning=true)")
    assert sorted(rows.fetchall(), key=lambda r: r[1]) == expected
    assert sorted(polars.read_parquet(pattern, hive_partitioning=True).rows(), key=lambda r: r[1]) == expected


@pytest.mark.spark
def test_spark_reads_it(tmp_path: Path, spark: Any) -> None:
    filled(tmp_path, folder_bytes=0)
    (tmp_path / "out" / "_staging" / "000000000001-ab").mkdir(parents=True, exist_ok=True)
    found = spark.read.parquet(str(tmp_path / "out")).orderBy("number").collect()
    assert [tuple(row) for row in found] == [("c1", 1, 10, 1), ("c2", 2, 20, 1), ("c0", 3, 30, 7)]


def test_a_field_named_epoch_is_refused(tmp_path: Path) -> None:
    class Numbered(Event):
        epoch: int

    with pytest.raises(WrongUse, match="SW-SINK-FIELD"):
        ParquetSink(tmp_path / "out").open(Numbered)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="SW-SINK-PATH"):
        driver(tmp_path / "nowhere")


def test_a_ledger_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    sink = filled(tmp_path)
    (tmp_path / "out" / "epoch=1" / "_ledger.json").write_text("{")
    with pytest.raises(Refused, match="SW-SINK-LEDGER"):
        sink.commit(entry(8, 5, 6), staged(seen(4)))


def test_a_number_that_is_spent_is_followed_by_the_next_one(tmp_path: Path) -> None:
    sink = filled(tmp_path)
    sink.commit(entry(6, 5, 6), staged(seen(4)))
    sink.commit(entry(7, 6, 7, parent_sha256="m6"), staged(seen(5)))
    parts = ["part-1.parquet", "part-7.parquet", "part-8.parquet", "part-9.parquet"]
    assert sorted(p.name for p in (tmp_path / "out").glob("epoch=1/*.parquet")) == parts
    assert sink.ledger("u", "s").position == {"a/0": 7}


def test_a_full_disk_can_be_tried_again_by_the_same_driver(tmp_path: Path) -> None:
    sink = driver(tmp_path)
    real = sink._folders

    class Full(Folders):
        def write(self, path: Path, data: bytes) -> None:
            raise OSError(28, "No space left on device")

    sink._folders = Full()
    with pytest.raises(JobFailed, match="SW-SINK-FAILED.*No space"):
        sink.commit(entry(1, 0, 2), staged(seen(1, 2)))
    sink._folders = real
    sink.commit(entry(1, 0, 2), staged(seen(1, 2)))
    assert [p.name for p in (tmp_path / "out").glob("epoch=*")] == ["epoch=1"]


# ---- drivers at the same time --------------------------------------------------------------------------------------------


def test_drivers_that_register_at_the_same_time(tmp_path: Path) -> None:
    """At each operation of one registration another driver registers, lower or higher. The highest gets in, nobody else does."""
    for other in (1, 3):
        for steps in range(100):
            folder = tmp_path / f"{other}-{steps}"
            folder.mkdir()
            driver(folder, 0)
            turned_away: list[int] = []

            def register(fence: int, folders: Any, folder: Path = folder, away: list[int] = turned_away) -> Any:
                try:
                    return driver(folder, fence, folders)
                except Refused as refused:
                    assert refused.code == "SW-SINK-FENCED"
                    away.append(fence)
                    return None

            drivers: dict[int, Any] = {}
            gate = Gate(steps, at=lambda: drivers.update({other: register(other, Folders())}))  # noqa: B023
            names = ("make", "write", "sync", "rename", "create", "remove")
            drivers[2] = register(2, Gated(Folders(), gate, *names))
            if drivers[2] is not None:
                drivers[2]._folders = Folders()  # the gate is for registering only
            highest = max(drivers)
            assert highest not in turned_away
            for fence, sink in sorted(drivers.items()):
                if sink is None:
                    continue
                if fence != highest:
                    with pytest.raises(Refused, match="SW-SINK-FENCED"):
                        sink.commit(entry(1, 0, 2, fence=fence), staged(seen(1, 2)))
                else:
                    sink.commit(entry(1, 0, 2, fence=fence), staged(seen(1, 2)))
            assert sink.ledger("u", "s").fence == highest
            if not gate.reached:
                assert steps > 5
                break


# ---- power cuts ----------------------------------------------------------------------------------------------------------


class Volatile(Folders):
    """A disk whose power may be cut: then files that were not synced are empty, and names whose folder was not synced are
    as before. `synced` False is a disk that forgets to sync files before their folder.
    """

    def __init__(self, steps: int, syncs: bool = True) -> None:
        self._left = steps
        self._syncs = syncs
        self._undo: dict[Path, list[Callable[[], Any]]] = {}
        self._unsynced: list[Path] = []
        self.cut = False
        self.root = Path("/nowhere")

    def _step(self) -> None:
        self._left -= 1
        if self._left < 0:
            self._cut_power()
            raise Died

    def _cut_power(self) -> None:
        self.cut = True
        for path in self._unsynced:
            with suppress(FileNotFoundError):
                path.write_bytes(b"")
        for undo in [u for changes in self._undo.values() for u in changes][::-1]:
            undo()

    def make(self, folder: Path) -> None:
        self._step()
        super().make(folder)

    def write(self, path: Path, data: bytes) -> None:
        self._step()
        super().write(path, data)
        self._forget(path)

    def write_rows(self, path: Path, schema: Any, pieces: Any) -> None:
        self._step()
        super().write_rows(path, schema, pieces)
        self._forget(path)

    def _forget(self, path: Path) -> None:
        """A name that was never synced is lost with a power cut, and so is what a disk that lies has not written."""
        self._undo.setdefault(path.parent, []).append(lambda: path.unlink(missing_ok=True))
        if not self._syncs:
            self._unsynced.append(path)

    def rename(self, path: Path, target: Path) -> None:
        self._step()
        if path.is_dir():
            self._unsynced += [target / p.name for p in path.iterdir() if path in self._undo]
            for change in self._undo.pop(path, ()):
                del change  # the names inside come along, as far as they are on the disk
            super().rename(path, target)
            self._undo.setdefault(target.parent, []).append(lambda: target.rename(path))
        else:
            super().rename(path, target)

    def link(self, path: Path, target: Path) -> None:
        self._step()
        super().link(path, target)
        self._undo.setdefault(target.parent, []).append(lambda: target.unlink(missing_ok=True))

    def exchange(self, path: Path, target: Path) -> None:
        self._step()
        self._unsynced += [target / p.name for p in path.iterdir() if path in self._undo]
        self._undo.pop(path, None)  # the names inside come along, as far as they are on the disk
        super().exchange(path, target)
        self._undo.setdefault(target.parent, []).append(lambda: Folders().exchange(target, path))

    def remove(self, folder: Path) -> None:
        """Removes nothing that a power cut could bring back: the exchange before it must be durable."""
        self._step()
        assert not self._undo.get(self.root), "removed before the exchange is durable"
        super().remove(folder)

    def sync(self, folder: Path) -> None:
        self._step()
        super().sync(folder)
        if self._syncs or not folder.name.startswith("epoch="):
            self._undo.pop(folder, None)


def power_cuts(folder: Path, syncs: bool, before: int = 1) -> int:
    """Cut the power at each operation of a commit; afterwards the heir finds all of it or nothing, and goes on."""
    for steps in range(100):
        here = folder / str(steps)
        here.mkdir()
        first = driver(here)
        for number in range(1, before):
            first.commit(entry(number, 0, 0, first=number == 1), staged(seen(100)))
        first.commit(entry(before, 0, 2, first=before == 1), staged(seen(1, 2)))
        disk = Volatile(steps, syncs)
        disk.root = here / "out"
        first._folders = disk
        committed, offer = True, entry(before + 1, 2, 4)
        try:
            first.commit(offer, staged(seen(3, 4)))
        except Died:
            committed = False
        if committed:
            disk._cut_power()  # after the answer nothing may be lost
        heir = driver(here, 2)
        there = heir.ledger("u", "s").manifest_sha256
        assert there == offer.manifest_sha256 or not committed, "acknowledged, and lost"
        heir.commit(entry(before + 1, 2, 4, fence=2), staged(seen(3, 4)))
        files = [str(p) for p in sorted((here / "out").glob("epoch=*/*.parquet"))]
        assert len(duckdb.read_parquet(files).fetchall()) == 4 + before - 1
        if committed:
            return steps
    raise AssertionError("a commit never ends")


@pytest.mark.parametrize("before", [1, 2, 4], ids=["grows", "links", "merges"])
@pytest.mark.proves("a power failure while files are merged")
def test_a_power_cut_at_any_operation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int) -> None:
    monkeypatch.setattr(parquet_sink, "MERGE_FILES", 4)
    assert power_cuts(tmp_path, syncs=True, before=before) >= 6


@pytest.mark.proves("files that are synced before they are renamed")
def test_without_syncing_what_is_renamed_a_power_cut_does_harm(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"SW-SINK-LEDGER.*_ledger.json cannot be read"):
        power_cuts(tmp_path, syncs=False)
