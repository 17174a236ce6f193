"""An `apply` whose output or new state does not fit its declared type has failed, like one that raises: `on_error` decides."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sample import run_job
from streamwork import (
    Event,
    Job,
    JobFailed,
    KeyedOperator,
    ListSource,
    Operator,
    Record,
    Source,
    SqliteSink,
    StatefulOperator,
)
from streamwork.delivery import DeadLetters
from streamwork.delivery.counts import is_closed
from streamwork.testing import run
from streamwork.world import RealDisk

NONE = SqliteSink("never-opened.db", "t")
START = datetime(2026, 1, 1, tzinfo=UTC)


class Item(Event):
    name: str
    at: datetime
    n: int = 0


class Other(Event):
    name: str


class Late(Event):
    name: str


class Count(Record):
    count: int = 0
    names: list[str] = []


def items(*names: str) -> list[Item]:
    return [Item(name, START + timedelta(seconds=10 * place), place) for place, name in enumerate(names)]


OUTPUTS = {
    "None": lambda e: None,
    "another class": lambda e: Other(e.name),
    "str in an int field": lambda e: Item(e.name, e.at, "7"),
    "bool in an int field": lambda e: Item(e.name, e.at, True),
    "float in an int field": lambda e: Item(e.name, e.at, 1.0),
    "None in an int field": lambda e: Item(e.name, e.at, None),
    "beyond 64 bits": lambda e: Item(e.name, e.at, 2**63),
    "naive": lambda e: Item(e.name, datetime(2026, 1, 1)),
    "half a character": lambda e: Item("\ud800", e.at),
}


class Emitting(Operator[Item, Item]):
    channels = {"late": Late}

    def __init__(self, what: str) -> None:
        self._what = what

    def apply(self, event: Item, collector: Any) -> None:
        collector.emit(Late(event.name), "late")
        collector.emit(event)
        if event.name == "bad":
            collector.emit(OUTPUTS[self._what](event))


class Alone(Operator[Item, Item]):
    def __init__(self, what: str) -> None:
        self._what = what

    def apply(self, event: Item, collector: Any) -> None:
        collector.emit(OUTPUTS[self._what](event) if event.name == "bad" else event)


class Keyed(KeyedOperator[Item, Count, Item]):
    def __init__(self, what: str) -> None:
        self._what = what

    def apply(self, event: Item, state: Count, collector: Any) -> None:
        state.count += 1
        collector.emit(OUTPUTS[self._what](event) if event.name == "bad" else event)


class Whole(StatefulOperator[Item, Count, Item]):
    def __init__(self, what: str) -> None:
        self._what = what

    def setup_instance(self, instance: int, state: Count | None) -> None:
        self.count = state.count if state else 0

    def get_state(self) -> Count:
        return Count(self.count)

    def apply(self, event: Item, collector: Any) -> None:
        self.count += 1
        collector.emit(OUTPUTS[self._what](event) if event.name == "bad" else event)


def job(operator: Any, on_error: str | None, semantics: str = "exactly-once", **settings: Any) -> Job:
    made = Job("job", semantics=semantics, **settings)
    key = {"key": "name"} if isinstance(operator, KeyedOperator) else {}
    source = made.source(ListSource([], Item), id="in", time="at")
    source.apply(operator, id="work", on_error=on_error, **key).sink(NONE, id="out")  # type: ignore[arg-type]
    return made


@pytest.mark.parametrize("what", OUTPUTS)
@pytest.mark.parametrize("operator", [Emitting, Alone, Keyed, Whole])
@pytest.mark.parametrize("on_error", ["drop", "dead-letter"])
def test_an_output_that_does_not_fit(what: str, operator: Any, on_error: str) -> None:
    inputs = {"in": items("a", "bad", "b", "bad", "a")}
    result = run(job(operator(what), on_error), inputs, epoch_events=3)
    assert [row.name for row in result.outputs["out"]] == ["a", "b", "a"], "nothing of it is emitted"
    counted = result.counts["work"]
    assert counted["dropped" if on_error == "drop" else "dead_letters"] == 2
    assert counted["processed"] == 5 == counted["delivered"] + 2
    states = result.states.get("work", {})
    assert sum(record.count for record in states.values()) in (0, 3)  # type: ignore[attr-defined]
    assert all(letter.error.startswith("SW-TYPE-") and letter.to == "work" for letter in result.letters)
    assert len(result.letters) == (2 if on_error == "dead-letter" else 0)


@pytest.mark.parametrize("semantics", ["at-most-once", "at-least-once"])
def test_written_at_once(semantics: str) -> None:
    result = run(job(Alone("str in an int field"), "drop", semantics), {"in": items("a", "bad", "b")}, epoch_events=3)
    assert [row.name for row in result.outputs["out"]] == ["a", "b"], "one emission does not cost the epoch"
    assert result.counts["work"]["dropped"] == 1


def test_acknowledging_tries_it_again_and_gives_it_up() -> None:
    made = job(Keyed("naive"), None, "at-least-once", tracking="acknowledge", retry_after=0, max_attempts=2)
    result = run(made, {"in": items("a", "bad", "b")}, epoch_events=3)
    assert [row.name for row in result.outputs["out"]] == ["a", "b"]
    (letter,) = result.letters
    assert (letter.component, letter.attempts) == ("work", 2)
    assert "Item.at: expected datetime with a time zone" in letter.error
    assert result.counts["work"]["failed"] + result.counts["work"]["dead_letters"] == 2
    assert "bad" not in result.states["work"]


class Spoiling(KeyedOperator[Item, Count, Item]):
    def __init__(self, what: Any) -> None:
        self._what = what

    def apply(self, event: Item, state: Count, collector: Any) -> None:
        state.count += 1
        state.names.append(event.name)
        collector.emit(event)
        if event.n == 3:
            self._what(state)
            collector.set_timer(event.at)

    def on_timer(self, key: str, at: datetime, state: Count, collector: Any) -> None:
        raise AssertionError("a failed apply has set no timer")


STATES = {
    "str": lambda s: setattr(s, "count", "oops"),
    "beyond 64 bits": lambda s: setattr(s, "count", 2**63),
    "in a list": lambda s: s.names.append(7),
    "no list": lambda s: setattr(s, "names", "abc"),
}


@pytest.mark.parametrize("what", STATES)
@pytest.mark.parametrize("on_error", ["drop", "dead-letter"])
def test_a_record_that_does_not_fit(what: str, on_error: str) -> None:
    inputs = {"in": items("a", "b", "a", "a", "b", "a")}
    result = run(job(Spoiling(STATES[what]), on_error), inputs, epoch_events=6)
    assert [row.n for row in result.outputs["out"]] == [0, 1, 2, 4, 5]
    assert result.states["work"]["a"] == Count(3, ["a"] * 3), "as if the event had never come"
    assert is_closed(result.counts["work"])
    assert result.counts["work"]["dropped" if on_error == "drop" else "dead_letters"] == 1
    assert all("SW-TYPE-VALUE: work: Count." in letter.error for letter in result.letters)


class BadState(StatefulOperator[Item, Count, Item]):
    def setup_instance(self, instance: int, state: Count | None) -> None:
        self.count: Any = state.count if state else 0

    def get_state(self) -> Count:
        return Count(self.count)

    def apply(self, event: Item, collector: Any) -> None:
        self.count = "oops" if event.name == "bad" or self.count == "oops" else self.count + 1
        collector.emit(event)


def test_an_instance_state_that_does_not_fit() -> None:
    result = run(job(BadState(), "dead-letter"), {"in": items("a", "bad", "b")}, epoch_events=3)
    assert [row.name for row in result.outputs["out"]] == ["a", "b"]
    assert result.states["work"][0].count == 2  # type: ignore[attr-defined]
    assert [letter.to for letter in result.letters] == ["work"]


class Timed(KeyedOperator[Item, Count, Item]):
    def __init__(self, state_too: bool) -> None:
        self._state_too = state_too

    def apply(self, event: Item, state: Count, collector: Any) -> None:
        state.count += 1
        collector.set_timer(event.at + timedelta(seconds=1))

    def on_timer(self, key: str, at: datetime, state: Count, collector: Any) -> None:
        state.count += 100
        if key == "bad" and self._state_too:
            state.count = "oops"  # type: ignore[assignment]
        collector.emit(Item(key, at, "7" if key == "bad" and not self._state_too else 1))  # type: ignore[arg-type]


@pytest.mark.parametrize("state_too", [False, True])
def test_a_timer_whose_output_or_state_does_not_fit(state_too: bool) -> None:
    result = run(job(Timed(state_too), "dead-letter"), {"in": items("a", "bad", "b", "c")}, epoch_events=2)
    assert [row.name for row in result.outputs["out"]] == ["a", "b"]
    assert result.states["work"]["bad"].count == 1  # type: ignore[attr-defined]
    assert ["the timer of 'bad'" in letter.event for letter in result.letters] == [True]


class Remembering(Operator[Item, Item]):
    """Keeps something in an attribute, which nothing rolls back."""

    def __init__(self) -> None:
        self.seen: set[int] = set()

    def apply(self, event: Item, collector: Any) -> None:
        if event.n not in self.seen:
            self.seen.add(event.n)
            collector.emit(None if event.name == "bad" else event)


def test_events_that_fit_are_applied_once() -> None:
    result = run(job(Remembering(), "drop"), {"in": items("a", "b", "bad", "c", "a")}, epoch_events=5)
    assert [row.n for row in result.outputs["out"]] == [0, 1, 3, 4], "none was applied again because of the bad one"


# ---- where on_error is "fail" -------------------------------------------------------------------------------------------


class Staged(KeyedOperator[Item, Count, Item]):
    def apply(self, event: Item, state: Count, collector: Any) -> None:
        if event.name == "bad":
            state.count = "oops"  # type: ignore[assignment]
        collector.emit(event)


@pytest.mark.parametrize(
    ("operator", "told"),
    [
        (Alone("None"), "SW-TYPE-EVENT: work: expected Item but got NoneType"),
        (Alone("str in an int field"), "SW-TYPE-VALUE: work: Item.n: expected int .* got str '7' of Item"),
        (Staged(), "SW-TYPE-VALUE: work: Count.count: expected int .* of Count.* with key 'bad'"),
        (Timed(False), "SW-TYPE-VALUE: work: Item.n: .*the timer of 'bad'"),
        (BadState(), "SW-TYPE-VALUE: work: Count.count: expected int .* of Count"),
    ],
    ids=["class", "value", "state", "timer", "instance state"],
)
def test_a_job_that_stops_names_who_and_what(operator: Any, told: str) -> None:
    with pytest.raises(JobFailed, match=told) as caught:
        run(job(operator, None), {"in": items("a", "bad", "b")}, epoch_events=3)
    assert caught.value.component == "work", "so that the way on can be told: --on-error work=dead-letter"


def test_who_emitted_it_is_blamed_not_a_filter_behind_it() -> None:
    made = Job("filtered")
    worked = made.source(ListSource([], Item), id="in").apply(Alone("str in an int field"), id="work")
    worked.filter(lambda event: True, on_error="dead-letter", id="all").sink(NONE, id="out")
    with pytest.raises(JobFailed, match="SW-TYPE-VALUE: work: Item.n") as caught:
        run(made, {"in": items("a", "bad", "b")})
    assert caught.value.component == "work"


class Raising(Operator[Item, Item]):
    def apply(self, event: Item, collector: Any) -> None:
        raise ValueError(f"{event.name} is not to my liking")


def test_nor_is_one_that_raises_on_it() -> None:
    made = Job("raising")
    worked = made.source(ListSource([], Item), id="in").apply(Alone("half a character"), id="work")
    worked.apply(Raising(), id="next", on_error="dead-letter").sink(NONE, id="out")
    with pytest.raises(JobFailed, match="SW-TYPE-VALUE: work: Item.name") as caught:
        run(made, {"in": items("a", "bad", "b")})
    assert caught.value.component == "work"


def test_where_several_streams_meet_all_that_may_have_emitted_it_are_named() -> None:
    made = Job("met")
    source = made.source(ListSource([], Item), id="in")
    one, two = source.apply(Alone("naive"), id="one"), source.apply(Alone("naive"), id="two")
    one.union(two).sink(NONE, id="out")
    with pytest.raises(JobFailed, match="SW-TYPE-VALUE: one or two: Item.at"):
        run(made, {"in": items("a", "bad", "b")})


def test_a_component_behind_them_is_not_blamed_either() -> None:
    made = Job("met")
    source = made.source(ListSource([], Item), id="in")
    one, two = source.apply(Alone("naive"), id="one"), source.apply(Alone("naive"), id="two")
    one.union(two).apply(Raising(), id="next", on_error="drop").sink(NONE, id="out")
    with pytest.raises(JobFailed, match="SW-TYPE-VALUE: one or two: Item.at") as caught:
        run(made, {"in": items("bad")})
    assert caught.value.component == "" and "while applying" not in caught.value.cause


class Unfit(StatefulOperator[Item, Count, Item]):
    """Has something else than its record, or nothing at all to say."""

    def setup_instance(self, instance: int, state: Count | None) -> None: ...

    def get_state(self) -> Any:
        return {"count": 1}

    def apply(self, event: Item, collector: Any) -> None: ...


def test_a_state_of_another_class_is_named() -> None:
    with pytest.raises(JobFailed, match="SW-TYPE-EVENT: work: expected Count but got dict"):
        run(job(Unfit(), None), {"in": items("a")})


# ---- sources that people write ---------------------------------------------------------------------------------------------


class Polled(Source[Item]):
    def __init__(self) -> None:
        self._left = items("a", "bad", "b")

    def get_events(self, collector: Any) -> None:
        for event in self._left:
            collector.emit(Item(event.name, event.at, "7") if event.name == "bad" else event)  # type: ignore[arg-type]
        self._left = []


@pytest.mark.parametrize(("semantics", "tracking"), [("at-most-once", None), ("at-least-once", "acknowledge")])
def test_what_a_source_emits_and_does_not_fit_is_left_out(tmp_path: Path, semantics: str, tracking: str | None) -> None:
    made = Job("polled", semantics=semantics, tracking=tracking)
    made.source(Polled(), id="in").sink(SqliteSink(tmp_path / "out.db", "out"), id="out")
    outcome = run_job(made, tmp_path / "root")
    letters = DeadLetters(RealDisk(), tmp_path / "root" / "polled").all()
    assert (outcome.dropped, len(letters)) == ((1, 0) if semantics == "at-most-once" else (0, 1))
    assert all("Item.n: expected int" in letter.error and letter.to == "" for letter in letters)
