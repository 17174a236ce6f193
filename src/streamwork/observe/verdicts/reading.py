"""Reads the `Signs` of a job from its files."""

from __future__ import annotations

from pathlib import Path

from streamwork.engine.vitals import read_vitals
from streamwork.epoch.fences import Holder, Life
from streamwork.epoch.history.reading import input_ends, recent_counts, rows, samples, state_sizes
from streamwork.epoch.manifest import Manifest
from streamwork.epoch.store import Store
from streamwork.observe.verdicts.signs import Signs
from streamwork.run.record import RunRecord, read_run
from streamwork.world import Clock

EPOCHS = 100
COUNTED = 20
"""The number of epochs over which the events of instances are compared."""


def read_signs(
    store: Store, root: Path, job: str, clock: Clock, holder: Holder | None, running: bool | None, at: Manifest | None
) -> Signs:
    """`at` is the newest completed checkpoint."""
    history, now = store.folder / "history.sqlite", clock.now()
    epochs = rows(history, EPOCHS)[::-1]
    fence = 0 if holder is None else holder.fence
    processed: dict[str, dict[int, int]] = {}
    for one in recent_counts(history, epochs[-1].epoch - COUNTED + 1 if epochs else 0):
        mine = processed.setdefault(one.counts.component, {})
        mine[one.counts.instance] = mine.get(one.counts.instance, 0) + one.counts.processed
    record = read_run(store.disk, store.folder)
    counters = {} if at is None else at.counters
    return Signs(
        job=job,
        root=str(root),
        now=now,
        running=running,
        restarting=holder is not None and holder.restarting and holder.life is Life.RUNNING,
        ended=holder is None or holder.life is Life.ENDED,
        holder="" if holder is None else str(holder.process),
        run=record or RunRecord(fence=0, mode="", checkpoint_every=1.0),
        epochs=epochs,
        samples=samples(history),
        units={one.source: one.unit for one in input_ends(history)},
        sinks=tuple(() if at is None else at.sinks),
        processed=processed,
        keyed=frozenset(name for name, counted in counters.items() if "keys" in counted),
        states=state_sizes(history),
        tasks=read_vitals(store.disk, store.folder, fence, now) if running is not False else (),
    )
