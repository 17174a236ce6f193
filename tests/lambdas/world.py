"""A lambda over a log, and what its answers must be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crashes import CrashAt
from streamwork import Event, EventLog, LogSource, count, distinct_of, last_of, max_of, sum_of
from streamwork.lambdas import BatchRun, Lambda, View, open_view, run_batch
from streamwork.run.mode import Mode
from streamwork.run.options import RunOptions
from streamwork.run.runner import run
from streamwork.world import Disk


class Purchase(Event):
    card: str
    amount: int
    shop: str = ""


class Spending(Event):
    card: str
    purchases: int
    total: int
    most: int
    last: int
    shops: int


def fold(events: Sequence[Purchase]) -> dict[str, Spending]:
    """The answer for each card, by a loop."""
    found: dict[str, list[Purchase]] = {}
    for event in events:
        found.setdefault(event.card, []).append(event)
    return {
        card: Spending(
            card,
            len(mine),
            sum(one.amount for one in mine),
            max(one.amount for one in mine),
            mine[-1].amount,
            len({one.shop for one in mine}),
        )
        for card, mine in found.items()
    }


@dataclass
class World:
    """A log with one partition, so that the offset of an event is its place in `events`."""

    folder: Path
    semantics: str = "at-most-once"
    parallelism: int = 1
    slice_size: int = 3
    events: list[Purchase] = field(default_factory=list)

    def __post_init__(self) -> None:
        EventLog.create(self.log, Purchase).close()

    @property
    def log(self) -> Path:
        return self.folder / "purchases.log"

    @property
    def root(self) -> Path:
        return self.folder / "root"

    @property
    def definition(self) -> Lambda[Spending]:
        return Lambda(
            "card-spending",
            events=lambda job: job.source(LogSource(self.log, Purchase, max_events=self.slice_size), id="purchases"),
            key="card",
            to=Spending,
            parallelism=self.parallelism,
            purchases=count(),
            total=sum_of("amount"),
            most=max_of("amount"),
            last=last_of("amount"),
            shops=distinct_of("shop"),
        )

    def add(self, events: Sequence[Purchase]) -> None:
        if events:
            with EventLog(self.log) as log:
                log.append(list(events))
        self.events += events

    def stream(self, watcher: CrashAt | None = None) -> None:
        """Run the streaming job until it has caught up."""
        job = self.definition.stream(semantics=self.semantics, restart=None)
        options = RunOptions.parse(mode="local", root=self.root, until_caught_up=True, take_over=True)
        run(job, options, watcher)

    def batch(self, watcher: CrashAt | None = None, disk: Disk | None = None) -> BatchRun:
        return run_batch(self.definition, self.root, mode=Mode.LOCAL, watcher=watcher, disk=disk)

    def view(self) -> View[Spending]:
        return open_view(self.definition, self.root, self.folder / "cache")

    def check(self, is_exact: bool = True) -> dict[str, Any]:
        """The answers are those of a loop: all of them, if the streaming job loses nothing; else those of the batch run."""
        with self.view() as view:
            table, stand = view.table().to_pylist(), view.stand()
            answers = {one["card"]: view.get(one["card"]) for one in table}
        want = fold(self.events)
        if is_exact:
            assert {card: one.record for card, one in answers.items()} == want
            assert {one["card"]: one["total"] for one in table} == {card: one.total for card, one in want.items()}
        if stand.run is not None:
            seam = self.seam(stand.run)
            assert {card: one.exact for card, one in answers.items() if one.exact} == fold(self.events[:seam])
            if is_exact:
                assert {card: one.recent for card, one in answers.items() if one.recent} == fold(self.events[seam:])
        else:
            assert not any(one.exact for one in answers.values())
        return {"run": stand.run, "seam": stand.seam, "cards": len(table)}

    def seam(self, run: int) -> int:
        """The offset at which a batch run ends."""
        from streamwork.lambdas.seams import FOLDER, SeamFolder
        from streamwork.world import RealDisk

        return SeamFolder(RealDisk(), self.root / "card-spending" / FOLDER).seam(run).positions["purchases/0"]
