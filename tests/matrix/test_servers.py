"""Real servers that are killed and come back in the middle of a write or a commit, and an answer that is lost."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from matrix import targets
from matrix.oracles import check, check_at_least_once, check_at_most_once, check_state_at_once
from matrix.promises import EVENTS as ECHOES
from matrix.promises import PROMISES, world_of
from matrix.targets import SINKS
from matrix.world import EVENTS, MORE, SLICE, World
from streamwork.connectors import postgres
from tiers import quick_every, quick_few

pytestmark = pytest.mark.usefixtures("short_chains")


def once(world: World, at: str, act: Callable[[], None]) -> None:
    """Something happens where a line passes for the fourth time."""
    left = 4

    def on_line(line: str) -> None:
        nonlocal left
        left -= line == at
        if left == 0:
            world.on_line = None
            act()

    world.on_line = on_line


def happened(world: World) -> bool:
    return world.on_line is None


RESTARTS = list(
    product(["PostgreSQL", "PostgreSQL, upsert"], ["killed", "stopped"], ["read-committed", "read-uncommitted"])
)


@pytest.mark.parametrize(("sinks", "how", "isolation"), quick_few(RESTARTS, set, "-".join, list))
@pytest.mark.proves("database restarted in mid commit")
def test_a_database_is_restarted_in_the_middle_of_a_commit(folder: Path, sinks: str, how: str, isolation: str) -> None:
    world = World(folder, SINKS[sinks], isolation=isolation)
    once(world, f"rows written to {SINKS[sinks][0]}", lambda: targets.server("postgres").restart(how == "killed"))
    life = world.live(EVENTS)
    assert happened(world) and life.code == "SW-SINK-FAILED"
    world.live(MORE).survived()
    check(world, MORE)


@pytest.mark.parametrize("at", quick_every(2, ["told prepare {n}", "told complete {n}"]))
def test_a_database_that_is_restarted_between_two_commits_is_not_even_noticed(folder: Path, at: str) -> None:
    world = World(folder, SINKS["PostgreSQL"])
    left = [at.format(n=3)]

    def on_line(line: str) -> None:
        if line in left:
            left.clear()
            targets.server("postgres").restart(kill=True)

    world.on_line = on_line
    world.live(MORE).survived()
    assert not left
    check(world, MORE)


@pytest.mark.parametrize("sinks", quick_every(2, [SINKS["PostgreSQL"], SINKS["PostgreSQL, upsert"]]), ids=" + ".join)
@pytest.mark.proves("database's answer to COMMIT lost")
def test_the_answer_to_a_commit_is_lost(folder: Path, sinks: tuple[str, ...]) -> None:
    """The ledger row tells: nothing is written twice, and the job goes on."""
    world = World(folder, sinks)
    world.lose_answer = f"rows written to {sinks[0]}"
    world.live(MORE).survived()
    assert world.lose_answer == "", "it was lost"
    check(world, MORE)


def test_without_a_look_at_the_ledger_a_lost_answer_stops_the_job(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def give_up(self: Any, entry: Any, lost: Exception) -> None:
        raise lost

    monkeypatch.setattr(postgres.PostgresSink, "_find_out", give_up)
    world = World(folder, SINKS["PostgreSQL"])
    world.lose_answer = "rows written to items"
    assert world.live(MORE).code == "SW-SINK-FAILED"
    world.live(MORE).survived()
    check(world, MORE)


WRITES = list(product(["items", "cards", "hashes"], PROMISES))


@pytest.mark.parametrize(("sink", "promise"), quick_few(WRITES, set, "-".join, list))
@pytest.mark.proves("server killed in mid write")
def test_a_server_is_killed_in_the_middle_of_a_write_at_once(folder: Path, sink: str, promise: str) -> None:
    world = world_of(folder, promise, (sink,))
    name = "redis_server" if sink == "hashes" else "postgres"
    once(world, f"rows written to {sink}", lambda: targets.server(name).restart(kill=True))
    life = world.live(ECHOES)
    assert happened(world)
    world.live(ECHOES).survived()
    if promise == "at-most-once":  # the rows are dropped and counted, and the job does not even stop
        assert life.error is None
        check_at_most_once(world, ECHOES)
    elif promise == "at-least-once":
        check_at_least_once(world, ECHOES)
        check_state_at_once(world, ECHOES, set())
    else:  # those events come again
        assert life.error is None
        check_at_least_once(world, ECHOES, set(range(4 * SLICE)))


@pytest.mark.proves("Redis killed between two keys of a commit")
def test_a_redis_is_killed_between_two_keys_of_a_commit(folder: Path) -> None:
    world = World(folder, SINKS["Redis"])
    once(world, "rows written to hashes", lambda: targets.server("redis_server").restart(kill=True))
    world.live(EVENTS)
    assert happened(world)
    world.live(MORE).survived()
    check(world, MORE)
