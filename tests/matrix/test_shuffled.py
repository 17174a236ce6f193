"""The fall-back cells with instance state behind `shuffle()`: what is computed again goes to the instances it went to before.

Else the state of an instance would be the fold of other events than the rows that a sink ahead already has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from matrix.oracles import check_closed, check_ledgers, check_sequences
from matrix.points import DAMAGES, Outcome, outcome_of
from matrix.stories import cases, failure, ruin_newest
from matrix.targets import SINKS
from matrix.world import EVENTS, MORE, SLICE, World
from sample import Payment
from streamwork.flow import origins, routing

pytestmark = pytest.mark.usefixtures("short_chains")
BOTH = SINKS["SQLite + log"]


def check_shuffled(world: World, events: Sequence[Payment]) -> None:
    """Each instance numbers and sums its events without a gap, all events are there once, and state and sinks agree."""
    state = {}
    for instance, chain in world.newest()[0]["components"]["sums"].items():
        rows = pq.read_table(world.home / chain[-1]["path"]).to_pylist()
        state[f"instance {instance}"] = [(row["number"], row["total"]) for row in rows]
    for name in world.sinks:
        rows = world.rows(name)
        mine: dict[str, list[tuple[int, int]]] = {}
        for instance, number, total in sorted(rows):
            mine.setdefault(instance, []).append((number, total))
        check_sequences(name, sorted(rows))
        totals = [[0, *(total for _, total in one)] for one in mine.values()]
        amounts = Counter(int(step) for one in totals for step in np.diff(one))
        assert amounts == Counter(event.amount for event in events), f"ECHO {name}"
        assert {instance: one[-1:] for instance, one in mine.items()} == state, f"STATE and {name}"
        assert len(mine) == 2, "both instances have something to do"
    check_ledgers(world)
    check_closed(world, len(events))


@pytest.mark.parametrize(("count", "outcome"), cases(DAMAGES[:1]))  # instance state needs no third manifest to be safe
@pytest.mark.parametrize("size", [SLICE, SLICE - 1, 4 * SLICE])
@pytest.mark.parametrize("lost", ["no plan", "every plan"])
@pytest.mark.proves("`shuffle()` with instance state, and a fall back")
def test_after_a_fall_back_events_go_to_the_same_instances(
    folder: Path, count: int, outcome: Outcome, size: int, lost: str
) -> None:
    falls_back(folder, count, outcome, size, lost)


def falls_back(folder: Path, count: int, outcome: Outcome, size: int, lost: str) -> None:
    world = World(folder, BOTH, "shuffled")
    world.live(EVENTS).survived()
    check_shuffled(world, EVENTS)
    ruin_newest(world, count)
    if lost == "every plan":
        for plan in world.home.glob("checkpoints/*.plan.json"):
            plan.unlink()
    world.slice = size
    life = world.live(MORE).survived()
    assert outcome_of(world, life, 0) is outcome
    check_shuffled(world, MORE)


@pytest.mark.proves("routing by the position in the source")
def test_routing_by_the_number_of_the_epoch_is_caught(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from streamwork.engine.instance import Instance

    begin, plain = Instance.begin, origins.turns
    epoch = 0

    def noted(instance: Any, work: Any, attempt: str) -> None:
        nonlocal epoch
        epoch = work.epoch
        begin(instance, work, attempt)

    monkeypatch.setattr(Instance, "begin", noted)
    monkeypatch.setattr(routing, "turns", lambda given, count: (plain(given, count) + epoch) % count)
    assert failure(lambda: falls_back(folder, 1, Outcome.CATCHES_UP, SLICE, "no plan"))
