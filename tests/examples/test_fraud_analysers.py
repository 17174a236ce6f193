"""The analysers of the fraud detection example, in virtual time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fraud.average_ticket import ENOUGH, AverageTicket, History
from fraud.count import LATE, TOO_MANY, WINDOW, Counted, count_score, late_score
from fraud.proximity import LastPlace, Proximity, distance
from fraud.score import Score, between
from fraud.transaction import Transaction

from streamwork import Fixed, Job, KeyedCollector, ListSource, SqliteSink, count
from streamwork.testing import explore, run

START = datetime(2026, 3, 1, 8, tzinfo=UTC)
BERLIN, ROME = (52.52, 13.41), (41.90, 12.50)


def paid(
    number: int, seconds: float = 0.0, amount: float = 10.0, place: tuple[float, float] = BERLIN, card: str = "c1"
) -> Transaction:
    return Transaction(f"t{number}", card, "shop", *place, amount, START + timedelta(seconds=seconds))


def job_of(operator: Any) -> Job:
    job = Job("analyser")
    transactions = job.source(ListSource([], Transaction), id="transactions")
    transactions.apply(operator, key="card", id="analyser").sink(SqliteSink("s.db", "s"), id="out")
    return job


def scores(operator: Any, transactions: list[Transaction]) -> list[float]:
    found: list[Score] = run(job_of(operator), {"transactions": transactions}).outputs["out"]
    assert [score.transaction for score in found] == [transaction.id for transaction in transactions]
    return [score.score for score in found]


def test_between() -> None:
    assert [between(3, value, 8) for value in (-1, 3, 5.5, 8, 100)] == [0, 0, 0.5, 1, 1]


def test_an_amount_far_above_the_average_of_the_card() -> None:
    usual = [paid(number) for number in range(ENOUGH)]
    assert scores(AverageTicket(), [*usual, paid(7, amount=55.0), paid(8, amount=10.0)]) == [0] * ENOUGH + [0.5, 0]
    assert scores(AverageTicket(), [*usual, paid(7, amount=80.0)])[-1] == 1
    assert scores(AverageTicket(), [*usual[1:], paid(7, amount=80.0)])[-1] == 0, "too few to know the average"
    other = [paid(number, amount=100.0, card="c2") for number in range(10, 16)]
    assert scores(AverageTicket(), [*usual, *other, paid(7, amount=80.0)])[-1] == 1, "each card has its own average"


def test_cards_that_are_only_checked_have_an_average_of_zero() -> None:
    assert scores(AverageTicket(), [paid(number, amount=0.0) for number in range(9)]) == [0] * 9


class Credulous(AverageTicket):
    """Remembers everything."""

    def apply(self, event: Transaction, state: History, collector: KeyedCollector) -> None:
        super().apply(event, state, collector)
        state.average += (event.amount - state.average) * 0.05 * (event.amount > 8 * state.average)


def test_a_suspicious_amount_does_not_raise_the_average() -> None:
    stolen = [*(paid(number) for number in range(ENOUGH)), *(paid(number, amount=150.0) for number in range(10, 40))]
    assert scores(AverageTicket(), stolen)[ENOUGH:] == [1.0] * 30
    assert scores(Credulous(), stolen)[-1] < 1, "the control: else the thief is the usual customer in the end"


@pytest.mark.parametrize(
    ("here", "there", "km"), [(BERLIN, ROME, 1182), (BERLIN, BERLIN, 0), ((0, 0), (0, 180), 20015)]
)
def test_distances(here: tuple[float, float], there: tuple[float, float], km: float) -> None:
    assert distance(*here, *there) == pytest.approx(km, rel=0.01)


def test_places_that_are_too_far_apart() -> None:
    near = (52.40, 13.06)
    assert scores(Proximity(), [paid(1), paid(2, 60, place=near)]) == [0, 0], "30 km say nothing"
    assert scores(Proximity(), [paid(1), paid(2, 3600, place=ROME)]) == [0, 1], "an hour from Berlin to Rome"
    assert scores(Proximity(), [paid(1), paid(2, 3 * 3600, place=ROME)]) == [0, 0], "by plane"
    assert scores(Proximity(), [paid(1), paid(2, 0, place=ROME)]) == [0, 1], "at the same time"
    assert scores(Proximity(), [paid(1, 60), paid(2, 0, place=ROME)]) == [0, 1], "in the other order"
    assert scores(Proximity(), [paid(1), paid(2, 60, place=ROME, card="c2")]) == [0, 0], "another card"


class Mover(Proximity):
    """Remembers every place."""

    def apply(self, event: Transaction, state: LastPlace, collector: KeyedCollector) -> None:
        super().apply(event, state, collector)
        state.latitude, state.longitude, state.at = event.latitude, event.longitude, event.at


def test_the_next_payment_at_home_is_not_suspicious() -> None:
    visit = [paid(1), paid(2, 60, place=ROME), paid(3, 120), paid(4, 180, place=ROME)]
    assert scores(Proximity(), visit) == [0, 1, 0, 1]
    assert scores(Mover(), visit) == [0, 1, 1, 1], "the control"


def test_too_many_transactions_in_a_window() -> None:
    job = Job("count")
    transactions = job.source(ListSource([], Transaction), id="transactions", time="at")
    counted = transactions.window(Fixed(WINDOW), key="card", emit="event", lateness=LATE, id="count").aggregate(
        Counted, in_window=count()
    )
    counts = counted.map(count_score).union(counted.channel("late").map(late_score, to=Score))
    counts.sink(SqliteSink("s.db", "s"), id="out")
    burst = [paid(number, number / 10) for number in range(1, 10)]
    rest = [paid(20, 1, card="c2"), paid(21, 60), paid(22, 0.5)]
    found = {score.transaction: score.score for score in run(job, {"transactions": [*burst, *rest]}).outputs["out"]}
    assert [found[one.id] for one in burst] == [0, 0, 0, 0.2, 0.4, 0.6, 0.8, 1, 1]
    assert [found[one.id] for one in rest] == [0, 0, 0], "another card, another window, and one that is too late"
    assert TOO_MANY == 8


@pytest.mark.parametrize("operator", [AverageTicket(), Proximity()], ids=["average ticket", "proximity"])
def test_everything_they_know_is_in_their_state(operator: Any) -> None:
    transactions = [paid(n, n * 30, 10.0 * n, (BERLIN, ROME)[n % 3 == 2], f"c{n % 2}") for n in range(16)]
    assert explore(job_of(operator), {"transactions": transactions}, seeds=4).resumes
