"""The presenter of the fraud detection example: answers, defaults, and the count of each, with a clock of the test's own."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

import pytest
from fraud.decision import Decision
from fraud.presenter import GIVE_UP_SECONDS, Answer, Outcome, Presenter, Reader, Verdict

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def decision(transaction: str, fraud: bool = False) -> Decision:
    return Decision(transaction, "c1", fraud, 1.0 if fraud else 0.0, {}, NOW)


class World:
    """A presenter with its clock and its result store."""

    def __init__(self, default: Verdict = Verdict.APPROVE) -> None:
        self.now = 100.0
        self.decided: list[Decision] = []
        self.presenter = Presenter(self, within=0.020, default=default, clock=lambda: self.now)

    def new(self) -> list[Decision]:
        found, self.decided = self.decided, []
        return found

    def poll_after(self, seconds: float, *decided: Decision) -> None:
        self.now += seconds
        self.decided += decided
        self.presenter.poll()

    @property
    def outcomes(self) -> Counter[Outcome]:
        return self.presenter.outcomes


@pytest.mark.parametrize(("fraud", "verdict"), [(False, Verdict.APPROVE), (True, Verdict.DECLINE)])
def test_a_decision_in_time_is_the_answer(fraud: bool, verdict: Verdict) -> None:
    world = World(default=Verdict.DECLINE if verdict is Verdict.APPROVE else Verdict.APPROVE)
    pending = world.presenter.expect("t1")
    world.presenter.accept(pending)
    world.poll_after(0.019, decision("t1", fraud))
    assert pending.answer() == Answer("t1", verdict, "decision", float(fraud))
    assert pending.decided_at == pytest.approx(100.019)
    world.poll_after(10)
    assert world.outcomes == {Outcome.IN_TIME: 1} and world.presenter.is_settled


@pytest.mark.parametrize("default", list(Verdict))
def test_a_late_decision_is_counted_and_does_not_change_the_answer(default: Verdict) -> None:
    world = World(default)
    pending = world.presenter.expect("t1")
    world.presenter.accept(pending)
    world.poll_after(0.0201)
    assert pending.answer() == Answer("t1", default, "default") and not world.outcomes
    world.poll_after(1, decision("t1", fraud=True))
    assert pending.answer().by == "default" and pending.decision is not None
    world.poll_after(GIVE_UP_SECONDS)
    assert world.outcomes == {Outcome.LATE: 1} and world.presenter.is_settled


def test_a_decision_that_is_read_after_the_deadline_is_late_even_if_nothing_was_answered() -> None:
    world = World()
    pending = world.presenter.expect("t1")
    world.presenter.accept(pending)
    world.poll_after(0.5, decision("t1", fraud=True))
    assert pending.answer().by == "default" and world.outcomes == {Outcome.LATE: 1}
    world.poll_after(GIVE_UP_SECONDS)
    assert world.outcomes == {Outcome.LATE: 1}, "counted once"


def test_a_decision_that_never_comes_is_missing() -> None:
    world = World()
    pending = [world.presenter.expect(name) for name in ("t1", "t2")]
    for one in pending:
        world.presenter.accept(one)
    world.poll_after(0.03)
    world.poll_after(GIVE_UP_SECONDS + 1, decision("t2"))
    world.poll_after(1, decision("t1"))
    assert world.outcomes == {Outcome.MISSING: 1, Outcome.LATE: 1}, "t2 came just before it was given up"
    assert [one.outcome for one in pending] == [Outcome.MISSING, Outcome.LATE] and world.presenter.is_settled


def test_a_decision_may_come_before_the_append_returns() -> None:
    world = World()
    pending = world.presenter.expect("t1")
    world.poll_after(0.5, decision("t1"))
    world.presenter.accept(pending)
    world.poll_after(1)
    assert pending.answer().by == "decision" and world.outcomes == {Outcome.IN_TIME: 1}


def test_a_transaction_that_was_not_appended_counts_for_nothing() -> None:
    world = World()
    world.presenter.withdraw(world.presenter.expect("t1"))
    world.poll_after(10)
    world.presenter.settle()
    assert not world.outcomes and world.presenter.is_settled


def test_the_same_transaction_twice_has_one_answer() -> None:
    world = World()
    first, second = world.presenter.expect("t1"), world.presenter.expect("t1")
    world.presenter.accept(first)
    world.presenter.withdraw(second)
    world.poll_after(0.001, decision("t1"))
    assert first.answer() == second.answer() and world.outcomes == {Outcome.IN_TIME: 1}


def test_a_request_does_not_wait_for_a_reader_that_is_gone() -> None:
    presenter = Presenter(World(), within=0.01)
    pending = presenter.expect("t1")
    presenter.accept(pending)
    assert pending.answer().by == "default"
    presenter.settle()
    assert presenter.outcomes == {Outcome.MISSING: 1}


def test_the_reader_dispatches_and_reports_its_failure() -> None:
    world = World()
    pending = world.presenter.expect("t1")
    world.presenter.accept(pending)
    with Reader(world.presenter):
        world.decided = [decision("t1", fraud=True)]
        while not pending.is_answered:
            pass
    assert pending.answer().verdict is Verdict.DECLINE

    class Broken:
        def new(self) -> list[Decision]:
            raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"), Reader(Presenter(Broken())) as reader:
        while reader.failure is None:
            pass
