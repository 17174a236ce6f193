"""`Progress`: the sender's figures so far, as a line of JSON each second. A reader takes the last line."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from .generator import Planned
from .presenter import Outcome, Pending
from .report import latencies

EVERY = 1.0
"""Seconds between two lines."""
RECENT = 5.0
"""Seconds of transactions that the percentiles are about."""
WAIT = 0.5
"""A transaction that was due less than so many seconds ago is not part of them: its decision may be on the way."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The figures at one moment."""

    seconds: float  # since the first transaction was due
    sent: int
    answers: dict[str, int]  # by outcome, as far as it is known
    planted: int  # fraud among the transactions whose outcome is known
    caught: int  # of them
    flagged: int  # transactions that were judged fraudulent
    missing_scores: dict[str, int]  # analyser -> decisions without its score
    latency: dict[str, Any]  # of recent transactions: see `latencies`


class Tally:
    """Adds up what became known since the last call. For one thread."""

    def __init__(self, planned: Sequence[Planned], pending: Sequence[Pending], rate: float) -> None:
        """`pending` grows: the n-th is that of the n-th planned transaction, which is due at n / `rate` seconds."""
        self._planned = planned
        self._pending = pending
        self._rate = rate
        self._seen = 0
        self._open: list[int] = []  # transactions whose outcome was not known
        self._numbers: Counter[str] = Counter()
        self._answers: Counter[str] = Counter()
        self._missing: Counter[str] = Counter()

    def at(self, seconds: float, start: float) -> Progress:
        """The figures so many seconds after `start`, which is a time of the presenter's clock."""
        sent = len(self._pending)
        undecided = [*self._open, *range(self._seen, sent)]
        self._open = [number for number in undecided if not self._count(number)]
        self._seen = sent
        first, last = max(0, round((seconds - WAIT - RECENT) * self._rate)), round((seconds - WAIT) * self._rate)
        recent = [
            None if (at := one.decided_at) is None else at - start - number / self._rate
            for number, one in enumerate(self._pending[first : max(0, last)], first)
        ]
        return Progress(
            seconds=round(seconds, 3),
            sent=sent,
            answers={outcome.value: self._answers[outcome.value] for outcome in Outcome},
            planted=self._numbers["planted"],
            caught=self._numbers["caught"],
            flagged=self._numbers["flagged"],
            missing_scores=dict(self._missing),
            latency=latencies(recent),
        )

    def _count(self, number: int) -> bool:
        """Add up a transaction whose outcome is known. Returns False for others."""
        pending = self._pending[number]
        if pending.outcome is None:
            return False
        decision, planted = pending.decision, self._planned[number].fraud is not None
        flagged = decision is not None and decision.fraud
        self._answers[pending.outcome.value] += 1
        self._numbers.update(planted=int(planted), flagged=int(flagged), caught=int(planted and flagged))
        self._missing.update(decision.missing if decision is not None else ())
        return True


class ProgressFile:
    """The thread that writes a line each second. A context manager: it runs inside the block, and ends with a last line."""

    def __init__(self, path: Path, tally: Tally, start: float, clock: Callable[[], float]) -> None:
        self._path = path
        self._tally = tally
        self._start = start
        self._clock = clock
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="write progress", daemon=True)

    def __enter__(self) -> ProgressFile:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        with self._path.open("ab") as file:
            stopped = False
            while not stopped:
                stopped = self._stopped.wait(EVERY)
                line = msgspec.json.encode(self._tally.at(self._clock() - self._start, self._start))
                file.write(line + b"\n")
                file.flush()
