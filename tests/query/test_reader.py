"""A reader answers like the fold of the input, at every checkpoint, whatever the job's folder looks like."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from query.query_jobs import CHECKPOINT_EVENTS, Sums, by_order, by_shop, fold, in_order, sales, sales_job, values
from sample import run_job
from streamwork import JobFailed, Refused, WrongUse, query
from streamwork.components.hashing import hash_columns
from streamwork.epoch.job_folder import open_store
from streamwork.query import cache as cache_module
from streamwork.query import component as component_module
from streamwork.query.local import LocalState
from streamwork.query.one_hash import hash_one
from streamwork.query.reader import Reader
from streamwork.state import compaction
from tiers import quick_every

KINDS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.string(), st.text(max_size=40) | st.text(min_size=500, max_size=600)),
    (pa.binary(), st.binary(max_size=40) | st.binary(min_size=500, max_size=600)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.bool_(), st.booleans()),
    (pa.timestamp("us", tz="UTC"), st.datetimes(timezones=st.just(UTC))),
    (pa.date32(), st.dates()),
    (pa.decimal128(30, 4), st.decimals(-(10**25), 10**25, places=4)),
]


@given(
    st.lists(st.sampled_from(KINDS), min_size=1, max_size=3).flatmap(
        lambda kinds: st.tuples(st.just([k for k, _ in kinds]), st.tuples(*(st.none() | v for _, v in kinds)))
    )
)
def test_the_hash_of_one_key_is_that_of_a_column(case: tuple[list[pa.DataType], tuple[Any, ...]]) -> None:
    kinds, key = case
    columns = [pa.array([part], kind) for part, kind in zip(key, kinds, strict=True)]
    scales = [kind.scale if pa.types.is_decimal(kind) else None for kind in kinds]
    assert hash_one(key, scales) == hash_columns(columns, 1)[0]


@pytest.mark.parametrize("seed", quick_every(8, range(24)))
def test_answers_are_the_fold(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over starts, deletes and compactions: a reader that follows, one that is new, and one that looks back."""
    monkeypatch.setattr(compaction, "LONGEST_CHAIN", 3)
    monkeypatch.setattr(component_module, "FEW_ROWS", 5)
    monkeypatch.setattr(cache_module, "SMALL", 4)
    rng = random.Random(seed)
    events = sales([rng.randrange(100_000) for _ in range(CHECKPOINT_EVENTS * rng.randrange(10, 30))])
    folder, following, parallelism = tmp_path / "root" / "sales", None, rng.choice([1, 1, 2, 3])
    done = 0
    while done < len(events):
        done = min(len(events), done + CHECKPOINT_EVENTS * rng.randrange(1, 15))
        outcome = run_job(sales_job(events[:done], tmp_path, parallelism), tmp_path / "root", retain=4)
        assert outcome.checkpoint
        following = following or reading(tmp_path, eager=rng.random() < 0.5)
        fresh = reading(tmp_path)
        for state in (following, fresh):
            check(state, events[:done], rng)
        older = outcome.checkpoint - 2
        if older > 0 and (folder / "checkpoints" / f"{older:012d}.json").exists():
            positions = open_store(tmp_path / "root", "sales").manifest(older).positions
            check(fresh, events[: sum(positions.of("sales").values())], rng, at=f"checkpoint:{older}")
        fresh.close()
    assert following is not None
    following.close()


def reading(path: Path, eager: bool = False) -> LocalState:
    return LocalState(
        Reader(path / "root" / "sales", types={"by-shop": Sums}, cache=path / "cache", follow_every=0, eager=eager)
    )


def check(state: LocalState, events: list[Any], rng: random.Random, **options: Any) -> None:
    for name, key in (("by-shop", by_shop), ("by-order", by_order)):
        expected, component = fold(events, key), state[name]
        possible = sorted({key(event) for event in events}, key=in_order)
        asked = rng.choices(possible, k=min(20, len(possible)))
        many = component.get_many(asked, **options)
        assert [record and values(record) for record in many.records] == [expected.get(one) for one in asked]
        for one in asked[:5]:
            answer = component.get(one, **options)
            assert (answer.record and values(answer.record)) == expected.get(one)
            assert answer.epoch == many.epoch
        assert component.count(**options).count == len(expected)
        assert {k: values(r) for k, r in dict(component.scan(**options)).items()} == expected
        assert {k: values(r) for k, r in dict(many).items()} == {k: expected[k] for k in asked if k in expected}
        first, last = sorted(rng.choices(possible, k=2), key=in_order)
        wanted = [k for k in sorted(expected, key=in_order) if in_order(first) <= in_order(k) < in_order(last)]
        found = component.range(first, last, **options)
        assert found.found_keys == wanted and not found.more
        assert [values(record) for record in found.records if record] == [expected[k] for k in wanted]
        some = component.range(first, last, limit=2, **options)
        assert some.found_keys == wanted[:2] and some.more == (len(wanted) > 2)
        if some.more:
            assert component.range(first, last, after=some.found_keys[-1], **options).found_keys == wanted[2:]
        shop = rng.choice(possible)
        begin = shop if name == "by-shop" else shop[0]
        text = begin[: rng.randrange(1, len(begin) + 1)]
        starting = [k for k in sorted(expected, key=in_order) if (k if name == "by-shop" else k[0]).startswith(text)]
        assert component.prefix(text, **options).found_keys == starting
    seen = list(state["watching"].scan(**options))
    assert state["watching"].get(seen[0][0], **options).record == seen[0][1]
    assert sum(record.events for _, record in seen) == len(events)


