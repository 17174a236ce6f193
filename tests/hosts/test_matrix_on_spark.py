"""The fault matrix on a real Spark, in one session: cells chosen so that all pairs of point, sink and promise are met."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crashes import Crash
from matrix import targets
from matrix.on_spark import ECHOES, EVENTS, POINTS, SLICE, STRUCK, Cell, Remembering, cells, job_of, world_of
from matrix.oracles import (
    check_at_least_once,
    check_at_most_once,
    check_closed,
    check_echo,
    check_ledgers,
    check_previews,
    check_readers,
    check_state,
    check_state_at_once,
    fold,
)
from matrix.world import World
from sample import run_job
from servers import postgres, redis_server  # noqa: F401  (fixtures)
from streamwork.epoch import Phase


@pytest.fixture(scope="session", autouse=True)
def servers(request: pytest.FixtureRequest) -> Iterator[None]:
    targets.servers["find"] = request.getfixturevalue
    yield
    targets.close_readers()


def crashed(world: World, cell: Cell) -> None:
    """One life that breaks as the cell says."""
    at = POINTS.get(cell.point)
    if at is not None and at[1] is Phase.COMMIT and world.semantics != "exactly-once":
        at = at[0], Phase.COMPLETE  # there are no commits
    events = EVENTS if world.operator == "sums" else ECHOES
    job = job_of(world, cell, events)
    if at is not None:
        with pytest.raises(Crash):
            run_job(job, world.root, "microbatch", watcher=Remembering(world, at))
        world.in_doubt |= world.open_now()
    else:  # Spark runs the task again, in the same epoch
        run_job(job, world.root, "microbatch", watcher=Remembering(world, None))
        assert (world.folder / "killed").exists()
        if world.semantics != "at-most-once":  # there, what is missing must have been counted
            world.in_doubt |= set(range(STRUCK // SLICE * SLICE, (STRUCK // SLICE + 1) * SLICE))
    world.uid = json.loads((world.home / "job.json").read_bytes())["uid"]


def check_cell(world: World) -> None:
    if world.semantics == "exactly-once":
        check_echo(world, EVENTS)
        check_state(world, fold(EVENTS)[1])
        check_ledgers(world)
        check_closed(world, len(EVENTS))
        check_readers(world, EVENTS)
        if world.isolation == "read-uncommitted":
            check_previews(world, EVENTS, ())
    elif world.semantics == "at-most-once":
        check_at_most_once(world, ECHOES)
    else:
        check_at_least_once(world, ECHOES)
        check_state_at_once(world, ECHOES, set())
    assert len(world.in_doubt) <= 2 * SLICE, "two epochs are under way at most"


def parameters() -> list[Any]:
    """In the quick tier: a worker killed with -9, under exactly-once."""
    quick = Cell("a worker killed in mid compute", "log", "exactly-once")
    assert quick in cells()
    return [pytest.param(cell, id=cell.name, marks=() if cell == quick else pytest.mark.slow) for cell in cells()]


@pytest.mark.spark
@pytest.mark.parametrize("cell", parameters())
def test_a_cell(tmp_path: Path, spark: Any, cell: Cell) -> None:
    world = world_of(tmp_path, cell)
    crashed(world, cell)
    if world.semantics == "exactly-once":
        check_readers(world, EVENTS)
    events = EVENTS if world.operator == "sums" else ECHOES
    run_job(job_of(world, cell, events), world.root, "microbatch", watcher=Remembering(world, None))
    check_cell(world)
