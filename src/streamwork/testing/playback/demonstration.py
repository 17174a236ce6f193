"""A small job in which the alignment of inputs is seen: two shops, and the pieces sold of each item, counted by two instances."""

from __future__ import annotations

from collections.abc import Sequence

from streamwork.components import Event, KeyedCollector, KeyedOperator, Record
from streamwork.connectors.list_source import ListSource
from streamwork.connectors.sqlite import SqliteSink
from streamwork.job import Job
from streamwork.testing.playback.frames import Playback
from streamwork.testing.playback.recorder import play

SLICE = 3
"""Events that an epoch reads from each shop."""
SALES = {
    "north": ("tea", "rice", "milk", "tea", "salt", "rice"),
    "south": ("milk", "tea", "salt", "milk", "rice", "tea"),
}


class Sale(Event):
    item: str


class Sold(Event):
    item: str
    pieces: int


class Pieces(Record):
    pieces: int = 0


class Count(KeyedOperator[Sale, Pieces, Sold]):
    def apply(self, event: Sale, state: Pieces, collector: KeyedCollector) -> None:
        state.pieces += 1
        collector.emit(Sold(event.item, state.pieces))


def shops() -> Job:
    """The job. Its sink is replaced by a table in memory."""
    job = Job("shops", checkpoint_every=0)
    north, south = (job.source(ListSource([], Sale), id=shop) for shop in SALES)
    counted = north.union(south).apply(Count(), key="item", id="count", parallelism=2)
    counted.sink(SqliteSink("never-opened.db", "sold"), id="sold")
    return job


def demonstrate(seed: int = 0, crash_at: Sequence[int] = ()) -> Playback:
    """Play two checkpoints of the job, with the schedule of this seed."""
    inputs = {shop: [Sale(item) for item in items] for shop, items in SALES.items()}
    return play(shops(), inputs, seed, crash_at, epoch_events=SLICE)
