"""A source that gives nothing twice: at-most-once loses what was under way; acknowledging keeps it in the inbox first."""

from __future__ import annotations

from pathlib import Path

import pytest

from inbox_files import too_many
from matrix.faults import Fault
from matrix.oracles import check_at_least_once, check_at_most_once
from matrix.promises import EVENTS, world_of
from matrix.stories import failure
from matrix.world import World
from streamwork.epoch.redelivery import Redelivery
from tiers import quick_every

pytestmark = pytest.mark.usefixtures("short_chains")
POINTS = [
    "told plan *",
    "before create inbox/payments/*",
    "after create inbox/payments/*",
    "apply *",
    "about to write *",
    "rows written to *",
    "has written *",
    "after create state/*",
    "told report *",
    "told prepare *",
    "before create checkpoints/*[1-9].json",
    "told complete *",
    "before discard inbox/*",
    "told prune *",
]
FREE = ("told prepare *", "before create checkpoints/*[1-9].json", "told complete *", "told prune *")
KEEPS_FIRST = ("told plan *", "before create inbox/payments/*")  # at these nothing is in the inbox yet


def polled_world(folder: Path, promise: str) -> World:
    world = world_of(folder, promise, ("journal", "log"))
    world.queue = list(EVENTS)
    return world


def crash_and_go_on(world: World, at: str) -> set[int]:
    """The ids that were taken from the queue, in the epoch in which the life broke."""
    world.live((), Fault(at, 9 if at == "apply *" else 3, dead=True))
    taken = set(world.taken)
    world.live(()).survived()
    return taken


@pytest.mark.parametrize("at", quick_every(3, POINTS))
@pytest.mark.proves("a source that cannot be read again, any point")
def test_what_was_taken_from_a_queue_waits_in_the_inbox(folder: Path, at: str) -> None:
    world = polled_world(folder, "acknowledging")
    taken = crash_and_go_on(world, at)
    lost = taken if at in KEEPS_FIRST else set()
    check_at_least_once(world, EVENTS, taken, tuple(lost))
    assert not too_many(world.home, "payments"), "LEFT OVER: inbox"


@pytest.mark.parametrize("at", quick_every(3, [at for at in POINTS if "inbox" not in at]))
def test_at_most_once_loses_what_was_under_way(folder: Path, at: str) -> None:
    world = polled_world(folder, "at-most-once")
    taken = crash_and_go_on(world, at)
    missing = check_at_most_once(world, EVENTS, set() if at in FREE else taken)
    assert missing == 0 or at not in FREE


@pytest.mark.proves("the inbox for events that cannot be read again")
def test_without_the_inbox_what_was_taken_is_lost(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def attempt(name: str) -> None:
        world = polled_world(folder / name, "acknowledging")
        check_at_least_once(world, EVENTS, crash_and_go_on(world, "apply *"))

    assert failure(lambda: attempt("guarded")) == ""
    monkeypatch.setattr(Redelivery, "_orphans", lambda self: [])
    assert failure(lambda: attempt("a")).startswith("AT-LEAST-ONCE journal")
