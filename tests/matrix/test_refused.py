"""Combinations that cannot hold are refused, naming the component, before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from matrix.promises import EVENTS, PROMISES
from matrix.targets import TARGETS
from matrix.world import World
from sample import Payment, Seen
from streamwork import Job, ListSource, Operator, Source, SqliteSink, WrongUse

EVERY = {"exactly-once": ("exactly-once", None), **PROMISES}


@pytest.mark.parametrize("promise", EVERY)
@pytest.mark.parametrize("isolation", ["read-committed", "read-uncommitted"])
@pytest.mark.parametrize("sink", TARGETS)
@pytest.mark.proves(
    "exactly-once with a function as sink",
    "`read-uncommitted` with the log, Parquet, Redis or a function",
    "`read-uncommitted` without exactly-once",
)
def test_every_sink_under_every_promise(folder: Path, sink: str, isolation: str, promise: str) -> None:
    """A job is made, or refused; nothing in between."""
    world = World(folder, (sink,), "echo", *EVERY[promise], isolation)
    kind, exactly_once = TARGETS[sink], promise == "exactly-once"
    holds = kind.exactly_once or not exactly_once
    if isolation == "read-uncommitted":
        holds = exactly_once and kind.previews
    before = world.everything()
    if holds:
        world.job(EVENTS).graph()
        return
    with pytest.raises(WrongUse, match=f"SW-JOB-SEMANTICS.*'{sink}'"):
        world.live(EVENTS)
    assert world.everything() == before, "SAFE"


class Once(Source[Payment]):
    """Gives what cannot be had again."""

    event = Payment

    def get_events(self, limit: int) -> list[Payment]:
        return []


class Lumping(Operator[Payment, Seen]):
    def apply_batch(self, events: Any) -> Any:
        return events


@pytest.mark.parametrize("promise", EVERY)
@pytest.mark.proves("exactly-once, or at-least-once by checkpoint, with a source that cannot replay")
def test_a_source_that_cannot_give_the_same_events_again(tmp_path: Path, promise: str) -> None:
    semantics, tracking = EVERY[promise]
    job = Job("refused", semantics=semantics, tracking=tracking)  # type: ignore[arg-type]
    job.source(Once(), id="once").sink(SqliteSink(tmp_path / "out.db", "out"), id="out")
    if promise in ("at-most-once", "acknowledging"):
        job.graph()
        return
    with pytest.raises(WrongUse, match="SW-JOB-SEMANTICS.*'once'"):
        job.graph()


@pytest.mark.proves("acknowledging with `apply_batch`")
def test_a_batch_of_which_nobody_knows_which_event_became_which(tmp_path: Path) -> None:
    job = Job("refused", semantics="at-least-once", tracking="acknowledge")
    source = job.source(ListSource(EVENTS, Payment), id="payments")
    source.apply(Lumping(), id="lump").sink(SqliteSink(tmp_path / "out.db", "out"), id="out")
    with pytest.raises(WrongUse, match="SW-JOB-SEMANTICS.*lump"):
        job.graph()
