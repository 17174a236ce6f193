"""Aggregates of all types in the state of windows: they survive checkpoints, crashes and a change of the number of instances."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any

import pyarrow as pa
import pytest

from operators.windows.oracle import START
from operators.windows.test_windows import NONE
from streamwork import (
    Aggregate,
    Digits,
    Event,
    Fixed,
    Job,
    ListSource,
    Record,
    Session,
    Sliding,
    WrongUse,
    approx_distinct_of,
    collect_of,
    count,
    distinct_of,
    first_of,
    last_of,
    max_of,
    mean_of,
    min_of,
    quantile_of,
    sum_of,
)
from streamwork.operators.windows import Window
from streamwork.testing import run

Money = Annotated[Decimal, Digits(10, 2)]
Total = Annotated[Decimal, Digits(20, 2)]


class Paid(Event):
    shop: str
    store: int
    card: str
    amount: Money
    tip: Money | None
    paid_on: date
    at: datetime


class Span(Record):
    low: float = 0.0
    high: float = 0.0


class Spread(Aggregate[Paid, Span, float]):
    def create(self) -> Span:
        return Span(1e9, -1e9)

    def add(self, state: Span, event: Paid) -> Span:
        amount = float(event.amount)
        return Span(min(state.low, amount), max(state.high, amount))

    def merge(self, left: Span, right: Span) -> Span:
        return Span(min(left.low, right.low), max(left.high, right.high))

    def result(self, state: Span) -> float:
        return state.high - state.low


class Turnover(Event):
    shop: str
    store: int
    window_start: datetime
    window_end: datetime
    events: int
    total: Total
    tips: Total | None
    mean: float
    lowest: Money
    last_card: str
    first_day: date
    cards: int
    about: int
    median: float
    latest: datetime
    all: list[str]
    spread: float


AGGREGATES: dict[str, Any] = {
    "events": count(),
    "total": sum_of("amount"),
    "tips": sum_of("tip"),
    "mean": mean_of("amount"),
    "lowest": min_of("amount"),
    "last_card": last_of("card"),
    "first_day": first_of("paid_on"),
    "cards": distinct_of("card"),
    "about": approx_distinct_of("card"),
    "median": quantile_of("store", 0.5),
    "latest": max_of("at"),
    "all": collect_of("card"),
    "spread": Spread(),
}


def paid(number: int) -> Paid:
    return Paid(
        f"shop-{number % 3}",
        number % 2,
        f"card-{number * 7 % 11}",
        Decimal(number * 13 % 1000) / 100,
        None if number % 4 else Decimal(number) / 100,
        date(2026, 1, 1 + number % 20),
        START + timedelta(seconds=number),
    )


def expected(events: list[Paid], window: Window) -> dict[Any, tuple[Any, ...]]:
    """The plainest computation, of all windows."""
    found: dict[Any, list[Paid]] = {}
    for event in events:
        at = int((event.at - START).total_seconds())
        starts = [at // 10 * 10] if isinstance(window, Fixed) else list(range(at - at % 5 - 5, at + 1, 5))
        if isinstance(window, Session):
            starts = [0]
        for start in starts:
            found.setdefault((event.shop, event.store, start), []).append(event)
    return {
        key: (
            len(some),
            sum(e.amount for e in some),
            sum(tips) if (tips := [e.tip for e in some if e.tip is not None]) else None,
            pytest.approx(sum(float(e.amount) for e in some) / len(some)),
            min(e.amount for e in some),
            some[-1].card,
            some[0].paid_on,
            len({e.card for e in some}),
            len({e.card for e in some}),
            float(key[1]),
            max(e.at for e in some),
            [e.card for e in some],
            max(float(e.amount) for e in some) - min(float(e.amount) for e in some),
        )
        for key, some in found.items()
    }


@pytest.mark.parametrize(
    "window",
    [
        pytest.param(Fixed("10s"), id="fixed", marks=pytest.mark.slow),
        pytest.param(Sliding("10s", "5s"), id="sliding"),
        pytest.param(Session("7s"), id="session"),
    ],
)
@pytest.mark.parametrize("emit", ["close", pytest.param("event", marks=pytest.mark.slow)])
def test_all_types_survive_checkpoints(window: Window, emit: Any) -> None:
    events = [paid(number) for number in range(60)]
    job = Job("turnover", parallelism=2)
    stream = job.source(ListSource([], Paid), id="in", time="at")
    made = stream.window(window, key=("shop", "store"), emit=emit, id="w").aggregate(Turnover, **AGGREGATES)
    made.sink(NONE, id="out")
    result = run(job, {"in": events}, seed=3, epoch_events=7, crash_at=[60, 150])
    assert result.lives == 3
    wanted = expected(events, window)
    last = {}
    for row in result.outputs["out"]:
        start = 0 if isinstance(window, Session) else int((row.window_start - START).total_seconds())
        last[row.shop, row.store, start] = tuple(getattr(row, name) for name in AGGREGATES)
    if isinstance(window, Session) and emit == "close":
        assert not last, "they are all open"
        records = result.states["w"]
        assert {key[:2]: record.events for key, record in records.items()} == {k[:2]: v[0] for k, v in wanted.items()}
        return
    assert len(last) > 5
    assert last == {key: wanted[key] for key in last}


class ColumnTotal(Aggregate[Paid, int, int]):
    """Whole columns, without a word about failures."""

    def add_batch(self, batch: pa.RecordBatch, codes: Any, count: int) -> pa.Array:
        raise NotImplementedError

    def merge_batch(self, left: pa.Array, right: pa.Array) -> pa.Array:
        raise NotImplementedError


class PureTotal(ColumnTotal):
    pure = True


class Totals(Event):
    total: int


def test_a_columnar_aggregate_that_is_not_pure_runs_under_fail_only() -> None:
    for aggregate, on_error in ((ColumnTotal(), None), (ColumnTotal(), "fail"), (PureTotal(), "drop")):
        _window().aggregate(Totals, on_error=on_error, total=aggregate)
    with pytest.raises(WrongUse, match="SW-OPERATOR-BATCH"):
        _window().aggregate(Totals, on_error="drop", total=ColumnTotal())


def _window() -> Any:
    stream = Job("turnover").source(ListSource([], Paid), id="in", time="at")
    return stream.window(Fixed("10s"), key="shop", id="w")


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "datasketches", None)
    with pytest.raises(WrongUse, match=r"SW-JOB-EXTRA: .*datasketches"):
        _window().aggregate(Totals, total=approx_distinct_of("card"))
