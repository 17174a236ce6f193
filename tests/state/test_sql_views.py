"""`views.sql`: what DuckDB finds is what the engine's own state is, whatever happened before."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from operators.windows.oracle import AGGREGATES, SECOND, Case, Oracle, random_events
from operators.windows.oracle import Seen as Counted
from sample import run_job
from streamwork import Event, Job, KeyedOperator, ListSource, Record, Sliding, SqliteSink, StatefulOperator
from streamwork.components.times import microseconds
from streamwork.engine.instance import row_format
from streamwork.epoch import Store
from streamwork.state import StateFiles
from streamwork.state import sql_views as views_module
from streamwork.world import RealDisk
from tiers import quick_every


class Bought(Event):
    shop: str
    order: int | None
    amount: int


class Sums(Record):
    count: int = 0
    total: int = 0
    amounts: list[int] = []


class Total(Event):
    shop: str
    total: int


class Summing(KeyedOperator[Bought, Sums, Total]):
    """An amount of 0 makes it forget; below 0 it raises."""

    def apply(self, event: Bought, state: Sums, collector: Any) -> None:
        if event.amount < 0:
            raise ValueError("below zero")
        if event.amount == 0:
            collector.clear_state()
            return
        state.count += 1
        state.total += event.amount
        state.amounts = [*state.amounts, event.amount][-3:]
        collector.emit(Total(event.shop, state.total))


class Seen(Record):
    events: int = 0
    last: str | None = None


class Watching(StatefulOperator[Bought, Seen, Bought]):
    def setup_instance(self, instance: int, state: Seen | None) -> None:
        self.state = Seen() if state is None else state

    def apply(self, event: Bought, collector: Any) -> None:
        self.state.events += 1
        self.state.last = event.shop
        collector.emit(event)

    def get_state(self) -> Seen:
        return self.state


def bought(count: int, seed: int) -> list[Bought]:
    rng = random.Random(seed)
    return [
        Bought(f"shop {rng.randrange(20)}", rng.choice([None, 1, 2]), rng.choice([0, 1, 5, 7])) for _ in range(count)
    ]


def job_of(events: list[Bought], folder: Path, parallelism: int) -> Job:
    job = Job("buying", checkpoint_every=0, parallelism=parallelism)
    seen = job.source(ListSource(events, Bought, max_events=20), id="bought").apply(Watching(), id="watching")
    seen.apply(Summing(), key=("shop", "order"), id="sums-per-shop").sink(SqliteSink(folder / "o.db", "t"), id="out")
    return job


def engine_state(job: Job, root: Path) -> dict[str, list[dict[str, Any]]]:
    """As the engine restores it at the newest completed manifest."""
    store = Store(RealDisk(), root, job.name)
    manifest = max((s.manifest for s in store.stored() if s.completed and s.manifest), key=lambda m: m.age)
    graph, found = job.graph(), {}
    for node in graph.stateful:
        rows = row_format(graph, node, 256)
        found[node.id] = []
        for instance, chain in manifest.components.get(node.id, {}).items():
            state: Any = rows.new_state()
            StateFiles(RealDisk(), store.folder).load(rows, chain, state)
            if node.key is None:
                records = [({"__instance": int(instance)}, state.record)] if state.record is not None else []
            else:
                state.warm([key for layer in state.layers or () for key in rows.keys(layer.rows)])
                records = [(dict(zip(node.key.fields, key, strict=True)), r) for key, r in state.records.items()]
            found[node.id] += [
                key | {name: getattr(record, name) for name in record.__struct_fields__} for key, record in records
            ]
    return found


def by_text(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(str(sorted(row.items())) for row in rows)


def queried(folder: Path, component: str, moved: bool = False) -> list[dict[str, Any]]:
    with duckdb.connect() as db:
        if moved:
            place = str(folder).replace("'", "''")
            db.execute(f"SET VARIABLE streamwork_moved_to = '{place}'")
        db.execute((folder / "views.sql").read_text())
        found: list[dict[str, Any]] = db.sql(f'FROM "{component}"').to_arrow_table().to_pylist()
    return found


def check(job: Job, root: Path, moved: bool = False) -> None:
    expected = engine_state(job, root)
    assert expected["sums-per-shop"] and expected["watching"]
    for component, rows in expected.items():
        assert by_text(queried(root / job.name, component, moved)) == by_text(rows), component


def abandoned(root: Path) -> None:
    """What a driver leaves that was killed before its epoch was a checkpoint: a delta of a number that comes next."""
    store = Store(RealDisk(), root, "buying")
    newest = max(store.completed())
    for path in sorted((store.folder / "state").rglob(f"{newest:012d}-*.delta.parquet")):
        table = duckdb.sql(f"SELECT * REPLACE ({newest + 1} AS __epoch) FROM read_parquet('{path}')").to_arrow_table()
        if "total" in table.column_names:
            table = duckdb.sql('SELECT * REPLACE (total + 1000 AS total) FROM "table"').to_arrow_table()
        from streamwork.components.parquet_file import to_bytes

        (path.parent / f"{newest + 1:012d}-9-dead.delta.parquet").write_bytes(to_bytes(table))


@pytest.mark.slow(parallelism=1)
@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("seed", quick_every(2, range(2)))
@pytest.mark.proves("DuckDB reads the state, epochs were abandoned")
def test_what_the_views_say_is_the_state(tmp_path: Path, parallelism: int, seed: int) -> None:
    """After runs of many epochs, starts, a crash in an epoch, and leftovers of epochs that never became checkpoints."""
    events, rng = bought(160, seed), random.Random(seed)
    for end in sorted(rng.sample(range(40, 160), 2)):
        job = job_of(events[:end], tmp_path, parallelism)
        run_job(job, tmp_path / "root")
        check(job, tmp_path / "root")
        abandoned(tmp_path / "root")
        check(job, tmp_path / "root")
        poisoned = job_of([*events[:end], Bought("shop 1", 1, 7), Bought("shop 1", 1, -1)], tmp_path, parallelism)
        with pytest.raises(Exception, match="below zero"):
            run_job(poisoned, tmp_path / "root")
        check(job, tmp_path / "root")


@pytest.mark.proves("views over the files of the newest manifest")
def test_the_query_of_old_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: all files of the folder, whatever the manifest says."""
    job = job_of(bought(80, 1), tmp_path, 3)
    files = """
SET VARIABLE {files} = list_concat([{defaults}],
    (SELECT list(file) FROM glob(getvariable('streamwork_job') || '/state/{component}/*/*.parquet')));
-- {counts}
"""
    monkeypatch.setattr(views_module, "_FILES", files)
    run_job(job, tmp_path / "root")
    check(job, tmp_path / "root")
    abandoned(tmp_path / "root")
    with pytest.raises(AssertionError):
        check(job, tmp_path / "root")


