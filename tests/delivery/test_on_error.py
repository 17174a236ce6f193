"""`on_error` of each kind of component: what it cannot do stops the job, is dropped, or is a dead letter; nothing else changes."""

from __future__ import annotations

from asyncio import CancelledError
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sample import run_job
from streamwork import (
    CallableSink,
    Event,
    Job,
    JobFailed,
    JsonLines,
    KeyedOperator,
    ListSource,
    Operator,
    Record,
    RowsRejected,
    SqliteSink,
    StatefulOperator,
)
from streamwork.delivery import DeadLetters
from streamwork.delivery.counts import is_closed
from streamwork.delivery.text import from_text
from streamwork.testing import run
from streamwork.world import RealDisk

NONE = SqliteSink("never-opened.db", "t")
START = datetime(2026, 1, 1, tzinfo=UTC)


class Tick(Event):
    name: str
    at: datetime


class Count(Record):
    count: int = 0


class Stateless(Operator[Tick, Tick]):
    def apply(self, event: Tick, collector: Any) -> None:
        collector.emit(event)
        if event.name == "bad":
            raise ValueError("bad one")


class Whole(StatefulOperator[Tick, Count, Tick]):
    def setup_instance(self, instance: int, state: Count | None) -> None:
        self.count = state.count if state else 0

    def get_state(self) -> Count:
        return Count(self.count)

    def apply(self, event: Tick, collector: Any) -> None:
        self.count += 1
        collector.emit(event)
        if event.name == "bad":
            raise ValueError("bad one")


class Keyed(KeyedOperator[Tick, Count, Tick]):
    def apply(self, event: Tick, state: Count, collector: Any) -> None:
        state.count += 1
        collector.emit(event)
        if event.name == "bad":
            raise ValueError("bad one")


class Timed(KeyedOperator[Tick, Count, Tick]):
    """Its timer raises for one key, after it has changed and emitted something."""

    def apply(self, event: Tick, state: Count, collector: Any) -> None:
        state.count += 1
        collector.set_timer(event.at + timedelta(seconds=1))

    def on_timer(self, key: str, at: datetime, state: Count, collector: Any) -> None:
        state.count += 100
        collector.emit(Tick(key, at))
        if key == "bad":
            raise ValueError("bad one")


def ticks(*names: str) -> list[Tick]:
    return [Tick(name, START + timedelta(seconds=10 * place)) for place, name in enumerate(names)]


def job(operator: Any, on_error: str | None, semantics: str = "exactly-once") -> Job:
    made = Job("job", semantics=semantics)
    key = {"key": "name"} if isinstance(operator, KeyedOperator) else {}
    source = made.source(ListSource([], Tick), id="in", time="at")
    source.apply(operator, id="work", on_error=on_error, **key).sink(NONE, id="out")  # type: ignore[arg-type]
    return made


OPERATORS = [Stateless(), Whole(), Keyed()]


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("semantics", ["exactly-once", "at-least-once", "at-most-once"])
@pytest.mark.parametrize("on_error", ["drop", "dead-letter"])
def test_an_event_that_raises(operator: Any, semantics: str, on_error: str) -> None:
    inputs = {"in": ticks("a", "bad", "b", "bad", "a")}
    result = run(job(operator, on_error, semantics), inputs, epoch_events=3)
    assert [row.name for row in result.outputs["out"]] == ["a", "b", "a"], "what it had emitted is taken back"
    counted = result.counts["work"]
    assert counted["dropped" if on_error == "drop" else "dead_letters"] == 2
    assert counted["processed"] == 5 == counted["delivered"] + 2
    states = result.states.get("work", {})
    assert sum(record.count for record in states.values()) in (0, 3), "nor is anything of it in the state"  # type: ignore[attr-defined]
    assert [from_text(Tick, letter.event) for letter in result.letters] == (
        [tick for tick in inputs["in"] if tick.name == "bad"] if on_error == "dead-letter" else []
    )
    assert all(letter.to == "work" and letter.error == "ValueError: bad one" for letter in result.letters)


