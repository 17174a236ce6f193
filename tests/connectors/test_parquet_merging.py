"""ParquetSink merges small files while it commits; readers never notice more than that a file is gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.kits import Died, Gate, Gated, as_rows, entry, seen, staged
from connectors.test_parquet_sink import driver
from connectors.test_sink_controls import failure
from streamwork import Event, ParquetSink
from streamwork.connectors import parquet_sink
from streamwork.connectors.folders import Folders
from streamwork.connectors.parquet_sink import MERGE_FILES, SMALL, mergeable

OPERATIONS = ("make", "write", "write_rows", "sync", "rename", "create", "remove", "link", "exchange")


@pytest.fixture
def four(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_sink, "MERGE_FILES", 4)


def files(folder: Path) -> list[Path]:
    return sorted((folder / "out").glob("epoch=*/*.parquet"))


def rows(folder: Path, pattern: str = "epoch=*/*.parquet") -> list[tuple[Any, ...]]:
    """What a reader sees that globs."""
    found = [str(path) for path in (folder / "out").glob(pattern)]
    return sorted(duckdb.read_parquet(found, hive_partitioning=False).fetchall()) if found else []


def commits(sink: Any, numbers: range, per: int = 2, fence: int = 1) -> None:
    for n in numbers:
        sink.commit(entry(n, per * (n - 1), per * n, fence=fence), staged(seen(*range(per * n, per * n + per))))


def test_few_files_whatever_the_number_of_checkpoints(tmp_path: Path, four: None) -> None:
    sink = driver(tmp_path)
    for n in range(1, 41):
        commits(sink, range(n, n + 1))
        assert len(files(tmp_path)) <= 4
        assert rows(tmp_path) == rows(tmp_path, "**/*.parquet") == as_rows(seen(*range(2, 2 * n + 2))), n
    assert [p.name for p in (tmp_path / "out").glob("epoch=*")] == ["epoch=1"]
    stored = pq.ParquetFile(files(tmp_path)[0]).read()
    assert stored["number"].to_pylist() == sorted(stored["number"].to_pylist()), "in the order of commits"


def test_a_folder_that_is_full_is_followed_by_another(tmp_path: Path, four: None) -> None:
    sink = driver(tmp_path, folder_bytes=3_000)
    commits(sink, range(1, 30))
    folders = list((tmp_path / "out").glob("epoch=*"))
    assert 2 <= len(folders) < 15
    assert rows(tmp_path) == as_rows(seen(*range(2, 60)))
    heir = driver(tmp_path, 2, folder_bytes=3_000)
    assert heir.ledger("u", "s").position == {"a/0": 58}
    commits(heir, range(30, 35), fence=2)
    assert rows(tmp_path) == as_rows(seen(*range(2, 70)))


def test_where_folders_cannot_be_exchanged_each_checkpoint_has_its_own(tmp_path: Path) -> None:
    class Elsewhere(Folders):
        def exchange(self, path: Path, target: Path) -> None:
            raise OSError(22, "Invalid argument")

    sink = driver(tmp_path, folders=Elsewhere())
    commits(sink, range(1, 6))
    assert len(files(tmp_path)) == 5
    assert rows(tmp_path) == as_rows(seen(*range(2, 12)))
    commits(driver(tmp_path, 2), range(6, 8), fence=2)
    assert rows(tmp_path) == as_rows(seen(*range(2, 16))), "and can be later"


class Wider(Event):
    card: str
    number: int
    total: int
    more: str = ""


def test_files_of_an_event_that_has_changed_are_not_merged(tmp_path: Path, four: None) -> None:
    commits(driver(tmp_path), range(1, 4))
    sink: Any = ParquetSink(tmp_path / "out")
    sink.open(Wider)
    sink.register("u", "s", 2)
    for n in range(4, 12):
        sink.commit(entry(n, 2 * n - 2, 2 * n, fence=2), staged([Wider("w", n, n, "x"), Wider("w", n, n, "x")]))
    found = [str(path) for path in files(tmp_path)]
    table = duckdb.sql(f"SELECT count(*), count(more) FROM read_parquet({found}, union_by_name=true)").fetchall()
    assert table == [(6 + 16, 16)]
    assert len(found) <= 6, "those of the new event are merged among themselves"


# ---- crashes and readers -------------------------------------------------------------------------------------------------


def readers_at_every_step(folder: Path) -> int:
    """Readers look between any two operations of a commit that merges, and after a death there: all of it, or nothing."""
    for steps in range(100):
        here = folder / str(steps)
        here.mkdir()
        sink = driver(here)
        commits(sink, range(1, 5))
        old, new = as_rows(seen(*range(2, 10))), as_rows(seen(*range(2, 12)))
        looks: list[Any] = []

        class Looking(Gate):
            def passes(self, operation: Any) -> Any:
                looks.append(rows(here))  # noqa: B023
                return super().passes(operation)

        gate = Looking(steps)
        sink._folders = Gated(Folders(), gate, *OPERATIONS)
        try:
            commits(sink, range(5, 6))
        except Died:
            looks.append(rows(here))
        assert all(look in (old, new) for look in looks), "a reader saw rows missing or twice"
        heir = driver(here, 2)
        commits(heir, range(5, 6), fence=2)
        commits(heir, range(6, 7), fence=2)
        assert rows(here) == rows(here, "**/*.parquet") == as_rows(seen(*range(2, 14)))
        if not gate.reached:
            return steps
    raise AssertionError("a commit never ends")


@pytest.mark.proves("a crash while files are merged, readers check at every step")
def test_readers_see_all_of_a_commit_that_merges_or_nothing(tmp_path: Path, four: None) -> None:
    assert readers_at_every_step(tmp_path) >= 6


@pytest.mark.proves("the exchange of two folders in one step")
def test_without_the_exchange_they_see_rows_missing(
    tmp_path: Path, four: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def in_two_steps(self: Any, made: Path, target: Path) -> None:
        self.rename(target, made.with_name("old"))
        self.rename(made, target)
        self.rename(made.with_name("old"), made)

    monkeypatch.setattr(Gated, "exchange", in_two_steps, raising=False)
    assert "missing or twice" in failure(lambda: readers_at_every_step(tmp_path))


# ---- the policy ----------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 50 * SMALL), min_size=1, max_size=400))
def test_files_stay_few_and_rows_are_not_merged_too_often(sizes: list[int]) -> None:
    """Commits of any sizes: the number of files is bounded by how often the size doubles; so is the work."""
    kept: list[int] = []
    written = 0
    for size in sizes:
        keep = mergeable(kept)
        merged = sum(kept[keep:]) + size
        written += merged
        kept = [*kept[:keep], merged]
        assert len(kept) <= MERGE_FILES + 10
    total = sum(sizes) + SMALL * len(sizes)
    assert written <= total * 12
    assert sum(kept) == sum(sizes)


def test_one_commit_after_another_of_the_same_size() -> None:
    assert mergeable([10] * (MERGE_FILES - 1)) == MERGE_FILES - 1
    assert mergeable([10] * MERGE_FILES) == 0
    assert mergeable([100 * SMALL] + [10] * (MERGE_FILES - 1)) == 1, "a large file stays as it is"


# ---- what is not the sink's ----------------------------------------------------------------------------------------------


def theirs_is_kept(folder: Path) -> None:
    """Files and folders that a person has put beside ours are there after any number of commits."""
    commits(driver(folder), range(1, 3))
    out = folder / "out"
    theirs = [out / "epoch=1" / "notes.txt", out / "_staging" / "dead-letters" / "x", out / "_staging" / "dead-1" / "x"]
    for path in theirs:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    commits(driver(folder, 2), range(3, 9), fence=2)
    nested = out / "epoch=1" / "more" / "x"
    nested.parent.mkdir()
    nested.write_text("mine")
    commits(driver(folder, 3), range(9, 15), fence=3)
    assert [path for path in (*theirs, nested) if not path.exists()] == []
    assert rows(folder) == as_rows(seen(*range(2, 30)))


def test_what_a_person_has_put_there_stays(tmp_path: Path, four: None) -> None:
    theirs_is_kept(tmp_path)


def test_without_a_link_it_would_go(tmp_path: Path, four: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ParquetSink, "_others", lambda self, number: [])
    assert "notes.txt" in failure(lambda: theirs_is_kept(tmp_path))
