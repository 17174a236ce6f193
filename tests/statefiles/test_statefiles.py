"""`state show`, `query`, `export` and `diff` over random states; DuckDB over `views.sql` is the independent answer."""

from __future__ import annotations

import base64
import json
from datetime import UTC
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import statefiles_world as w
from statefiles_world import MANY, World, by_text, changes, comparable
from streamwork import Refused, StreamworkError, WrongUse
from streamwork.statefiles import diff as diffing
from streamwork.statefiles.component_state import ComponentState
from streamwork.statefiles.diff import Change, Status
from streamwork.statefiles.export import export
from streamwork.statefiles.plain_values import plain_rows
from streamwork.statefiles.point import At
from streamwork.statefiles.selection import Selection
from streamwork.statefiles.sql import query
from streamwork.world import RealDisk

RANDOM = settings(deadline=None, max_examples=24, suppress_health_check=list(HealthCheck))
LIVES = st.lists(changes(), min_size=1, max_size=3)
KEYED = ("by-text", "by-many")


def lived(folder: Path, life: Any, parallelism: int = 2) -> World:
    world = World(folder, parallelism)
    for changed in life:
        world.checkpoint(changed)
    return world


@given(life=LIVES, parallelism=st.integers(1, 3))
@RANDOM
def test_what_is_read_is_what_duckdb_reads(tmp_path_factory: Any, life: Any, parallelism: int) -> None:
    world = lived(tmp_path_factory.mktemp("w"), life, parallelism)
    point = world.point()
    for component, wanted in world.by_views().items():
        state = ComponentState.of(point, component)
        assert by_text(state.shown.to_pylist()) == by_text(wanted), component
        assert by_text(query(point, f"FROM {component.replace('-', '_')}").to_pylist()) == by_text(wanted), component
        file = world.root / f"{component}.parquet"
        export(state, file, RealDisk())
        columns = ", ".join(f'"{name}"' for name in state.shape.columns)
        read = duckdb.sql(f"SELECT {columns} FROM read_parquet('{file}')").to_arrow_table().to_pylist()
        assert by_text(read) == by_text(wanted)


def key_of(component: str, row: dict[str, Any]) -> Any:
    if component == "by-many":
        return tuple(comparable(row[name]) for name in MANY)
    return row["text"] if component == "by-text" else row["__instance"]


@given(life=LIVES)
@RANDOM
def test_every_kept_checkpoint_is_read_as_it_was(tmp_path_factory: Any, life: Any) -> None:
    """Records, keys and timers, by what the engine was given."""
    world = lived(tmp_path_factory.mktemp("w"), life)
    for epoch in range(world.epoch + 1):
        point = world.point(f"checkpoint:{epoch}")
        for component, keys in world.wanted(epoch).items():
            rows = ComponentState.of(point, component).table.to_pylist()
            found = {key_of(component, row): row for row in rows}
            assert len(found) == len(rows) == len(keys)
            for key, (record, timers) in keys.items():
                row = found[tuple(map(comparable, key)) if component == "by-many" else key]
                assert (row["count"], row["words"]) == (record.count, record.words)
                waiting = {(timer["at"].astimezone(UTC), timer["clock"]) for timer in row["__timers"] or ()}
                assert waiting == {(timer.at, timer.clock.value) for timer in timers}


@given(life=LIVES)
@RANDOM
def test_a_key_is_found_by_what_is_shown_of_it(tmp_path_factory: Any, life: Any) -> None:
    world = lived(tmp_path_factory.mktemp("w"), life)
    for component in KEYED:
        state = ComponentState.of(world.point(), component)
        for row in plain_rows(state.table):
            key = {name: row[name] for name in state.shape.key}
            (found,) = plain_rows(Selection(key_json=json.dumps(key)).of(state))
            assert found == row
            if None not in key.values():
                given_as = [text if len(key) == 1 else f"{name}={text}" for name, text in texts(key).items()]
                (found,) = plain_rows(Selection(key=tuple(given_as)).of(state))
                assert found == row


def texts(key: dict[str, Any]) -> dict[str, str]:
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in key.items()}