@pytest.mark.parametrize(
    ("semantics", "dropped"), [("exactly-once", None), ("at-least-once", None), ("at-most-once", 1)]
)
def test_the_default_follows_the_semantics(semantics: str, dropped: int | None) -> None:
    made = job(Keyed(), None, semantics)
    if dropped is None:
        with pytest.raises(JobFailed, match="SW-OPERATOR-FAILED"):
            run(made, {"in": ticks("a", "bad")})
    else:
        assert run(made, {"in": ticks("a", "bad")}).counts["work"]["dropped"] == dropped


@pytest.mark.parametrize("on_error", ["drop", "dead-letter"])
def test_a_timer_that_raises(on_error: str) -> None:
    result = run(job(Timed(), on_error), {"in": ticks("a", "bad", "b", "c")}, epoch_events=2)
    assert [row.name for row in result.outputs["out"]] == ["a", "b"], "that of c is not due yet"
    assert result.states["work"]["bad"].count == 1  # type: ignore[attr-defined]
    assert [letter.to for letter in result.letters] == ([""] if on_error == "dead-letter" else [])
    assert all("the timer of 'bad'" in letter.event for letter in result.letters)


def test_a_line_that_is_no_event(tmp_path: Path) -> None:
    good = '{"name": "a", "at": "2026-01-01T00:00:00Z"}'
    (tmp_path / "in.jsonl").write_text(f'{good}\n{{"name": 7}}\nrubbish\n{good}\n')
    made = Job("lines")
    source = JsonLines(tmp_path / "in.jsonl", Tick, on_error="dead-letter")
    made.source(source, id="in").sink(SqliteSink(tmp_path / "out.db", "out"), id="out")
    outcome = run_job(made, tmp_path / "root")
    letters = DeadLetters(RealDisk(), tmp_path / "root" / "lines").all()
    assert [letter.event for letter in letters] == ['{"name": 7}', "rubbish"]
    assert all(letter.to == "" and "in.jsonl byte" in letter.error for letter in letters)
    assert (outcome.events, outcome.dead_letters) == (4, 2)


def only_good(event: Tick) -> None:
    if event.name == "bad":
        raise RowsRejected("bad one")


@pytest.mark.parametrize("on_error", ["drop", "dead-letter"])
def test_a_row_that_a_sink_refuses_at_once(tmp_path: Path, on_error: str) -> None:
    made = Job("rows", semantics="at-least-once")
    rows = made.source(ListSource(ticks("a", "bad", "b"), Tick), id="in")
    rows.sink(CallableSink(only_good), id="out", on_error=on_error)  # type: ignore[arg-type]
    outcome = run_job(made, tmp_path / "root")
    letters = DeadLetters(RealDisk(), tmp_path / "root" / "rows").all()
    assert [letter.component for letter in letters] == (["out"] if on_error == "dead-letter" else [])
    assert (outcome.dropped, outcome.dead_letters) == ((1, 0) if on_error == "drop" else (0, 1))


def test_functions_have_it_too() -> None:
    def broken(event: Tick) -> Any:
        if event.name == "bad":
            raise ValueError("bad one")
        return event

    def also(event: Tick, state: Count) -> Any:
        return broken(event)

    made = Job("functions")
    ticking = made.source(ListSource([], Tick), id="in")
    for place, stream in enumerate(
        [
            ticking.map(broken, to=Tick, on_error="drop"),
            ticking.flat_map(lambda event: [broken(event)], to=Tick, on_error="drop"),
            ticking.filter(broken, on_error="drop"),
            ticking.map_with_state(also, key="name", state=Count, id="kept", to=Tick, on_error="drop"),
        ]
    ):
        stream.sink(NONE, id=f"out-{place}")
    result = run(made, {"in": ticks("a", "bad", "b")})
    assert [[row.name for row in rows] for rows in result.outputs.values()] == [["a", "b"]] * 4


