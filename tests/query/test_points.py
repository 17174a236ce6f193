"""Answers over HTTP at a savepoint, at older checkpoints, and after the job has fallen back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from query.query_jobs import by_order, by_shop, fold, sales, sales_job, values
from query.serving_world import Served, serving, wait_for
from sample import run_job
from streamwork import query
from streamwork.epoch.job_folder import open_store
from streamwork.run.savepoints import create_savepoint
from streamwork.world import RealClock

EVENTS = sales(range(0, 40_000, 97))
SAVED = 100


class World:
    def __init__(self, path: Path, served: Served) -> None:
        self.path, self.served = path, served
        self.root = path / "root"

    def run(self, count: int) -> int:
        epoch = run_job(sales_job(EVENTS[:count], self.path), self.root, retain=4).checkpoint
        assert epoch
        return epoch

    def epochs(self) -> list[int]:
        return open_store(self.root, "sales").completed()


def is_fold(state: query.State, count: int, at: str | None = None) -> bool:
    """Of the first events, in every way of asking."""
    for name, by in (("by-shop", by_shop), ("by-order", by_order)):
        expected, component = fold(EVENTS[:count], by), state[name]
        found = {key: values(record) for key, record in component.scan(at=at)}
        keys = list(expected)
        assert {key: values(one) for key, one in component.get_many(keys, at=at)} == found
        assert component.count(at=at).count == len(found)
        assert dict(component.range(limit=1_000, at=at)).keys() == found.keys()
        one = component.get(keys[0], at=at)
        assert one.record is None or values(one.record) == found[keys[0]]
        if found != expected:
            return False
    return True


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    first = World(tmp_path, None)  # type: ignore[arg-type]
    first.run(SAVED)
    with serving(tmp_path / "root", "sales") as served:
        first.served = served
        yield first


def test_a_savepoint_answers_after_its_checkpoint_is_pruned(world: World) -> None:
    store = open_store(world.root, "sales")
    made = create_savepoint(sales_job(EVENTS[:SAVED], world.path), store, "before", "", 60, RealClock())
    last = world.run(200)
    world.served.follow(last)
    assert made.checkpoint not in world.epochs()
    with world.served.connect() as state:
        assert is_fold(state, SAVED, at="savepoint:before")
        assert is_fold(state, 200)
        answer = state["by-shop"].count(at="savepoint:before")
        assert answer.epoch == made.checkpoint and answer.committed and not answer.regressed
        older = world.epochs()[-2]
        assert is_fold(state, 10 * older, at=f"checkpoint:{older}")
    shop, expected = next(iter(fold(EVENTS[:SAVED], by_shop).items()))
    status, found = world.served.ask(f"/state/by-shop/{shop}?at=savepoint:before")
    assert status == 200 and found["epoch"] == made.checkpoint and found["committed"]
    assert (found["record"]["count"], found["record"]["total"]) == expected[:2]
    status, code = world.served.refused(f"/state/by-shop/{shop}?at=savepoint:after")
    assert 400 <= status < 500 and code.startswith("SW-SAVEPOINT")


def test_a_fall_back_is_marked(world: World) -> None:
    """Until a newer checkpoint than the lost one is there."""
    lost = world.run(150)
    world.served.follow(lost)
    marks = lambda: stamp(world.served, "/count/by-shop")  # noqa: E731
    assert marks() == (lost, True, False)
    with world.served.connect() as state:
        for path in (world.root / "sales" / "checkpoints").glob(f"{lost:012d}*json"):
            if "plan" not in path.name:
                path.unlink()
        wait_for(lambda: marks()[0] < lost)
        fallen = marks()
        assert fallen[1:] == (True, True)
        answer = state["by-shop"].get("shop-01")
        assert answer.regressed and answer.epoch == fallen[0]
        assert is_fold(state, 10 * fallen[0])
        for path in ("/range/by-shop", "/scan/by-shop", "/state/by-shop/shop-01"):
            assert stamp(world.served, path) == fallen
        assert state["by-shop"].get_many(["shop-01"]).regressed
        newer = world.run(250)
        world.served.follow(newer)
        newest = world.run(260)
        assert newest > newer > lost
        world.served.follow(newest)
        wait_for(lambda: marks() == (newest, True, False))


def stamp(served: Served, path: str) -> tuple[int, bool, bool]:
    status, found = served.ask(path)
    assert status == 200, found
    return found["epoch"], found["committed"], found["regressed"]


def test_sql_names_the_point_that_it_read(world: World) -> None:
    pytest.importorskip("duckdb")
    store = open_store(world.root, "sales")
    create_savepoint(sales_job(EVENTS[:SAVED], world.path), store, "before", "", 60, RealClock())
    world.served.follow(world.run(200))
    with world.served.connect() as state:
        for count, at in ((SAVED, "savepoint:before"), (200, None)):
            found = state.sql("SELECT shop, total FROM by_shop", at=at).to_arrow().to_pylist()
            expected: dict[Any, Any] = fold(EVENTS[:count], by_shop)
            assert {row["shop"]: row["total"] for row in found} == {key: one[1] for key, one in expected.items()}
