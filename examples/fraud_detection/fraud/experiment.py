"""The experiment: transactions at a fixed rate against the running job, and what came out.

1. Wait until the job decides.
2. Give every card a history.
3. Send: open loop, the n-th transaction at start + n / rate, whether or not the ones before are answered.
4. Wait for decisions that are late.
5. Report.
"""

from __future__ import annotations

import gc
import multiprocessing
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from .client import send_all
from .decision import Decision
from .gateway import Gateway
from .generator import PAST, SHARE, Generator, Planned
from .presenter import GIVE_UP_SECONDS, Outcome, Pending, Presenter, Reader, Verdict
from .progress import ProgressFile, Tally
from .report import latencies, longest_gap, missing_scores, quality
from .result_table import Results
from .server import Server
from .transaction import Transaction, open_log
from .truth import write_truth

PROBES = 8
"""Cards that probe whether the job decides: enough to meet every partition."""
HISTORY_BATCH = 200
Note = Callable[[str], None]


class NotRunning(Exception):
    """The job did not decide a transaction in time."""


class Stopped(Exception):
    """The experiment was stopped before it sent a transaction."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is done in one experiment."""

    rate: float = 200.0
    seconds: float = 20.0
    seed: int = 0
    share: float = SHARE
    history: int = 6  # transactions of each card before
    connections: int = 0  # of HTTP; 0: direct calls
    default: Verdict = Verdict.APPROVE
    patience: float = 60.0  # seconds to wait for the job
    progress: Path | None = None  # a line of JSON is appended to it each second


class Places(msgspec.Struct, frozen=True):
    """Where the job reads and writes."""

    log: Path
    decisions: Path
    truth: Path


class Experiment:
    def __init__(
        self, plan: Plan, places: Places, note: Note = lambda line: None, stop: threading.Event | None = None
    ) -> None:
        """`stop` ends the sending early. The report is then about the transactions that were sent."""
        self._stop = stop or threading.Event()
        self._plan = plan
        self._places = places
        self._note = note
        start = datetime.now(UTC)
        self._name = f"{start:%Y%m%d-%H%M%S-%f}"
        self._start = start
        self._generator = Generator(plan.seed, plan.rate, start, plan.share, self._name)

    def run(self) -> dict[str, Any]:
        plan = self._plan
        results = Results(self._places.decisions)
        presenter = Presenter(Results(self._places.decisions), default=plan.default)
        with open_log(self._places.log) as log, Reader(presenter):
            gateway = Gateway(log, presenter)
            self._note("waiting for the job")
            self._wait_for_job(gateway, "up", self._start - PAST)  # 1
            self._give_history(gateway)  # 2
            self._wait_for_job(gateway, "history", self._start)
            planned = list(islice(self._generator, round(plan.rate * plan.seconds)))
            write_truth(self._places.truth, planned)
            presenter.settle()  # probes that the job has skipped are not waited for
            before = presenter.outcomes.copy()
            self._note(f"sending {len(planned):,} transactions in {plan.seconds:g} s")
            gc.collect()
            gc.freeze()  # so that no collection in the middle walks through them
            sys.setswitchinterval(0.0005)  # the reader waits at most so long for the thread that sends
            seconds, lag = self._send(gateway, presenter, planned)  # 3, 4
            presenter.settle()
        sent = planned[: len(seconds)]
        return self._report(sent, seconds, lag, results.new(), presenter.outcomes - before)  # 5

    def _wait_for_job(self, gateway: Gateway, name: str, at: datetime) -> None:
        """Send transactions of cards that nothing else uses, until all are decided. The log is in order, so everything before them
        is decided, too.
        """
        end = time.monotonic() + self._plan.patience
        attempt = 0
        while time.monotonic() < end:
            if self._stop.is_set():
                raise Stopped("stopped before the first transaction")
            probes = [
                gateway.submit(
                    Transaction(f"{self._name}-{name}-{attempt}-{card}", f"probe-{card}", "probe", 0.0, 0.0, 1.0, at)
                )
                for card in range(PROBES)
            ]
            attempt += 1
            if _wait(lambda probes=probes: all(one.decision for one in probes), 2.0):  # type: ignore[misc]
                return
        raise NotRunning(f"the job decided no transaction in {self._plan.patience:g} s")

    def _give_history(self, gateway: Gateway) -> None:
        """As fast as the job decides: its analysers have bounded queues, and what does not fit is dropped."""
        history = self._generator.history(self._plan.history) if self._plan.history else []
        if history:
            self._note(f"{len(history):,} transactions as the history of {len(self._generator.cards):,} cards")
        for start in range(0, len(history), HISTORY_BATCH):
            given = gateway.submit_all(history[start : start + HISTORY_BATCH])
            _wait(lambda given=given: all(one.decision for one in given), 2.0)  # type: ignore[misc]

    def _send(self, gateway: Gateway, presenter: Presenter, planned: list[Planned]) -> tuple[list[float | None], float]:
        """The seconds from the scheduled time of each transaction to its decision, and the longest delay of the sender."""
        plan = self._plan
        if plan.connections:
            context = multiprocessing.get_context("spawn")
            transactions = [one.transaction for one in planned]
            with Server(gateway, presenter) as server, ProcessPoolExecutor(1, mp_context=context) as clients:
                clients.submit(send_all, server.address, 0.0, plan.rate, [], 0).result()  # starts and imports
                start = time.monotonic() + 1.0
                sent = clients.submit(send_all, server.address, start, plan.rate, transactions, plan.connections)
                answered = sent.result()
                _wait(lambda: presenter.is_settled, GIVE_UP_SECONDS + 1)  # 4
                return answered, 0.0
        start, lag = time.monotonic() + 0.1, 0.0
        pending: list[Pending] = []
        tally = Tally(planned, pending, plan.rate)
        with ProgressFile(plan.progress, tally, start, time.monotonic) if plan.progress else nullcontext():
            while len(pending) < len(planned) and not self._stop.is_set():
                number = len(pending)
                late = time.monotonic() - start - number / plan.rate
                if late < 0:
                    time.sleep(-late)
                    continue
                lag = max(lag, late)
                due = planned[number : number + 1 + int(late * plan.rate)]  # all that are due by now
                pending += gateway.submit_all([one.transaction for one in due])
            _wait(lambda: presenter.is_settled, GIVE_UP_SECONDS + 1)  # 4
        return [
            None if one.decided_at is None else one.decided_at - start - number / plan.rate
            for number, one in enumerate(pending)
        ], lag

    def _report(
        self,
        planned: list[Planned],
        seconds: list[float | None],
        lag: float,
        decisions: list[Decision],
        outcomes: dict[Outcome, int],
    ) -> dict[str, Any]:
        ids = {one.transaction.id for one in planned}
        ours = [decision for decision in decisions if decision.transaction in ids]
        truth = {one.transaction.id: one.fraud for one in planned if one.fraud is not None}
        return {
            "by": "http" if self._plan.connections else "direct call",
            "rate": self._plan.rate,
            "seconds": self._plan.seconds,
            "latency": latencies(seconds),
            "longest_gap_ms": longest_gap(seconds, self._plan.rate),
            "history": self._plan.history * len(self._generator.cards),
            "sender_lag_ms": round(lag * 1000, 3),
            "answers": {outcome.value: outcomes.get(outcome, 0) for outcome in Outcome},
            "decided": len(ours),
            "missing_scores": missing_scores(ours),
            "quality": quality(truth, ours),
        }


def _wait(done: Callable[[], bool], seconds: float) -> bool:
    """Wait until something is done, at most so long. Returns whether it is."""
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True
