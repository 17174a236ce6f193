"""The presenter: answers the bank with the decision about a transaction, or, when its time is over, with the default."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from enum import Enum
from typing import Literal, NamedTuple, Protocol

from .decision import Decision
from .settings import ANSWER_WITHIN

POLL_SECONDS = 0.001
GIVE_UP_SECONDS = 5.0
"""A decision that is not there after so long counts as missing."""


class Verdict(Enum):
    APPROVE = "approve"
    DECLINE = "decline"


class Answer(NamedTuple):
    """What the bank gets."""

    transaction: str
    verdict: Verdict
    by: Literal["decision", "default"]
    score: float | None = None  # of the decision


class Outcome(Enum):
    """How a transaction was answered. A default is late or missing only when that is known."""

    IN_TIME = "in time"
    LATE = "default: late"
    MISSING = "default: missing"


class NewDecisions(Protocol):
    """The decisions since the last call: see `Results`."""

    def new(self) -> list[Decision]: ...


class Pending:
    """A transaction whose answer the bank waits for."""

    def __init__(self, transaction: str, presenter: Presenter) -> None:
        self.transaction = transaction
        self.accepted_at: float | None = None
        self.decision: Decision | None = None  # also if it came too late
        self.decided_at: float | None = None  # when the decision was readable, by the presenter's clock
        self.outcome: Outcome | None = None  # None: not known yet
        self._presenter = presenter
        self._answer: Answer | None = None
        self._answered = threading.Event()

    def answer(self) -> Answer:
        """The answer. Waits for it, but not beyond the deadline."""
        if not self._answered.wait(self._presenter.remaining(self)):
            self._presenter.expire(self)
        assert self._answer is not None
        return self._answer

    def resolve(self, answer: Answer) -> None:
        self._answer = answer
        self._answered.set()

    @property
    def is_answered(self) -> bool:
        return self._answered.is_set()


class Presenter:
    """Hands new decisions to the transactions that wait for them. One thread, the reader, calls `poll`; any thread may call
    the rest.

    `expect` comes before a transaction is appended to the log, so that no decision is missed; then `accept`, which starts its
    time, or `withdraw`, if it could not be appended.
    """

    def __init__(
        self,
        results: NewDecisions,
        within: float = ANSWER_WITHIN,
        default: Verdict = Verdict.APPROVE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.within = within
        self.default = default
        self.outcomes: Counter[Outcome] = Counter()
        self._results = results
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: dict[str, Pending] = {}  # by transaction
        self._deadlines: deque[Pending] = deque()  # in the order of acceptance
        self._defaulted: deque[Pending] = deque()  # likewise; it is not known yet whether late or missing

    def expect(self, transaction: str) -> Pending:
        """A transaction that is about to be appended. One that is expected already has one answer for both."""
        with self._lock:
            return self._waiting.setdefault(transaction, Pending(transaction, self))

    def accept(self, pending: Pending) -> None:
        """The transaction is in the log: its time starts."""
        with self._lock:
            if pending.accepted_at is None:
                pending.accepted_at = self._clock()
                if not pending.is_answered:
                    self._deadlines.append(pending)

    def withdraw(self, pending: Pending) -> None:
        """The transaction could not be appended."""
        with self._lock:
            if pending.accepted_at is None:
                self._waiting.pop(pending.transaction, None)

    def remaining(self, pending: Pending) -> float:
        """Seconds until its deadline."""
        if pending.accepted_at is None:
            return self.within
        return max(0.0, pending.accepted_at + self.within - self._clock())

    def poll(self) -> None:
        """Answer with the decisions that have come, and with the default where time is over."""
        decisions = self._results.new()
        now = self._clock()
        with self._lock:
            for decision in decisions:
                pending = self._waiting.pop(decision.transaction, None)
                if pending is not None:
                    self._decided(pending, decision, now)
            while self._deadlines and (self._deadlines[0].is_answered or self._is_over(self._deadlines[0], now)):
                pending = self._deadlines.popleft()
                if not pending.is_answered:
                    self._answer_default(pending)
            while self._defaulted and (self._defaulted[0].outcome or self._is_lost(self._defaulted[0], now)):
                pending = self._defaulted.popleft()
                if pending.outcome is None:
                    self._lost(pending)

    def expire(self, pending: Pending) -> None:
        """Answer with the default, unless there is an answer."""
        with self._lock:
            if not pending.is_answered:
                self._answer_default(pending)

    @property
    def is_settled(self) -> bool:
        """True if the outcome of every transaction is known."""
        with self._lock:
            return not self._waiting

    def settle(self) -> None:
        """Call what is open missing: no further decision is waited for."""
        with self._lock:
            for pending in [*self._deadlines, *self._defaulted]:
                if not pending.is_answered:
                    self._answer_default(pending)
                if pending.outcome is None:
                    self._lost(pending)
            self._deadlines.clear()
            self._defaulted.clear()

    # ---- with the lock held ------------------------------------------------------------------------------------------

    def _decided(self, pending: Pending, decision: Decision, now: float) -> None:
        pending.decision, pending.decided_at = decision, now
        if pending.is_answered or self._is_over(pending, now):
            if not pending.is_answered:
                self._answer_default(pending)
            self._count(pending, Outcome.LATE)
            return
        verdict = Verdict.DECLINE if decision.fraud else Verdict.APPROVE
        pending.resolve(Answer(pending.transaction, verdict, "decision", decision.score))
        self._count(pending, Outcome.IN_TIME)

    def _answer_default(self, pending: Pending) -> None:
        pending.resolve(Answer(pending.transaction, self.default, "default"))
        self._defaulted.append(pending)

    def _lost(self, pending: Pending) -> None:
        self._waiting.pop(pending.transaction, None)
        self._count(pending, Outcome.MISSING)

    def _count(self, pending: Pending, outcome: Outcome) -> None:
        pending.outcome = outcome
        self.outcomes[outcome] += 1

    def _is_over(self, pending: Pending, now: float) -> bool:
        return pending.accepted_at is not None and now > pending.accepted_at + self.within

    def _is_lost(self, pending: Pending, now: float) -> bool:
        return pending.accepted_at is not None and now > pending.accepted_at + GIVE_UP_SECONDS


class Reader:
    """The thread that polls. A context manager: it runs inside the block."""

    def __init__(self, presenter: Presenter) -> None:
        self._presenter = presenter
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="read decisions", daemon=True)
        self.failure: Exception | None = None

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                self._presenter.poll()
                time.sleep(POLL_SECONDS)
        except Exception as error:  # requests get the default; `__exit__` raises it
            self.failure = error

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure
