"""The aggregator of the fraud detection example, in virtual time."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from fraud.aggregator import WAIT, Aggregator, Seen
from fraud.decision import Decision
from fraud.score import AVERAGE_TICKET, COUNT, PROXIMITY, Score
from fraud.settings import ANSWER_WITHIN

from streamwork import Job, KeyedCollector, ListSource, SqliteSink
from streamwork.testing import Advance, Result, run

HOUR = timedelta(hours=1)
PAST_THE_WAIT = Advance(2 * HOUR.total_seconds())
"""A checkpoint takes virtual time, too, so the tests wait for hours instead of milliseconds."""


def score(analyser: str, value: float = 0.0, transaction: str = "t1") -> Score:
    return Score(transaction, "c1", analyser, value)


def aggregate(*given: Any, kind: type[Aggregator] = Aggregator) -> tuple[list[Decision], Result]:
    """The decisions, with a checkpoint for each score, so that timers fire in between."""
    job = Job("aggregate", semantics="at-most-once", checkpoint_every=0)
    scores = job.source(ListSource([], Score), id="scores")
    scores.apply(kind(wait=HOUR, stragglers=24 * HOUR), key="transaction", id="aggregator").sink(
        SqliteSink("d.db", "d"), id="out"
    )
    result = run(job, {"scores": list(given)}, epoch_events=1)
    return result.outputs["out"], result


ALL = (score(AVERAGE_TICKET, 0.5), score(PROXIMITY, 0.25), score(COUNT, 0.125))


def test_all_scores_in_any_order_make_one_decision_at_once() -> None:
    for order in (ALL, ALL[::-1]):
        (decision,), result = aggregate(*order)
        assert (decision.transaction, decision.card, decision.fraud, decision.score) == ("t1", "c1", False, 0.875)
        assert decision.scores == {AVERAGE_TICKET: 0.5, PROXIMITY: 0.25, COUNT: 0.125} and not decision.missing
        assert result.states["aggregator"] == {}, "nothing is kept"


def test_the_wait_leaves_time_for_the_answer() -> None:
    assert timedelta(seconds=ANSWER_WITHIN) / 2 >= WAIT


def test_scores_add_up() -> None:
    (decision,), _ = aggregate(score(AVERAGE_TICKET, 0.5), score(PROXIMITY, 0.0), score(COUNT, 0.5))
    assert decision.fraud and decision.score == 1.0


def test_a_missing_score_is_not_waited_for() -> None:
    for missing in range(3):
        there = [one for number, one in enumerate(ALL) if number != missing]
        (decision,), _ = aggregate(*there, PAST_THE_WAIT, score(COUNT, transaction="t2"))
        assert decision.missing == {ALL[missing].analyser}
        assert decision.score == sum(one.score for one in there)


def test_before_the_wait_is_over_nothing_is_decided() -> None:
    decisions, result = aggregate(*ALL[:2], Advance(HOUR.total_seconds() / 4), score(COUNT, transaction="t2"))
    assert decisions == [] and set(result.states["aggregator"]) == {"t1", "t2"}


def test_one_analyser_alone_can_decide() -> None:
    (decision,), _ = aggregate(score(PROXIMITY, 1.0), PAST_THE_WAIT, score(COUNT, transaction="t2"))
    assert decision.fraud and decision.reason == PROXIMITY and len(decision.missing) == 2


class Forgetful(Aggregator):
    """Forgets a transaction when the timer has decided it."""

    def on_timer(self, key: str, at: datetime, state: Seen, collector: KeyedCollector) -> None:
        super().on_timer(key, at, state, collector)
        collector.clear_state()


def test_a_score_behind_the_decision_changes_nothing() -> None:
    late = (
        *ALL[:2],
        PAST_THE_WAIT,
        score(COUNT, transaction="t2"),
        ALL[2],
        PAST_THE_WAIT,
        score(COUNT, transaction="t3"),
    )
    decisions, result = aggregate(*late)
    assert [decision.transaction for decision in decisions] == ["t1", "t2"]
    assert "t1" not in result.states["aggregator"], "all its scores have come"
    twice, _ = aggregate(*late, kind=Forgetful)
    assert [decision.transaction for decision in twice].count("t1") == 2, "the control"


def test_a_decided_transaction_is_forgotten_in_the_end() -> None:
    waited = Advance(48 * HOUR.total_seconds())
    _, result = aggregate(ALL[0], PAST_THE_WAIT, score(COUNT, transaction="t2"), waited, score(COUNT, transaction="t3"))
    assert "t1" not in result.states["aggregator"]