# ---- a key with a sub-key: windows -----------------------------------------------------------------------------------

WINDOWS = Case(Sliding("10s", "5s"), 3)
SUMS = ("events", "total", "distinct")


class Window(Event):
    key: str | None
    window_start: datetime
    events: int
    total: int
    distinct: int


def window_job(events: list[Counted], folder: Path) -> Job:
    job = Job("windows", checkpoint_every=0, parallelism=2)
    seen = job.source(ListSource(events, Counted, max_events=15), id="in", time="at")
    windowed = seen.window(WINDOWS.window, key="key", lateness=WINDOWS.lateness, id="per-key")
    made = windowed.aggregate(Window, **{name: AGGREGATES[name] for name in SUMS})
    made.sink(SqliteSink(folder / "windows.db", "windows"), id="out")
    return job


def check_windows(events: list[Counted], folder: Path) -> None:
    """A row for each window that is open, or may still be corrected: what DuckDB computes from the input itself."""
    run_job(window_job(events, folder), folder / "root")
    oracle = Oracle(WINDOWS, events)
    assert oracle.minimum is not None
    kept = [row for row in oracle.open_windows(SUMS) if row[2] + WINDOWS.lateness * SECOND > oracle.minimum]
    rows = queried(folder / "root" / "windows", "per-key")
    found = [
        (row["key"], *(microseconds(row[name]) for name in ("window_start", "window_end")), row["events"], row["total"])
        for row in rows
    ]
    assert Counter(found) == Counter(row[:5] for row in kept)
    distinct = {(row["key"], microseconds(row["window_start"])): len(row["distinct"]) for row in rows}
    assert distinct == {row[:2]: row[5] for row in kept}


def test_what_the_views_say_of_windows_is_their_state(tmp_path: Path) -> None:
    """Rows of windows that have closed are deleted, also where their key has other windows."""
    events = random_events(3, 120, 5, 12)
    for end in (40, 41, 90, len(events)):
        check_windows(events[:end], tmp_path)