class World:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.root, self.folder = path / "root", path / "root" / "sales"
        self.events = sales(range(0, 40_000, 97))

    def run(self, count: int, **options: Any) -> int:
        outcome = run_job(sales_job(self.events[:count], self.path), self.root, **options)
        assert outcome.checkpoint
        return outcome.checkpoint

    def open(self) -> LocalState:
        return LocalState(Reader(self.folder, cache=self.path / "cache", follow_every=0))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_component_answers_by_the_names_of_its_key(world: World) -> None:
    world.run(100)
    component = world.open()["by-order"]
    key = component.scan().found_keys[0]
    assert key.shop == key[0] and key.order == key[1]
    assert component.get({"shop": key.shop, "order": key.order}).record == component.get(key).record is not None
    with pytest.raises(WrongUse, match="SW-QUERY-KEY.*it has 1 parts"):
        component.get("shop-00")
    with pytest.raises(WrongUse, match="SW-QUERY-KEY"):
        component.get(("shop-00", "x"))
    with pytest.raises(WrongUse, match="SW-QUERY-KEY"):
        component.get_many([("shop-00", 1.5)])
    with pytest.raises(WrongUse, match="use one of: watching, by-shop, by-order"):
        world.open()["nothing"]


def test_a_checkpoint_that_must_be_in_the_answer_is_waited_for(world: World) -> None:
    epoch = world.run(100)
    component = world.open()["by-shop"]
    assert component.count(at_least=epoch).epoch == epoch
    with pytest.raises(
        JobFailed, match=f"SW-QUERY-BEHIND: checkpoint {epoch + 1} was requested, and the newest one is {epoch}"
    ):
        component.count(at_least=epoch + 1, timeout=0.05)


def test_what_was_not_kept_is_refused(world: World) -> None:
    epoch = world.run(100)
    component = world.open()["by-shop"]
    assert component.count(at=f"checkpoint:{epoch}").count
    for at in ("checkpoint:1", "checkpoint:x", "savepoint:../x", "somewhere", "savepoint:none"):
        with pytest.raises((WrongUse, Refused), match=r"SW-QUERY-AT|SW-SAVEPOINT|SW-JOB-NAME|SW-"):
            component.count(at=at)


def test_a_damaged_file_is_never_served(world: World) -> None:
    """The reader goes on with what it has, and says so; a new one has nothing to answer from."""
    before = world.run(100)
    state = world.open()
    count = state["by-shop"].count()
    world.run(120)
    for path in (world.folder / "state" / "by-shop").rglob("*.parquet"):
        path.write_bytes(path.read_bytes()[:-1] + b"x")
    again = state["by-shop"].count()
    assert again.epoch == before and again.count == count.count
    assert "sha256" in state._reader.problem
    with pytest.raises(Refused, match="SW-STATE-DAMAGED"):
        LocalState(Reader(world.folder, cache=world.path / "other", follow_every=0))["by-shop"].count()


def test_a_fall_back_is_marked(world: World) -> None:
    """The job falls back to an older checkpoint: answers say so until a newer one than the lost one is there."""
    world.run(60)
    lost = world.run(120)
    state = world.open()
    assert state["by-shop"].count().epoch == lost
    for path in (world.folder / "checkpoints").glob(f"{lost:012d}*json"):
        if "plan" not in path.name:
            path.unlink()
    answer = state["by-shop"].count()
    assert answer.epoch < lost and answer.regressed
    after = world.run(200)
    answer = state["by-shop"].count()
    assert answer.epoch == after > lost
    world.run(220)
    assert not state["by-shop"].count().regressed


def test_a_folder_of_an_older_version_is_refused_with_the_way_out(world: World) -> None:
    world.run(100)
    (world.folder / "graph.json").unlink()
    with pytest.raises(Refused, match="SW-QUERY-GRAPH.*\n.*start the job once"):
        world.open()["by-shop"]


def test_a_record_class_that_does_not_fit_is_refused(world: World) -> None:
    class Other(Sums):
        more: int = 0

    world.run(100)
    with pytest.raises(WrongUse, match="SW-QUERY-TYPE: Other is not the record of by-shop: more differ"):
        query.open(world.folder, types={"by-shop": Other}, cache=world.path / "cache")["by-shop"]


def test_keys_of_every_type(tmp_path: Path) -> None:
    at = datetime(2026, 11, 19, 8, 0, tzinfo=UTC)
    assert hash_one((at, date(2026, 1, 1), Decimal("1.50")), (None, None, 2)) == hash_columns(
        [
            pa.array([at], pa.timestamp("us", tz="UTC")),
            pa.array([date(2026, 1, 1)]),
            pa.array([Decimal("1.5")], pa.decimal128(9, 2)),
        ],
        1,
    )[0].astype(np.uint64)