def test_timers_are_counted_like_events_whether_they_fail_or_not() -> None:
    counted = run(job(Timed(), "dead-letter"), {"in": ticks("a", "bad", "b", "c")}, epoch_events=2).counts["work"]
    assert counted["processed"] == 4 + 3, "four events, and the timers of a, bad and b"
    assert (counted["delivered"], counted["dead_letters"], counted["ended_early"]) == (2, 1, 4)
    assert is_closed(counted)


class Half(Operator[Tick, Tick]):
    def apply(self, event: Tick, collector: Any) -> None:
        if event.name == "bad":
            raise ValueError("half a character: \ud800")
        if event.name == "fail":
            collector.fail("half a character: \ud800")
        collector.emit(event)


@pytest.mark.parametrize("name", ["bad", "fail"])
def test_an_error_that_no_file_can_hold_is_escaped(tmp_path: Path, name: str) -> None:
    made = Job("half")
    source = made.source(ListSource(ticks("a", name), Tick), id="in")
    source.apply(Half(), id="work", on_error="dead-letter").sink(SqliteSink(tmp_path / "out.db", "out"), id="out")
    assert run_job(made, tmp_path / "root").dead_letters == 1
    (letter,) = DeadLetters(RealDisk(), tmp_path / "root" / "half").all()
    assert letter.error.endswith("half a character: \\ud800")


def test_a_job_that_stops_with_such_an_error_says_so(tmp_path: Path) -> None:
    made = Job("half")
    source = made.source(ListSource(ticks("a", "bad"), Tick), id="in")
    source.apply(Half(), id="work").sink(SqliteSink(tmp_path / "out.db", "out"), id="out")
    with pytest.raises(JobFailed, match="SW-OPERATOR-FAILED") as caught:
        run_job(made, tmp_path / "root")
    assert str(caught.value).encode(), "it can be printed"


def test_events_with_half_a_character_do_not_enter(tmp_path: Path) -> None:
    with pytest.raises(JobFailed, match="SW-TYPE-VALUE.*Tick.name"):
        ListSource([Tick("\ud800", START)], Tick)
    (tmp_path / "in.jsonl").write_text('{"name": "\\ud800", "at": "2026-01-01T00:00:00Z"}\n')
    made = Job("lines")
    source = JsonLines(tmp_path / "in.jsonl", Tick, on_error="dead-letter")
    made.source(source, id="in").sink(SqliteSink(tmp_path / "out.db", "out"), id="out")
    assert run_job(made, tmp_path / "root").dead_letters == 1


class Leaving(Operator[Tick, Tick]):
    def __init__(self, error: BaseException) -> None:
        self._error = error

    def apply(self, event: Tick, collector: Any) -> None:
        if event.name == "bad":
            raise self._error
        collector.emit(event)


class LeavingWhole(Whole):
    def __init__(self, error: BaseException) -> None:
        self._error = error

    apply = Leaving.apply  # type: ignore[assignment]


class LeavingKeyed(KeyedOperator[Tick, Count, Tick]):
    def __init__(self, error: BaseException) -> None:
        self._error = error

    def apply(self, event: Tick, state: Count, collector: Any) -> None:
        Leaving.apply(self, event, collector)  # type: ignore[arg-type]


@pytest.mark.parametrize("operator", [Leaving, LeavingWhole, LeavingKeyed])
@pytest.mark.parametrize("error", [SystemExit(3), BaseException("base"), CancelledError("cancelled")])
@pytest.mark.parametrize("on_error", ["fail", "dead-letter"])
def test_what_is_no_exception_stops_the_job_and_is_named(operator: Any, error: BaseException, on_error: str) -> None:
    told = f"SW-OPERATOR-FAILED: work .* raised {type(error).__name__}.* while applying Tick.name='bad'"
    with pytest.raises(JobFailed, match=told) as caught:
        run(job(operator(error), on_error), {"in": ticks("a", "bad", "b")})
    assert caught.value.component == "", "no on_error would set it aside, so none is proposed"


@pytest.mark.parametrize("on_error", ["fail", "dead-letter"])
def test_an_interrupt_is_what_it_is(on_error: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(job(Leaving(KeyboardInterrupt()), on_error), {"in": ticks("a", "bad", "b")})
