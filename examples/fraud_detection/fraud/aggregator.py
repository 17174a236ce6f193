"""The aggregator: one decision for each transaction, with the scores that are there in time."""

from __future__ import annotations

from datetime import datetime, timedelta

from streamwork import KeyedCollector, KeyedOperator, Record

from .decision import Decision
from .score import AVERAGE_TICKET, COUNT, PROXIMITY, Score
from .settings import SCORES_WITHIN

WAIT = timedelta(seconds=SCORES_WITHIN)
FRAUD = 1.0
"""The sum of scores from which on a transaction is fraud."""
STRAGGLERS = timedelta(seconds=10)
"""A score that arrives so long after a decision without it is ignored."""


class Seen(Record):
    """The scores of a transaction, one field each: a record without containers is cheap to copy."""

    card: str = ""
    average_ticket: float | None = None
    proximity: float | None = None
    count: float | None = None
    decided: bool = False

    def scores(self) -> dict[str, float]:
        """Those that are there, by analyser."""
        known = {AVERAGE_TICKET: self.average_ticket, PROXIMITY: self.proximity, COUNT: self.count}
        return {name: score for name, score in known.items() if score is not None}


FIELDS = {AVERAGE_TICKET: "average_ticket", PROXIMITY: "proximity", COUNT: "count"}
"""Analyser -> the field of its score."""


class Aggregator(KeyedOperator[Score, Seen, Decision]):
    """Decides when all scores are in, or, by a timer, when the first one has waited for `wait`.

    A transaction that was decided by the timer is remembered for a while, so that a score that comes later does not make a second
    decision. All others are forgotten at once.
    """

    def __init__(self, wait: timedelta = WAIT, stragglers: timedelta = STRAGGLERS) -> None:
        self.wait = wait
        self.stragglers = stragglers

    def apply(self, event: Score, state: Seen, collector: KeyedCollector) -> None:
        if not state.card:
            state.card = event.card
            collector.set_timer(collector.now + self.wait, clock="processing")
        setattr(state, FIELDS[event.analyser], event.score)
        if state.average_ticket is not None and state.proximity is not None and state.count is not None:
            if not state.decided:
                self._decide(event.transaction, state, collector)
            collector.clear_state()

    def on_timer(self, key: str, at: datetime, state: Seen, collector: KeyedCollector) -> None:
        if state.decided:
            collector.clear_state()
            return
        self._decide(key, state, collector)
        state.decided = True
        collector.set_timer(at + self.stragglers, clock="processing")

    def _decide(self, transaction: str, state: Seen, collector: KeyedCollector) -> None:
        scores = state.scores()
        total = sum(scores.values())
        collector.emit(Decision(transaction, state.card, total >= FRAUD, total, scores, collector.now))
