"""A root with many jobs and long histories, for `bench console`.

One job runs for a few epochs in local mode. Its history is then written as if it had run for long, by the class that writes every
history, and its folder is copied under other names. In the end this process holds every job, as its driver would.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec

from streamwork import Event, Job, KeyedOperator, ListSource, Record, SqliteSink
from streamwork.delivery.counts import Counts
from streamwork.epoch.fences import Fences
from streamwork.epoch.history.history import KEEP_SAMPLES, History
from streamwork.epoch.history.lag import InputEnd, Sample
from streamwork.epoch.history.values import Result, Row, Seconds, StateSize
from streamwork.epoch.store import Store
from streamwork.run.mode import Mode
from streamwork.run.options import RunOptions
from streamwork.run.record import RunRecorder
from streamwork.run.runner import run
from streamwork.world import Clock, RealClock, RealDisk, RealProcesses

JOB_NAME = "job-{:03}"
FIRST_EPOCHS = 3
RETAINED = 3
BEHIND = 100  # events of the input that are not read yet
LEASE = 10.0
PARALLELISM = 4
EVENTS = 1_000  # of an epoch
ABANDONED = 5  # of the last hundred epochs
EVERY = 1.0
STATE_POINTS = 1_440


class Paid(Event):
    card: str
    amount: int


class Sums(Record):
    total: int = 0


class Summing(KeyedOperator[Paid, Sums, Paid]):
    def apply(self, event: Paid, state: Sums, collector: Any) -> None:
        state.total += event.amount
        collector.emit(Paid(event.card, state.total))


def make_root(root: Path, jobs: int, epochs: int) -> int:
    """Make the root. Returns the newest checkpoint, which is the same in every job: the number of epochs."""
    clock, first = RealClock(), JOB_NAME.format(0)
    run(_job(first, root), RunOptions(mode=Mode.LOCAL, root=root, until_caught_up=True))
    store = Store(RealDisk(), root, first)
    _write_checkpoints(store, epochs)
    _write_history(store.folder / "history.sqlite", epochs, clock)
    for number in range(1, jobs):
        shutil.copytree(store.folder, root / JOB_NAME.format(number))
    for number in range(jobs):
        _hold(root, JOB_NAME.format(number), clock)
    return epochs


def _job(name: str, root: Path) -> Job:
    job = Job(name, checkpoint_every=0, parallelism=PARALLELISM)
    events = [Paid(f"card-{number % 50}", number) for number in range(30 * FIRST_EPOCHS)]
    source = job.source(ListSource(events, Paid, max_events=30), id="payments")
    source.apply(Summing(), key="card", id="sums").sink(SqliteSink(root.parent / "out.db", "out"), id="out")
    return job


def _write_checkpoints(store: Store, newest: int) -> None:
    """The newest checkpoint, under the numbers that a long life would have given to it and to those before."""
    before = max(store.completed())
    manifest, plan = store.manifest(before), store.plan(before)
    for epoch in range(newest - RETAINED + 1, newest + 1):
        store.write_plan(msgspec.structs.replace(plan, epoch=epoch, parent=epoch - 1, seal=""))
        made = msgspec.structs.replace(manifest, epoch=epoch, parent=epoch - 1, seal="")
        store.write_prepared(made)
        store.write_completed(made)
    for epoch in store.completed():
        if epoch <= newest - RETAINED:
            store.remove_manifest(epoch)


def _write_history(path: Path, epochs: int, clock: Clock) -> None:
    path.unlink()
    now, history = clock.now(), History(path)
    history.input_ends([InputEnd("payments", "0", 0, 30 * FIRST_EPOCHS + BEHIND, "events", now)])
    for sample in _samples(now):  # one by one, as a driver does: each call thins older ones
        history.input_ends([], [sample])
    points = range(STATE_POINTS - 1, -1, -1)
    history.state_sizes([StateSize("sums", now - 60.0 * point, 50, 10_000 + point % 7) for point in points])
    seconds = Seconds(plan=0.001, compute=0.05, prepare=0.002, commit=0.003, complete=0.001, prune=0.001)
    share = EVENTS // PARALLELISM
    counted = [
        Counts(name, instance, processed=share, delivered=share)
        for name in ("payments", "sums", "out")
        for instance in range(PARALLELISM)
    ]
    for epoch in range(1, epochs + 1):
        back = epochs - epoch
        outcome = Result.ABANDONED if 0 < back <= ABANDONED else Result.COMPLETED
        started = now - (back + 1) * EVERY
        row = Row(epoch=epoch, fence=1, outcome=outcome, started=started, seconds=seconds, events=EVENTS)
        history.record(row, counted)
    history.close()


def _samples(now: float) -> list[Sample]:
    """Once a second, as long as they are kept: a source that keeps up."""
    kept = range(int(KEEP_SAMPLES))
    return [
        Sample("payments", now - KEEP_SAMPLES + one + 1, (one + 1) * EVENTS + BEHIND, (one + 1) * EVENTS)
        for one in kept
    ]


def _hold(root: Path, job: str, clock: Clock) -> None:
    """Become the driver of a job, as far as its files say."""
    store = Store(RealDisk(), root, job)
    fences = Fences(store.disk, store.folder, clock, RealProcesses())
    fence = fences.claim(lease=LEASE)
    RunRecorder(store.disk, store.folder, clock, Mode.LOCAL.value, EVERY).started(fence.fence)
