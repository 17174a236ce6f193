"""`explore` finds operators and sources that keep what they need in `self`, and reports how much it tried."""

from __future__ import annotations

from typing import Any

import pytest

from streamwork import (
    Event,
    Job,
    KeyedOperator,
    ListSource,
    Record,
    SqliteSink,
    StatefulOperator,
    StatefulSource,
)
from streamwork.testing import explore
from streamwork.testing.explore import REPLAY, Explored

SEEDS = 50  # as docs/testing.md has it
NONE = SqliteSink("never-opened.db", "t")


class Paid(Event):
    card: str
    amount: int


class Total(Record):
    amount: int = 0


EVENTS = [Paid(card, 1) for card in "abcabc"]  # as docs/testing.md has it


class Kept(KeyedOperator[Paid, Total, Paid]):
    def apply(self, event: Paid, state: Total, collector: Any) -> None:
        state.amount += event.amount
        collector.emit(Paid(event.card, state.amount))


class InSelf(KeyedOperator[Paid, Total, Paid]):
    """Keeps its totals in `self`: they are gone after a restart."""

    def __init__(self) -> None:
        self.totals: dict[str, int] = {}

    def apply(self, event: Paid, state: Total, collector: Any) -> None:
        self.totals[event.card] = self.totals.get(event.card, 0) + event.amount
        collector.emit(Paid(event.card, self.totals[event.card]))


class InSetup(InSelf):
    def setup_instance(self, instance: object) -> None:
        self.totals = {}


class SilentlyInSelf(InSelf):
    """Emits nothing; only its state is wrong."""

    def apply(self, event: Paid, state: Total, collector: Any) -> None:
        self.totals[event.card] = self.totals.get(event.card, 0) + event.amount
        state.amount = self.totals[event.card]


class Numbering(StatefulOperator[Paid, Total, Paid]):
    def setup_instance(self, instance: object, state: Total | None) -> None:
        self.number = state.amount if state else 0

    def apply(self, event: Paid, collector: Any) -> None:
        self.number += 1
        collector.emit(Paid(event.card, self.number))

    def get_state(self) -> Total:
        return Total(self.number)


class ForgetfulNumbering(Numbering):
    def setup_instance(self, instance: object, state: Total | None) -> None:
        self.number = 0


def job(operator: Any, parallelism: int = 1) -> Job:
    made = Job("totals", parallelism=parallelism)
    paid = made.source(ListSource([], Paid), id="paid", parallelism=1)
    if isinstance(operator, KeyedOperator):
        applied = paid.apply(operator, key="card", id="totals")
    else:
        applied = paid.apply(operator, id="totals", parallelism=1)
    applied.sink(NONE, id="out")
    return made


FAULTY = [InSelf, InSetup, SilentlyInSelf, ForgetfulNumbering]


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("operator", FAULTY)
def test_an_operator_that_keeps_its_totals_in_self_is_found(operator: Any, parallelism: int) -> None:
    with pytest.raises(AssertionError, match="sink out|state"):
        explore(job(operator(), parallelism), {"paid": EVENTS}, SEEDS)


@pytest.mark.slow
@pytest.mark.parametrize("operator", [Kept, Numbering])
def test_an_operator_that_keeps_them_in_its_state_passes(operator: Any) -> None:
    explored = explore(job(operator()), {"paid": EVENTS}, SEEDS)
    assert explored.seeds == SEEDS and explored.runs == 2 * SEEDS
    assert explored.crashes >= SEEDS and explored.resumes >= SEEDS // 2


@pytest.mark.slow
def test_most_seeds_find_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    faulty, found = job(InSelf(), parallelism=3), 0
    for seed in range(1, 101):
        monkeypatch.setenv(REPLAY, str(seed))
        try:
            explore(faulty, {"paid": EVENTS})
        except AssertionError:
            found += 1
    assert found >= 50, found  # 65; it was 8 when crashes were drawn from the steps of another run


class Place(Record):
    at: int = 0


class Poll(StatefulSource[Paid, Place]):
    """Six events, one at a time."""

    replayable = True

    def setup_instance(self, instance: object, state: Place | None) -> None:
        self.at = state.at if state else 0

    def get_events(self, collector: Any) -> None:
        if self.at < len(EVENTS):
            collector.emit(EVENTS[self.at])
            self.at += 1

    def get_state(self) -> Place:
        return Place(self.at)


class ForgetfulPoll(Poll):
    def setup_instance(self, instance: object, state: Place | None) -> None:
        self.at = 0


def test_a_source_is_cut_into_epochs_too() -> None:
    def polling(source: Poll) -> Job:
        made = Job("polled")
        made.source(source, id="paid", parallelism=1).apply(Kept(), key="card", id="totals").sink(NONE, id="out")
        return made

    explored = explore(polling(Poll()), {}, 20)
    assert explored.checkpoints > 3 * explored.runs and explored.resumes > 10
    with pytest.raises(AssertionError, match="sink out: missing .*, too many"):
        explore(polling(ForgetfulPoll()), {}, 20)


def test_the_result_says_how_much_was_tried() -> None:
    assert str(Explored(50, 100, 412, 74, 51)) == (
        "explored 50 seeds: 100 runs, 412 checkpoints, 74 crashes, 51 restarts from a checkpoint"
    )
    alone = explore(job(InSelf()), {"paid": EVENTS[:1]}, 20)
    assert str(alone).endswith("no state was restored: pass more events or more seeds") or alone.resumes
