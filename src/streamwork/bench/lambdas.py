"""``streamwork bench lambda``: a lambda beside one exactly-once job with the same aggregates.

The log grows in rounds. In each round all three read what is new, in processes of their own, on the local host:

    stream         the streaming job of the lambda, at-most-once
    batch          a batch run of the lambda, from scratch: its work grows with the log
    exactly_once   one job that keeps the same aggregates

    cpu_s          CPU seconds of all rounds
    seconds        of the last round, from the start of the process's work to its end
    wrong          both jobs are killed with -9 in the middle of a round, and started again: how many events are missing in the
                   counts of all cards. Of the lambda before the next batch run, and after it
    get_ms         one key: the merged view, and the state of the exactly-once job; median

All answers are compared with a recomputation; a difference that the semantics do not allow is an error.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from streamwork import query
from streamwork.bench.contest import Wrong
from streamwork.bench.lambda_job import (
    BATCH,
    CHILD,
    COUNTS,
    EXACTLY_ONCE,
    STREAM,
    Purchase,
    Spending,
    Sums,
    definition,
)
from streamwork.bench.spread import spread
from streamwork.lambdas import open_view
from streamwork.log import EventLog

Note = Callable[[str], None]
Answers = dict[str, tuple[int, int, int]]
"""Card -> purchases, total, most."""


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    cards: int = 10_000
    events: int = 300_000  # of a round
    rounds: int = 4
    slice_size: int = 50_000  # events of a checkpoint
    gets: int = 200


FULL = Sizes()
QUICK = Sizes(cards=50, events=2_000, rounds=2, slice_size=500, gets=5)


def run(folder: Path | None = None, sizes: Sizes = FULL, note: Note = lambda line: None) -> dict[str, Any]:
    """Measure and return all figures. Raises `Wrong` if an answer is wrong. `note` receives progress lines."""
    with tempfile.TemporaryDirectory(prefix="bench-lambda-", dir=folder) as scratch:
        return Contest(Path(scratch), sizes, note).run()


class Contest:
    def __init__(self, folder: Path, sizes: Sizes, note: Note) -> None:
        self._folder, self._sizes, self._note = folder, sizes, note
        self._rng = np.random.default_rng(19)
        self._keys = np.zeros(0, np.int64)
        self._amounts = np.zeros(0, np.int64)
        EventLog.create(folder / "purchases.log", Purchase, key="card").close()

    def run(self) -> dict[str, Any]:
        ways = (STREAM, BATCH, EXACTLY_ONCE)
        runs: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
        for number in range(self._sizes.rounds):
            self._append()
            for way in ways:
                runs[way].append(self._life(way))
                self._note(f"round {number + 1} of {self._sizes.rounds}, {way}: {runs[way][-1]['seconds']:.2f} s")
            self._check(self._merged(), "the merged view")
            self._check(self._exact(), "the exactly-once job")
        found: dict[str, Any] = {
            way: {
                "cpu_s": round(sum(one["cpu"] for one in lives), 2),
                "seconds_first": round(lives[0]["seconds"], 3),
                "seconds_last": round(lives[-1]["seconds"], 3),
                "events_read": len(self._keys) if way != BATCH else self._sizes.events * self._triangle,
            }
            for way, lives in runs.items()
        }
        both = found[STREAM]["cpu_s"] + found[BATCH]["cpu_s"]
        return {
            "cpu_ratio_vs_exactly_once": round(both / found[EXACTLY_ONCE]["cpu_s"], 2),
            "batch_growth": round(found[BATCH]["seconds_last"] / found[BATCH]["seconds_first"], 2),
            "ways": found,
            "get_ms": self._gets(),
            "wrong": self._killed(),
            "settings": msgspec.to_builtins(self._sizes),
        }

    @property
    def _triangle(self) -> int:
        return self._sizes.rounds * (self._sizes.rounds + 1) // 2

    def _append(self) -> None:
        keys = self._rng.integers(0, self._sizes.cards, self._sizes.events)
        amounts = self._rng.integers(0, 1_000, self._sizes.events)
        self._keys, self._amounts = np.append(self._keys, keys), np.append(self._amounts, amounts)
        names = pa.array([f"c{card}" for card in range(self._sizes.cards)]).take(pa.array(keys))
        log: EventLog[Purchase]
        with EventLog(self._folder / "purchases.log") as log:
            log.append(pa.record_batch({"card": names, "amount": amounts}))

    def _life(self, way: str, kill_at: int = 0) -> dict[str, float]:
        command = [sys.executable, "-c", CHILD, str(self._folder), way, str(self._sizes.slice_size), str(kill_at)]
        done = subprocess.run(command, capture_output=True, check=False)
        if (done.returncode != 0) != bool(kill_at):
            raise Wrong(f"{way}: the process ended with {done.returncode}: {done.stderr.decode()[-2000:]}")
        return {} if kill_at else msgspec.json.decode(done.stdout.splitlines()[-1], type=dict[str, float])

    # ---- answers --------------------------------------------------------------------------------------------------

    def _wanted(self) -> Answers:
        count = np.bincount(self._keys, minlength=self._sizes.cards)
        total = np.bincount(self._keys, self._amounts, self._sizes.cards).astype(np.int64)
        most = np.zeros(self._sizes.cards, np.int64)
        np.maximum.at(most, self._keys, self._amounts)
        return {f"c{n}": (int(count[n]), int(total[n]), int(most[n])) for n in range(self._sizes.cards) if count[n]}

    def _merged(self) -> Answers:
        with open_view(definition(self._folder, 1), self._folder / "root", self._folder / "cache") as view:
            rows = view.table().to_pylist()
        return {row["card"]: (row["purchases"], row["total"], row["most"]) for row in rows}

    def _exact(self) -> Answers:
        with self._state() as state:
            rows = state[COUNTS].scan().table.to_pylist()
        return {row["card"]: (row["purchases"], row["total"], row["most"]) for row in rows}

    def _state(self) -> query.State:
        return query.open(self._folder / "root" / "exact", types={COUNTS: Sums}, cache=self._folder / "cache")

    def _check(self, found: Answers, what: str) -> None:
        wanted = self._wanted()
        if found != wanted:
            wrong = [card for card in wanted if found.get(card) != wanted[card]]
            raise Wrong(f"{what}: {len(wrong)} of {len(wanted)} cards are wrong, such as {wrong[:1]}")

    def _missing(self, found: Answers) -> int:
        return sum(count for count, *_ in self._wanted().values()) - sum(count for count, *_ in found.values())

    # ---- a kill, and single keys ----------------------------------------------------------------------------------

    def _killed(self) -> dict[str, int]:
        """Missing events after a kill -9 in the middle of a round."""
        self._append()
        for way in (STREAM, EXACTLY_ONCE):
            self._life(way, self._sizes.events // 2 + self._sizes.slice_size // 3)
            self._life(way)
        lost = self._missing(self._merged())
        self._check(self._exact(), "the exactly-once job, killed")
        self._life(BATCH)
        self._check(self._merged(), "the merged view after the next batch run")
        self._note(f"{lost:,} events missing after a kill, until the next batch run")
        return {"lambda_after_kill": lost, "lambda_after_batch_run": 0, "exactly_once_after_kill": 0}

    def _gets(self) -> dict[str, Any]:
        cards = [f"c{card}" for card in self._rng.choice(np.unique(self._keys), self._sizes.gets)]
        wanted = self._wanted()
        with open_view(definition(self._folder, 1), self._folder / "root", self._folder / "cache") as view:
            merged = [_timed(lambda card=card: view.get(card).record, card, wanted) for card in cards]  # type: ignore[misc]
        with self._state() as state:
            component = state[COUNTS]
            direct = [_timed(lambda card=card: component.get(card).record, card, wanted) for card in cards]  # type: ignore[misc]
        return {"merged": spread(merged)["median"], "exactly_once": spread(direct)["median"]}


def _timed(get: Callable[[], Spending | Sums | None], card: str, wanted: Mapping[str, tuple[int, int, int]]) -> float:
    """Milliseconds of a get, whose answer is checked."""
    began = time.perf_counter()
    found = get()
    seconds = time.perf_counter() - began
    if found is None or (found.purchases, found.total, found.most) != wanted[card]:
        raise Wrong(f"the answer for {card} is {found}")
    return seconds * 1000