def test_views_that_do_not_know_the_sub_key_are_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: one row per key."""
    monkeypatch.setattr(views_module, "_VIEW", views_module._VIEW.replace("BY {key}", 'BY "key"'))
    with pytest.raises(AssertionError):
        check_windows(random_events(3, 120, 5, 12), tmp_path)


def test_a_moved_root(tmp_path: Path) -> None:
    job = job_of(bought(100, 1), tmp_path, 2)
    run_job(job, tmp_path / "root")
    shutil.move(tmp_path / "root", tmp_path / "it's elsewhere")
    with pytest.raises(duckdb.Error):
        queried(tmp_path / "it's elsewhere" / "buying", "sums-per-shop")
    check(job, tmp_path / "it's elsewhere", moved=True)
    run_job(job, tmp_path / "it's elsewhere")  # a start says where it is
    check(job, tmp_path / "it's elsewhere")


def test_files_that_are_pruned_fail_a_query_and_are_not_left_out(tmp_path: Path) -> None:
    events = bought(100, 1)
    run_job(job_of(events[:100], tmp_path, 2), tmp_path / "root")
    folder = tmp_path / "root" / "buying"
    with duckdb.connect() as db:
        db.execute((folder / "views.sql").read_text())
        for path in folder.joinpath("state").rglob("*.parquet"):
            path.unlink()
        with pytest.raises(duckdb.Error, match=r"No files found|Cannot open|No such file"):
            db.sql('FROM "sums-per-shop"').fetchall()


def test_before_the_first_checkpoint_the_views_are_empty(tmp_path: Path) -> None:
    run_job(job_of([], tmp_path, 2), tmp_path / "root")
    for component in ("sums-per-shop", "watching"):
        assert queried(tmp_path / "root" / "buying", component) == []


def test_nothing_is_written_at_a_checkpoint(tmp_path: Path) -> None:
    run_job(job_of(bought(20, 1), tmp_path, 1), tmp_path / "root")
    path = tmp_path / "root" / "buying" / "views.sql"
    before = path.stat()
    run_job(job_of(bought(60, 1), tmp_path, 1), tmp_path / "root")
    assert path.stat() == before


def test_an_older_driver_does_not_write_the_views(tmp_path: Path) -> None:
    from streamwork import Position, Refused
    from streamwork.epoch.fences import Fences
    from streamwork.epoch.footing import Footing
    from streamwork.epoch.views import Views
    from streamwork.testing.clock import VirtualClock
    from streamwork.world import RealProcesses

    job = job_of(bought(20, 1), tmp_path, 1)
    run_job(job, tmp_path / "root")
    store = Store(RealDisk(), tmp_path / "root", "buying")
    fences = Fences(RealDisk(), store.folder, VirtualClock(), RealProcesses())
    older, newer = fences.claim().fence, fences.claim().fence
    (store.folder / "views.sql").write_text("-- of the newer one")
    identity = store.identity()
    assert identity is not None

    def footing(fence: int) -> Footing:
        return Footing(identity, False, fence, store.manifest(1), False, {}, (), Position(), None)

    with pytest.raises(Refused, match="SW-DRIVER-FENCED"):
        Views(job.graph(), store, fences).resume(footing(older))
    assert (store.folder / "views.sql").read_text() == "-- of the newer one"
    Views(job.graph(), store, fences).resume(footing(newer))
    assert "sums-per-shop" in (store.folder / "views.sql").read_text()


HOSTILE = ["../../victim.parquet", "VICTIM", "state/sums-per-shop/0/../../../../../victim.parquet", "state/**", "a\nb"]


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.proves("a manifest names a file outside the job's folder, and DuckDB reads the views")
def test_views_do_not_read_what_lies_outside(tmp_path: Path, name: str) -> None:
    job = job_of(bought(50, 3), tmp_path, 1)
    run_job(job, tmp_path / "root")
    folder = tmp_path / "root" / "buying"
    state = next((folder / "state" / "sums-per-shop").rglob("*.parquet"))
    victim = tmp_path / "victim.parquet"
    victim.write_bytes(state.read_bytes())
    for path in folder.glob("checkpoints/????????????.json"):
        manifest = json.loads(path.read_bytes())
        for chain in manifest["components"].get("sums-per-shop", {}).values():
            chain[-1]["path"] = name.replace("VICTIM", str(victim))
        path.write_text(json.dumps(manifest))
    with pytest.raises(duckdb.Error, match="leads out of the folder"):
        queried(folder, "sums-per-shop")
