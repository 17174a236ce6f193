"""Acknowledged by hand: an event is done when everyone who owes an acknowledgement has given it."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delivery.failing_jobs import Item, Result, Spreading, Tries, chance
from delivery.test_acknowledging import written
from sample import run_job
from streamwork import Job, KeyedOperator, ListSource, Operator, SqliteSink, all_instances, fields, shuffle
from streamwork.delivery import Ack, Acknowledger, Trouble, Waiting, acknowledger
from streamwork.delivery.text import from_text
from streamwork.flow.acks import Acks
from streamwork.flow.lineage import root_of
from streamwork.testing import run

NONE = SqliteSink("never-opened.db", "t")
FAR = 10**12


class InPairs(Operator[Item, Result]):
    """Acknowledges two at a time."""

    manual_ack = True

    def __init__(self) -> None:
        self.held: list[str] = []

    def apply(self, event: Item, collector: Any) -> None:
        collector.emit(Result(event.name))
        self.held.append(collector.event_id)
        if len(self.held) == 2:
            for event_id in self.held:
                collector.ack(event_id)
            self.held.clear()


class Never(Operator[Item, Result]):
    manual_ack = True

    def apply(self, event: Item, collector: Any) -> None:
        collector.emit(Result(event.name))


class Split(Operator[Item, Item]):
    def apply(self, event: Item, collector: Any) -> None:
        collector.emit(Item(event.name))
        collector.emit(Item(event.name))


class Half(Operator[Item, Result]):
    """Acknowledges the first of the children of an event; of "A" the other one, too, with the next event."""

    manual_ack = True
    held: ClassVar[list[str]] = []
    seen: ClassVar[Counter[str]] = Counter()

    def apply(self, event: Item, collector: Any) -> None:
        for event_id in self.held:
            collector.ack(event_id)
        self.held.clear()
        self.seen[event.name] += 1
        if self.seen[event.name] % 2:
            collector.ack()
            collector.ack()  # said twice of one call, it counts once
        elif event.name == "A":
            self.held.append(collector.event_id)


class OnlyTheFirst(Operator[Item, Result]):
    """One of its instances acknowledges nothing."""

    manual_ack = True

    def setup_instance(self, instance: int) -> None:
        self.instance = instance

    def apply(self, event: Item, collector: Any) -> None:
        if self.instance == 0 or event.name == "A":
            collector.ack()


class WithTimer(KeyedOperator[Item, Tries, Result]):
    """Acknowledges what it has gathered when a timer fires."""

    manual_ack = True
    held: ClassVar[list[str]] = []

    def apply(self, event: Item, state: Tries, collector: Any) -> None:
        self.held.append(collector.event_id)
        collector.set_timer(datetime(1970, 1, 1, tzinfo=UTC), "processing")

    def on_timer(self, key: Any, at: Any, state: Tries, collector: Any) -> None:
        for event_id in self.held:
            collector.ack(event_id)
        self.held.clear()


class Dropped(Operator[Item, Result]):
    manual_ack = True

    def apply(self, event: Item, collector: Any) -> None:
        raise ValueError("no")


def job(name: str = "items", **chosen: Any) -> tuple[Job, Any]:
    made = Job(
        name, semantics="at-least-once", tracking="acknowledge", **{"retry_after": "1s", "ack_timeout": "2s", **chosen}
    )
    return made, made.source(ListSource([], Item), id="items")


def named(*names: str) -> dict[str, list[Item]]:
    return {"items": [Item(name) for name in names]}


def given_up(result: Any) -> list[tuple[str, str, str]]:
    return [(from_text(Item, one.event).name, one.component, one.error) for one in result.letters]


# ---- who owes what --------------------------------------------------------------------------------------------------


def fan_out() -> Job:
    made, items = job(max_attempts=2)
    items.apply(InPairs(), id="pairs").sink(NONE, id="a")
    items.apply(Never(), id="never").sink(NONE, id="b")
    return made


def test_an_acknowledgement_counts_for_the_component_that_gives_it() -> None:
    result = run(fan_out(), named("A", "B"), epoch_events=2)
    late = "not acknowledged within 2 s"
    assert sorted(given_up(result)) == [("A", "never", late), ("B", "never", late)]
    assert Counter(row.name for row in result.outputs["b"]) == {"A": 2, "B": 2}


def test_without_the_component_in_it_an_acknowledgement_counts_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acknowledger, "_acknowledged", lambda one, acks: one if acks is None else None)
    with pytest.raises(AssertionError):
        test_an_acknowledgement_counts_for_the_component_that_gives_it()


def test_every_child_of_an_event_is_acknowledged() -> None:
    Half.seen.clear(), Half.held.clear()
    made, items = job(max_attempts=1)
    items.apply(Split(), id="split").apply(Half(), id="half").sink(NONE, id="out")
    result = run(made, named("A", "B"), epoch_events=1)
    assert [name for name, *_ in given_up(result)] == ["B"]


def test_every_instance_that_has_an_event_acknowledges_it() -> None:
    made, items = job(max_attempts=1)
    items.apply(OnlyTheFirst(), id="all", grouping=all_instances(), parallelism=2).sink(NONE, id="out")
    result = run(made, named("A", "B"), epoch_events=2)
    assert [name for name, *_ in given_up(result)] == ["B"]


def test_a_timer_acknowledges() -> None:
    WithTimer.held.clear()
    made, items = job(max_attempts=1)
    items.apply(WithTimer(), key="name", id="timed").sink(NONE, id="out")
    assert not run(made, named("A", "B"), epoch_events=1).letters


def test_what_is_dropped_is_not_waited_for() -> None:
    made, items = job(max_attempts=1)
    items.apply(Dropped(), id="dropped", on_error="drop").sink(NONE, id="out")
    result = run(made, named("A"), epoch_events=1)
    assert not result.letters and result.counts["dropped"]["dropped"] == 1


def acks() -> Acks:
    return Acks(True, lambda root: f"event-{root}")


def test_a_call_that_fails_acknowledges_nothing() -> None:
    mine = acks()
    for _ in range(2):
        mine.begin(root_of(1, 0))
    mine.begin(root_of(1, 1))
    mine.ack("earlier")
    mine.ack(None)
    mine.undo()
    assert (mine.owed, mine.acked) == ({root_of(1, 0): 2}, [])


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["no", "at hand", "by id", "both", "twice"]))))
def test_as_many_are_owed_as_were_not_acknowledged(calls: list[tuple[int, str]]) -> None:
    mine, owed = acks(), Counter[int]()
    for root, how in calls:
        mine.begin(root)
        owed[root] += 1
        if how in ("at hand", "both", "twice"):
            mine.ack(None)
            owed[root] -= 1
        if how == "twice":
            mine.ack(None)
        if how in ("by id", "both"):  # after `ack()` it can only mean another child
            mine.ack(f"event-{root}")
            owed[root] = max(0, owed[root] - 1)
    assert mine.owed == {root: count for root, count in owed.items() if count}


class Chancy(Operator[Result, Result]):
    """Acknowledges at once, or with what it is given next, or never, by chance; and writes down what it has acknowledged."""

    manual_ack = True
    acked: ClassVar[set[tuple[str, str]]] = set()

    def __init__(self) -> None:
        self.held: list[tuple[str, str, str]] = []
        self.seen = 0

    def apply(self, event: Result, collector: Any) -> None:
        self.seen += 1
        drawn = chance(event.name, event.by, self.seen)
        if drawn < 0.5:
            for event_id, *what in self.held:
                collector.ack(event_id)
                self.acked.add((what[0], what[1]))
            self.held.clear()
        if drawn < 0.35:
            collector.ack()
            self.acked.add((event.name, event.by))
        elif drawn < 0.8:
            self.held.append((collector.event_id, event.name, event.by))
        collector.emit(event)


class Named(Operator[Item, Result]):
    def __init__(self, by: str) -> None:
        self.by = by

    def apply(self, event: Item, collector: Any) -> None:
        collector.emit(Result(event.name, self.by))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), crashes=st.lists(st.integers(1, 400), max_size=2))
def test_what_is_done_was_acknowledged_by_everyone(seed: int, crashes: list[int]) -> None:
    """Two branches with two children each, in several instances: all four were acknowledged, or it is a dead letter."""
    Chancy.acked.clear()
    rng = random.Random(seed)
    made, items = job(max_attempts=3, parallelism=rng.randint(1, 3))
    for by in ("left", "right"):
        spread = items.apply(Named(by), id=by).apply(Spreading(), id=f"{by}-spread")
        hands = spread.apply(Chancy(), id=f"{by}-hand", grouping=rng.choice([None, shuffle(), fields("by")]))
        hands.sink(NONE, id=f"{by}-out")
    names = [f"{i:02d}" for i in range(20)]
    result = run(made, named(*names), seed=seed, crash_at=crashes)
    dead = {name for name, *_ in given_up(result)}
    for name in set(names) - dead:
        for by in ("left-0", "left-1", "right-0", "right-1"):
            assert (name, by) in Chancy.acked, (name, by, seed, crashes)


def test_who_counts_one_acknowledgement_for_all_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acknowledger, "_acknowledged", lambda one, acks: one if acks is None else None)
    missed = 0
    for seed in range(10):
        try:
            test_what_is_done_was_acknowledged_by_everyone.hypothesis.inner_test(seed, [])  # type: ignore[attr-defined]
        except AssertionError:
            missed += 1
    assert missed


class FirstChild(Operator[Result, Result]):
    """Holds the first child of an event, in two attempts, and then acknowledges what it holds. The second child never."""

    manual_ack = True
    held: ClassVar[list[str]] = []

    def apply(self, event: Result, collector: Any) -> None:
        if event.by.endswith("0"):
            self.held.append(collector.event_id)
        elif len(self.held) == 2:
            for event_id in self.held:
                collector.ack(event_id)


def test_an_acknowledgement_of_an_attempt_that_has_failed_says_nothing_of_the_next() -> None:
    FirstChild.held.clear()
    made, items = job(max_attempts=2)
    spread = items.apply(Named("a"), id="named").apply(Spreading(), id="spread")
    spread.apply(FirstChild(), id="hand").sink(NONE, id="out")
    assert [name for name, *_ in given_up(run(made, named("A")))] == ["A"]


def test_if_attempts_had_one_id_it_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Waiting, "event_id", property(lambda self: self.id))
    with pytest.raises(AssertionError):
        test_an_acknowledgement_of_an_attempt_that_has_failed_says_nothing_of_the_next()


# ---- the policy -----------------------------------------------------------------------------------------------------


def event(root: int) -> Waiting:
    return Waiting(f"event-{root}", "s", 0, "{}", 0, 0, False, "", "")


def test_it_is_told_who_has_not_acknowledged() -> None:
    policy = Acknowledger(3, 1, 30)
    troubles = [Trouble(0, "a", owed=2), Trouble(0, "b", instance=1)]
    (one,) = policy.resolve(1, 0, (), (), troubles, (), event).waiting
    assert (one.component, one.error, one.owed) == ("a", "not acknowledged yet by a, b", ("a/0", "a/0", "b/1"))
    (one,) = policy.resolve(2, 0, (one,), (), (), [Ack("event-0", "a/0"), Ack("event-0", "b/0")], event).waiting
    assert one.owed == ("a/0", "b/1"), "another instance acknowledges for itself"
    (one,) = policy.resolve(3, 0, (one,), (), (), [Ack("event-0", "a/0")], event).waiting
    assert (one.component, one.error, one.owed) == ("b", "not acknowledged yet", ("b/1",))
    late = policy.resolve(4, one.due, (one,), (), (), (), event)
    assert [(w.component, w.error, w.owed) for w in late.waiting] == [("b", "not acknowledged within 30 s", ())]
    assert not policy.resolve(4, one.due, (one,), (), (), [Ack("event-0", "b/1")], event).waiting, "just in time"


def test_several_that_fail_one_event_are_one_failed_attempt() -> None:
    troubles = [Trouble(0, "a", "down"), Trouble(0, "a", "again"), Trouble(0, "b", "late"), Trouble(0, "c")]
    outcome = Acknowledger(1, 1, 30).resolve(1, 0, (), (), troubles, (), event)
    (letter,) = outcome.letters
    assert (letter.component, letter.error, letter.attempts) == ("a", "down; b: late", 1)
    assert outcome.counts == {"a": {"failed": -1, "dead_letters": 1}} and not outcome.waiting


class Compared(Waiting, frozen=True):
    """Counts how often one is compared with another."""

    times: ClassVar[int] = 0

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return super().__eq__(other)

    __hash__ = Waiting.__hash__


def test_many_that_are_overdue_are_not_compared_with_each_other() -> None:
    many = [Compared(f"e{i}", "s", 0, "{}", 0, 0, True, "w", "", ("w/0",)) for i in range(2_000)]
    Compared.times = 0
    outcome = Acknowledger(1, 1, 30).resolve(1, FAR, many, (), (), (), event)
    assert len(outcome.letters) == len(many)
    assert Compared.times <= len(many)


# ---- a failure that is caught ---------------------------------------------------------------------------------------


class Catching(Operator[Item, Result]):
    def apply(self, event: Item, collector: Any) -> None:
        try:
            if event.name == "B":
                collector.fail("please not")
        except Exception:
            collector.emit(Result("as if nothing were wrong"))
        collector.emit(Result(event.name))


class KeyedCatching(KeyedOperator[Item, Tries, Result]):
    def apply(self, event: Item, state: Tries, collector: Any) -> None:
        state.tries += 1
        Catching.apply(self, event, collector)  # type: ignore[arg-type]


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("semantics", ["acknowledging", "exactly-once", "at-most-once"])
def test_an_event_that_was_failed_has_failed_whoever_catches_it(tmp_path: Path, semantics: str, keyed: bool) -> None:
    chosen: dict[str, Any] = {"semantics": semantics}
    if semantics == "acknowledging":
        chosen = {"semantics": "at-least-once", "tracking": "acknowledge", "max_attempts": 1}
    made = Job("items", checkpoint_every=0, **chosen)
    items = made.source(ListSource([Item("A"), Item("B"), Item("C")], Item), id="items")
    keyed_by: dict[str, Any] = {"key": "name"} if keyed else {}
    done = items.apply(KeyedCatching() if keyed else Catching(), id="work", **keyed_by)
    done.sink(SqliteSink(tmp_path / "out.db", "out"), id="out")
    if semantics == "exactly-once":
        with pytest.raises(Exception, match="SW-OPERATOR-FAILED.*please not.*Item\\(name='B'\\)"):
            run_job(made, tmp_path / "root")
        return
    outcome = run_job(made, tmp_path / "root")
    assert outcome.dropped + outcome.dead_letters == 1
    assert written(tmp_path / "out.db") == ["A", "C"]
