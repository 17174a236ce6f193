"""Which instance reads which partition."""

from __future__ import annotations

from dataclasses import replace

from batch_jobs import Sale
from streamwork import Job, ListSource
from streamwork.components import Position
from streamwork.epoch.slices import Partitions


def test_partitions_named_by_numbers_are_shared_evenly_and_never_move() -> None:
    job = Job("slices")
    job.source(ListSource([], Sale), id="in").print()
    node = replace(next(iter(job.graph().planned)), parallelism=2)
    names = [str(number) for number in range(6)]
    found = [Partitions({"in": names[:count]}, frozenset()).readers(node, Position()) for count in range(1, 7)]
    assert all(dict(list(found[-1].items())[: len(one)]) == one for one in found)
    assert list(found[-1].values()) == [0, 1, 0, 1, 0, 1]
    others = Partitions({"in": ["a", "b", "²"]}, frozenset()).readers(node, Position())
    assert set(others.values()) <= {0, 1}