@given(life=st.lists(changes(), min_size=2, max_size=2))
@RANDOM
def test_a_diff_is_what_sql_finds(tmp_path_factory: Any, life: Any) -> None:
    """The oracle: a full join by DuckDB, on the text of every value."""
    world = lived(tmp_path_factory.mktemp("w"), life)
    before, after = world.point("checkpoint:1"), world.point("checkpoint:2")
    found = {one.component: one for one in diffing.diff(before, after, limit=None).components}
    for component, one in found.items():
        old, new = ComponentState.of(before, component), ComponentState.of(after, component)
        mine, theirs = (comparable_rows(component, state) for state in (old, new))
        added, gone = theirs.keys() - mine.keys(), mine.keys() - theirs.keys()
        changed = {key for key in mine.keys() & theirs.keys() if mine[key] != theirs[key]}
        assert (one.added, one.gone, one.changed) == (len(added), len(gone), len(changed))
        assert one.same == len(mine.keys() & theirs.keys()) - len(changed)
        assert (one.status is Status.SAME) == (mine == theirs)
        kinds = [example.change for example in one.examples]
        assert [kinds.count(kind) for kind in Change] == [len(added), len(gone), len(changed)]
        assert len({json.dumps(example.key) for example in one.examples}) == len(one.examples)
    assert diffing.diff(before, before).same


def comparable_rows(component: str, state: ComponentState) -> dict[Any, Any]:
    rows = state.table.drop_columns(["__group", "__epoch", "__deleted"]).to_pylist()
    return {
        key_of(component, row): {name: repr(unsigned(comparable(value))) for name, value in row.items()} for row in rows
    }


def unsigned(value: Any) -> Any:
    """0.0 and -0.0 are equal."""
    if isinstance(value, tuple):
        return tuple(map(unsigned, value))
    return value + 0.0 if isinstance(value, float) else value


def test_without_the_rule_for_nan_a_diff_would_find_what_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control of the one above: an equality that is Arrow's."""
    nan = w.All(share=float("nan"), numbers=[float("nan")])
    world = lived(tmp_path, [{"by-text": {"a": (nan, frozenset())}}, {"by-text": {"b": (nan, frozenset())}}])
    before, after = world.point("checkpoint:1"), world.point("checkpoint:2")
    (one,) = [one for one in diffing.diff(before, after).components if one.component == "by-text"]
    assert (one.added, one.changed, one.same) == (1, 0, 1)

    def arrow(mine: Any, theirs: Any) -> Any:
        if mine.type.num_fields:
            return np.array([one.equals(other) for one, other in zip(mine, theirs, strict=True)], bool)
        return np.asarray(pc.fill_null(pc.equal(mine, theirs), True))

    monkeypatch.setattr(diffing, "same", arrow)
    (one,) = [one for one in diffing.diff(before, after).components if one.component == "by-text"]
    assert one.changed == 1


# ---- what is asked wrongly, and what is damaged ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(tmp_path_factory: Any) -> World:
    some = (w.All(count=1, saved=Decimal("1.5"), bits=b"\x00\xff"), frozenset())
    many = {
        ("a", None, True, b"x", w.KINDS["datetime"].good[0], w.KINDS["date"].good[0], Decimal("1.50")): (
            w.Some(2),
            frozenset(),
        )
    }
    life = [{"by-text": {"a": some, "ab": some, "b": some}, "by-many": many, "per-instance": {0: some}}]
    return lived(tmp_path_factory.mktemp("small"), life)


def test_a_prefix_and_parts_of_a_key(small: World) -> None:
    texts = ComponentState.of(small.point(), "by-text")
    assert Selection(prefix="a").of(texts).column("text").to_pylist() == ["a", "ab"]
    assert Selection(prefix="").of(texts).num_rows == 3
    many = ComponentState.of(small.point(), "by-many")
    assert Selection(key=("text=a", "flag=true")).of(many).num_rows == 1
    assert Selection(key=("text=a", "flag=false")).of(many).num_rows == 0
    assert Selection(key=(f"raw={base64.b64encode(b'x').decode()}", "money=1.5")).of(many).num_rows == 1
    assert Selection(key=("0",)).of(ComponentState.of(small.point(), "per-instance")).num_rows == 1


@pytest.mark.parametrize(
    ("component", "selection"),
    [
        ("by-many", Selection(key=("a",))),
        ("by-many", Selection(key=("nope=a",))),
        ("by-many", Selection(key=("number=1.5",))),
        ("by-many", Selection(key=("text=a", "text=b"))),
        ("by-many", Selection(key_json="[]")),
        ("by-many", Selection(key_json='{"number": "x"}')),
        ("by-many", Selection(key_json='{"flag": 1}')),
        ("by-many", Selection(key_json='{"number": 9223372036854775808}')),
        ("by-many", Selection(key=("money=1.555",))),
        ("per-instance", Selection(prefix="a")),
        ("per-instance", Selection(key=("x",))),
    ],
)
def test_a_key_of_another_type_is_refused(small: World, component: str, selection: Selection) -> None:
    with pytest.raises(WrongUse, match="SW-STATE-KEY"):
        selection.of(ComponentState.of(small.point(), component))


