"""The oracle of windows finds faults; wrong use is refused when a job is built."""

from __future__ import annotations

from datetime import datetime
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from operators.windows.oracle import AGGREGATES, Case, Seen, TimeSummary, random_events
from operators.windows.test_windows import KINDS, NONE, check, job_of
from streamwork import (
    Event,
    Fixed,
    FixedCount,
    Job,
    JobFailed,
    ListSource,
    Session,
    Sliding,
    SlidingCount,
    Stream,
    Trigger,
    WrongUse,
    count,
    sum_of,
)
from streamwork.operators import late
from streamwork.operators.windows import assign, merging, reducer
from streamwork.testing import run


def is_caught(case: Case) -> bool:
    events = random_events(5, 40, 3, 25)
    try:
        check(case, events, run(job_of(case, 2), {"in": events}, seed=5, epoch_events=9, partitions=case.partitions))
    except AssertionError:
        return True
    return False


def test_nothing_is_caught_without_a_fault() -> None:
    assert not is_caught(Case(Fixed("10s"), 7, 2))


def test_an_edge_that_is_off_by_one_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window that has its end."""
    plain = assign.span
    monkeypatch.setattr(reducer, "span", lambda times, *rest: plain(times - 1, *rest))
    assert is_caught(Case(Fixed("10s")))


def test_ignored_lateness_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """All events are in time."""
    plain = late.judge
    monkeypatch.setattr(
        reducer, "judge", lambda chances, marks, *rest: plain(chances, np.full_like(marks, late.NEVER), *rest)
    )
    monkeypatch.setattr(
        reducer, "span", lambda times, marks, *rest: assign.span(times, np.full_like(marks, late.NEVER), *rest)
    )
    assert is_caught(Case(Fixed("10s")))


def test_a_window_that_closes_too_early_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = merging.Windows.on_time
    monkeypatch.setattr(merging.Windows, "on_time", lambda self, time, *rest: plain(self, time + 9_000_000, *rest))
    assert is_caught(Case(Fixed("10s"), 0, 2))


def test_a_lost_correction_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = merging.Windows.merge

    def silent(self: Any, partials: Any, state: Any, collector: Any, *rest: Any) -> None:
        plain(self, partials, state, SimpleNamespace(watermark=collector.watermark, emit_batch=lambda *_, **__: None))

    monkeypatch.setattr(merging.Windows, "merge", silent)
    assert is_caught(Case(Fixed("10s"), 7))


def test_sessions_that_never_merge_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = assign.sessions
    monkeypatch.setattr(
        "streamwork.operators.windows.merging_sessions.sessions", lambda keys, starts, ends: plain(keys, starts, starts)
    )
    assert is_caught(Case(Session("5s")))


# ---- refused --------------------------------------------------------------------------------------------------------------


class Small(Event):
    key: str | None
    window_start: datetime
    total: int


class WrongType(Event):
    total: float


class NotFilled(Event):
    total: int
    colour: str


class NoNull(Event):
    key: str
    total: int


def seen(time: str | None = "at") -> Stream[Seen]:
    return Job("refused").source(ListSource([], Seen), id="in", time=time)


def windowed(**options: Any) -> Any:
    return seen().window(**{"window": Fixed("10s"), "key": "key", "id": "w", **options})


class Never(Trigger[Any]):
    def fires(self, result: Any) -> bool:
        return False


def renamed(event: Seen) -> Small:
    return Small(event.key, event.at, event.number)


def same(event: Seen) -> Seen:
    return event


TOTAL = {"total": sum_of("number")}

REFUSED: dict[str, tuple[str, Any]] = {
    "zero size": ("SW-WINDOW-SIZE", lambda: Fixed("0s")),
    "less than a microsecond": ("SW-WINDOW-SIZE", lambda: Fixed(1e-9)),
    "zero gap": ("SW-WINDOW-SIZE", lambda: Session(0)),
    "zero slide": ("SW-WINDOW-SIZE", lambda: Sliding("10s", 0)),
    "a slide longer than the size": ("SW-WINDOW-SIZE", lambda: Sliding("10s", "11s")),
    "too many windows": ("SW-WINDOW-SIZE", lambda: Sliding("1d", "1ms")),
    "zero events": ("SW-WINDOW-SIZE", lambda: FixedCount(0)),
    "half an event": ("SW-WINDOW-SIZE", lambda: FixedCount(1.5)),  # type: ignore[arg-type]
    "a slide of more events than the size": ("SW-WINDOW-SIZE", lambda: SlidingCount(2, 3)),
    "no duration": ("SW-JOB-SETTING", lambda: Fixed("soon")),
    "no event time": ("SW-JOB-TIME", lambda: seen(None).window(Fixed("10s"), id="w")),
    "no time field": ("SW-JOB-TIME", lambda: windowed(time="number")),
    "an unknown time field": ("SW-JOB-TIME", lambda: windowed(time="then")),
    "time behind a map": ("SW-JOB-TIME", lambda: seen().map(renamed, id="m").window(Fixed("10s"), id="w")),
    "time behind a map that keeps its name": (
        "SW-JOB-TIME",
        lambda: seen().map(same, id="m").window(Fixed("10s"), id="w"),
    ),
    "no window": ("SW-WINDOW-SETTING", lambda: windowed(window="10s")),
    "an unknown clock": ("SW-WINDOW-SETTING", lambda: windowed(clock="wall")),
    "an unknown emission": ("SW-WINDOW-SETTING", lambda: windowed(emit="often")),
    "a trigger that is none": ("SW-WINDOW-SETTING", lambda: windowed(trigger=len)),
    "lateness by count": ("SW-WINDOW-SETTING", lambda: windowed(window=FixedCount(2), lateness="1s")),
    "lateness in processing time": ("SW-WINDOW-SETTING", lambda: windowed(clock="processing", lateness="1s")),
    "an unknown key": ("SW-KEY-FIELD", lambda: windowed(key="card")),
    "a key that is a float": ("SW-KEY-TYPE", lambda: windowed(key="value")),
    "sessions per epoch": (
        "SW-WINDOW-EMIT",
        lambda: windowed(window=Session("5s"), emit="epoch").aggregate(Small, **TOTAL),
    ),
    "a trigger per epoch": (
        "SW-WINDOW-EMIT",
        lambda: windowed(emit="epoch", trigger=Never()).aggregate(Small, **TOTAL),
    ),
    "an unknown field": ("SW-WINDOW-FIELD", lambda: windowed().aggregate(Small, total=sum_of("amount"))),
    "a field that is not filled": ("SW-WINDOW-FIELD", lambda: windowed().aggregate(NotFilled, **TOTAL)),
    "an aggregate without a field": ("SW-WINDOW-FIELD", lambda: windowed().aggregate(Small, **TOTAL, other=count())),
    "a wrong type": ("SW-WINDOW-FIELD", lambda: windowed().aggregate(WrongType, **TOTAL)),
    "a key that may be null": ("SW-WINDOW-FIELD", lambda: windowed().aggregate(NoNull, **TOTAL)),
    "no aggregate": ("SW-WINDOW-FIELD", lambda: windowed().aggregate(Small, total="number")),
    "times of a window by count": ("SW-WINDOW-FIELD", lambda: windowed(window=FixedCount(2)).aggregate(Small, **TOTAL)),
    "top of nothing": ("SW-WINDOW-TOP", lambda: summary().top(0, by="events", id="t")),
    "top by an unknown field": ("SW-WINDOW-TOP", lambda: summary().top(1, by="views", id="t")),
    "top of sessions": ("SW-WINDOW-TOP", lambda: summary(window=Session("5s")).top(1, by="events", id="t")),
    "top without the window's end": (
        "SW-WINDOW-TOP",
        lambda: windowed().aggregate(Small, **TOTAL).top(1, by="total", id="t"),
    ),
    "a channel of windows by count": (
        "SW-JOB-CHANNEL",
        lambda: windowed(window=FixedCount(2)).aggregate(OnlyTotal, **TOTAL).channel("late"),
    ),
}


class OnlyTotal(Event):
    total: int


def summary(**options: Any) -> Any:
    return windowed(**options).aggregate(TimeSummary, **AGGREGATES)


@pytest.mark.parametrize("what", REFUSED)
def test_wrong_use_is_refused(what: str) -> None:
    code, act = REFUSED[what]
    with pytest.raises(WrongUse, match=f"^{code}: "):
        act()


def test_a_window_outside_of_all_years_is_named() -> None:
    job = Job("far")
    stream = job.source(ListSource([], Seen), id="in", time="at")
    stream.window(Fixed("10s"), key="key", id="w").aggregate(Small, **TOTAL).sink(NONE, id="out")
    far = Seen("a", 1, None, datetime.fromisoformat("9999-12-31T23:59:59+00:00"))
    with pytest.raises(JobFailed, match="SW-WINDOW-RANGE"):
        run(job, {"in": [far]}, epoch_events=1)


def test_a_sum_that_overflows_is_named() -> None:
    job = Job("overflow")
    stream = job.source(ListSource([], Seen), id="in", time="at")
    stream.window(Fixed("10s"), key="key", id="w").aggregate(Small, **TOTAL).sink(NONE, id="out")
    large = Seen("a", 2**62, None, datetime.fromisoformat("2026-01-01T00:00:00+00:00"))
    with pytest.raises(JobFailed, match="SW-WINDOW-OVERFLOW"):
        run(job, {"in": [large, large]}, epoch_events=1)


def test_time_is_found_through_filters_and_unions() -> None:
    both = seen()
    odd = both.filter(is_odd, id="odd").union(both.filter(is_even, id="even"))
    made = odd.window(Fixed("10s"), key="key", id="w").aggregate(TimeSummary, **AGGREGATES)
    assert made.event is TimeSummary
    again = made.window(Fixed("30s"), key="key", time="window_start", id="again")
    assert again.time == "window_start"


def is_odd(event: Seen) -> bool:
    return event.number % 2 == 1


def is_even(event: Seen) -> bool:
    return event.number % 2 == 0


def test_every_kind_is_tried() -> None:
    assert {type(one) for one in KINDS.values()} == {Fixed, Sliding, Session, FixedCount, SlidingCount}
