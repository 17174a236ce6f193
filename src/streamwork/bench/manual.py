"""``streamwork bench manual``: state by hand, beside the engine's checkpoints, at several intervals.

    by_hand          `streamwork.manual`: the instance stores its state in SQLite at its interval
    at_least_once    the engine's checkpoints, outputs written at once
    exactly_once     the engine's checkpoints, outputs committed with them

Each counts the same events per card on the local host, in a process of its own. `events_per_s` is of a run without failure. For
`computed_again`, a second run kills itself with -9 after a part of the input, and is started again: it is how many times an event
was applied beyond once. The engine's checkpoints are as many events apart as come in an interval, at the speed of `by_hand`, so
that all store equally often. The counts and totals of all cards are compared with numpy's; a difference is an error.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from streamwork.bench.contest import Wrong, turned
from streamwork.bench.manual_job import BY_HAND, CHILD, COUNTS, JOB, WAYS, Count, Logged, build
from streamwork.bench.spread import spread
from streamwork.components.duration import seconds
from streamwork.delivery.text import from_text
from streamwork.epoch import Store
from streamwork.epoch.state_view import state_view
from streamwork.log import EventLog
from streamwork.manual import SqliteStore
from streamwork.world import RealDisk

Note = Callable[[str], None]
Totals = dict[str, tuple[int, int]]


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    events: int = 300_000
    cards: int = 1_000
    intervals: tuple[str, ...] = ("50ms", "200ms", "1s")
    kill_at: float = 0.6  # of the input
    repeats: int = 5


FULL = Sizes()
QUICK = Sizes(events=3_000, cards=20, intervals=("10ms",), repeats=1)


def run(folder: Path | None = None, sizes: Sizes = FULL, note: Note = lambda line: None) -> dict[str, Any]:
    """Measure and return all figures. Raises `Wrong` if a count is wrong. `note` receives progress lines."""
    with tempfile.TemporaryDirectory(prefix="bench-manual-", dir=folder) as scratch:
        contest = Contest(Path(scratch), sizes, note)
        found = {interval: contest.at(interval) for interval in sizes.intervals}
    return {**found[sizes.intervals[-1]], "intervals": found, "settings": msgspec.to_builtins(sizes)}


class Contest:
    def __init__(self, folder: Path, sizes: Sizes, note: Note) -> None:
        self._folder = folder
        self._sizes = sizes
        self._note = note
        rng = np.random.default_rng(11)
        keys, amounts = rng.integers(0, sizes.cards, sizes.events), rng.integers(0, 1000, sizes.events)
        counts = np.bincount(keys, minlength=sizes.cards)
        totals = np.bincount(keys, amounts, sizes.cards)
        self._wanted: Totals = {f"c{n}": (int(counts[n]), int(totals[n])) for n in range(sizes.cards) if counts[n]}
        with EventLog.create(folder / "log", Logged, key="card") as log:
            log.append(pa.record_batch({"card": [f"c{key}" for key in keys], "amount": amounts}))

    def at(self, interval: str) -> dict[str, Any]:
        speeds: dict[str, list[float]] = {way: [] for way in WAYS}
        again: dict[str, list[float]] = {way: [] for way in WAYS}
        size = self._sizes.events  # of the engine's epochs, until the speed of `by_hand` is known
        for repeat in range(self._sizes.repeats):
            for way in (BY_HAND, *turned([way for way in WAYS if way != BY_HAND], repeat)):
                speed = self._sizes.events / self._run(way, interval, size, repeat, 0)
                speeds[way].append(speed)
                if way == BY_HAND:
                    size = max(1, round(speed * seconds(interval)))
                again[way].append(self._killed(way, interval, size, repeat))
                self._note(f"{interval}, {way}: {speed:,.0f} events/s, {again[way][-1]:,.0f} events computed again")
        found = dict[str, Any]()
        for way in WAYS:
            spreads = {"events_per_s": spread(speeds[way], 0), "computed_again": spread(again[way], 0)}
            found[way] = {**{name: one["median"] for name, one in spreads.items()}, "spread": spreads}
        return found

    def _killed(self, way: str, interval: str, size: int, repeat: int) -> int:
        """The number of events that were computed again after a kill."""
        at = round(self._sizes.events * self._sizes.kill_at)
        self._run(way, interval, size, repeat, at)
        return at + self._applied - self._sizes.events

    def _run(self, way: str, interval: str, size: int, repeat: int, kill_at: int) -> float:
        """Run the job to the end, with a kill in the middle if asked. Returns the seconds of the last life."""
        folder = self._folder / f"{interval}-{way}-{repeat}-{kill_at}"
        folder.mkdir()
        if kill_at:
            self._life(folder, way, interval, size, kill_at)
        output = self._life(folder, way, interval, size, 0)
        self._applied = int((folder / "applied").read_text())
        found = self._by_hand(folder) if way == BY_HAND else self._of_engine(folder, way, interval, size)
        if found != self._wanted:
            wrong = sorted(card for card in self._wanted if found.get(card) != self._wanted[card])
            raise Wrong(f"{way}, {interval}: the counts of {len(wrong)} cards are wrong, such as {wrong[:1]}")
        return float(msgspec.json.decode(output)["seconds"])

    def _life(self, folder: Path, way: str, interval: str, size: int, kill_at: int) -> bytes:
        command = [sys.executable, "-c", CHILD, str(folder), way, interval, str(size), str(kill_at)]
        done = subprocess.run(command, capture_output=True, check=False)
        if (done.returncode != 0) != bool(kill_at):
            raise Wrong(f"{way}: the process ended with {done.returncode}: {done.stderr.decode()[-2000:]}")
        return done.stdout.splitlines()[-1] if done.stdout else b""

    def _by_hand(self, folder: Path) -> Totals:
        with closing(SqliteStore(folder / "state.db")) as store:
            _, saved = store.begin(COUNTS, 0, 1)
        found = {name.decode(): from_text(Count, text.decode()) for name, text in saved.records.items()}
        return {card: (one.count, one.total) for card, one in found.items()}

    def _of_engine(self, folder: Path, way: str, interval: str, size: int) -> Totals:
        job = build(folder, way, interval, size)
        store = Store(RealDisk(), folder / "root", JOB)
        newest = store.manifest(max(store.completed()))
        rows = state_view(job.graph(), store, newest, COUNTS, job.settings.groups).to_arrow().to_pylist()
        return {row["card"]: (row["count"], row["total"]) for row in rows}