@pytest.mark.parametrize(
    "at", ["checkpoint:99", "savepoint:none", "checkpoint:x", "checkpoint:-1", "nowhere", "savepoint:../x"]
)
def test_what_is_not_there_is_refused(small: World, at: str) -> None:
    with pytest.raises(WrongUse, match="SW-(CHECKPOINT-UNKNOWN|SAVEPOINT-UNKNOWN|USAGE|JOB-NAME)"):
        small.point(at)


def test_sql_that_duckdb_refuses_is_wrong_use_and_names_the_views(small: World) -> None:
    for sql in ("FROM nope", "SELEC", "SELECT no_column FROM by_text", "SELECT 1/", "SELECT CAST('x' AS INT)"):
        with pytest.raises(WrongUse, match="SW-STATE-SQL"):
            query(small.point(), sql)
    assert query(small.point(), "SELECT 1 AS one").to_pylist() == [{"one": 1}]
    names = {name for (name,) in query(small.point(), "SHOW TABLES").to_pandas().itertuples(index=False)}
    assert names == {"by-text", "by_text", "by-many", "by_many", "per-instance", "per_instance"}


def test_sql_cannot_change_state(small: World) -> None:
    with pytest.raises(WrongUse, match="SW-STATE-SQL"):
        query(small.point(), "UPDATE by_text SET count = 2")


def test_without_duckdb_the_error_says_what_to_install(small: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "duckdb", None)
    with pytest.raises(WrongUse, match=r"SW-JOB-EXTRA.*duckdb(.|\n)*pip install \"streamwork\[sql\]\""):
        query(small.point(), "SELECT 1")


def test_a_damaged_file_is_refused_or_read_by_another_way(tmp_path: Path) -> None:
    life = [{"by-text": {f"k{n}": (w.All(count=n), frozenset())}} for n in range(4)]
    world = lived(tmp_path, life, parallelism=1)
    for path in sorted((world.store.folder / "state" / "by-text").rglob("*.parquet")):
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(Refused, match="SW-STATE-DAMAGED"):
            world.places.reading(At(), lambda point: len(ComponentState.of(point, "by-text")))
        path.write_bytes(whole)


def test_reading_begins_again_when_the_checkpoint_is_pruned_meanwhile(tmp_path: Path) -> None:
    """The job goes on between the look at the manifests and the read of the files."""
    world = lived(tmp_path, [{"per-instance": {0: (w.All(count=1), frozenset())}}])
    asked = []

    def read(point: Any) -> int:
        asked.append(point.manifest.epoch)
        if len(asked) == 1:
            prune(world, {"per-instance": {0: (w.All(count=world.epoch + 1), frozenset())}})
        return int(ComponentState.of(point, "per-instance").table.column("count")[0].as_py())

    assert world.places.reading(At(), read) == 2
    assert asked == [1, 2]
    asked.clear()
    with pytest.raises(WrongUse, match="SW-CHECKPOINT-UNKNOWN.*kept are: 3, 0"):
        world.places.reading(At(checkpoint=2), read)


def prune(world: World, changed: Any) -> None:
    """A later checkpoint, and the files of the one before it are removed, as retention does it."""
    old = world.store.manifest(world.epoch)
    world.checkpoint(changed)
    world.store.remove_manifest(old.epoch)
    kept = world.store.manifest(world.epoch).files
    world.store.discard_files([path for path in old.files if path not in kept])


def test_an_unknown_format_of_a_file_is_refused(small: World, tmp_path: Path) -> None:
    state = ComponentState.of(small.point(), "by-text")
    for name in ("x.txt", "x", "no/x.csv"):
        with pytest.raises(StreamworkError, match="SW-STATE-FORMAT"):
            export(state, tmp_path / name, RealDisk())
    assert not list(tmp_path.iterdir())


def test_text_formats_hold_every_value(small: World, tmp_path: Path) -> None:
    for component in small.rows:
        state = ComponentState.of(small.point(), component)
        for suffix in (".jsonl", ".csv", ".parquet"):
            export(state, tmp_path / f"x{suffix}", RealDisk())
        lines = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
        assert len(lines) == len(state)
        counts = duckdb.sql(f"SELECT count(*) FROM read_csv('{tmp_path}/x.csv', header = true)").fetchall()
        assert counts == [(len(state),)]
        stored = pq.read_table(tmp_path / "x.parquet")
        assert stored.schema.names[: len(state.shape.columns)] == list(state.shape.columns)
        assert [line["count"] for line in lines] == stored.column("count").to_pylist()
