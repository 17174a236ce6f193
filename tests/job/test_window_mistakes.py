"""What a newcomer may get wrong with windows is refused when the job is built, with a message that names the way out."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from streamwork import (
    Event,
    Fixed,
    FixedCount,
    Job,
    ListSource,
    Session,
    Sliding,
    SlidingCount,
    Stream,
    WrongUse,
    count,
    mean_of,
    sum_of,
)


class Payment(Event):
    card: str
    euros: int
    at: datetime


class Usage(Event):
    card: str
    window_start: datetime
    payments: int


def payments(time: str | None = "at") -> Stream[Any]:
    return Job("mistakes").source(ListSource([], Payment), id="payments", time=time)


def window(window: Any = Fixed("10s"), **settings: Any) -> Any:  # noqa: B008 (a frozen value)
    return payments().window(window, **{"key": "card", "id": "usage", **settings})


MISTAKES: dict[str, tuple[Callable[[], Any], str, str]] = {
    "no time=": (
        lambda: payments(None).window(Fixed("10s"), key="card", id="usage"),
        "SW-JOB-TIME",
        'the source \'payments\', which it reads from, has none\n.*job.source\\(..., id="payments", time="at"\\)',
    ),
    "another time field": (lambda: window(time="when"), "SW-JOB-TIME", "no datetime field 'when'.*\n.*fields are: at"),
    "no such key": (lambda: window(key="crad"), "SW-KEY-FIELD", "no field 'crad'\n.*use one of: card, euros, at"),
    "no key=": (
        lambda: window(key=None).aggregate(Usage, payments=count()),
        "SW-WINDOW-FIELD",
        'nothing fills Usage.card\n.*add key="card", or an aggregate',
    ),
    "no aggregate for a field": (lambda: window().aggregate(Usage), "SW-WINDOW-FIELD", "add an aggregate: payments="),
    "no field for an aggregate": (
        lambda: window().aggregate(Usage, n=count()),
        "SW-WINDOW-FIELD",
        "no field for the aggregate 'n'\n.*rename the aggregate to one of: card, window_start, payments",
    ),
    "a sum of a field that is not there": (
        lambda: window().aggregate(Usage, payments=sum_of("euro")),
        "SW-WINDOW-FIELD",
        "no field 'euro'\n.*use one of: card, euros, at",
    ),
    "a sum of text": (
        lambda: window().aggregate(Usage, payments=sum_of("card")),
        "SW-WINDOW-FIELD",
        "card is a str\n.*int, float or Decimal",
    ),
    "a mean is a float": (
        lambda: window().aggregate(Usage, payments=mean_of("euros")),
        "SW-WINDOW-FIELD",
        "its value is a float\n.*declare payments as float",
    ),
    "a function, not an aggregate": (
        lambda: window().aggregate(Usage, payments=count),
        "SW-WINDOW-FIELD",
        "is not an aggregate\n.*use count\\(\\)",
    ),
    "a duration, not a window": (lambda: window("10s"), "SW-WINDOW-SETTING", "'10s' is not a window"),
    "zero size": (lambda: Fixed("0s"), "SW-WINDOW-SIZE", "size='0s'"),
    "zero gap": (lambda: Session(0), "SW-WINDOW-SIZE", "gap=0"),
    "a slide longer than the size": (lambda: Sliding("5s", "10s"), "SW-WINDOW-SIZE", "slide='10s' is longer"),
    "zero events": (lambda: FixedCount(0), "SW-WINDOW-SIZE", "size=0"),
    "a slide of more events": (lambda: SlidingCount(2, 3), "SW-WINDOW-SIZE", "slide=3 is longer"),
    "an unknown emission": (lambda: window(emit="update"), "SW-WINDOW-SETTING", "use one of: close, epoch, event"),
    "lateness without time": (
        lambda: window(FixedCount(2), lateness="1s"),
        "SW-WINDOW-SETTING",
        "windows by count have no time",
    ),
    "an unknown channel": (
        lambda: window().aggregate(Usage, payments=count()).channel("lates"),
        "SW-JOB-CHANNEL",
        "no channel 'lates'\n.*use one of: main, late",
    ),
    "top without the end": (
        lambda: window().aggregate(Usage, payments=count()).top(3, by="payments", id="top"),
        "SW-WINDOW-TOP",
        "no field 'window_end'\n.*add it",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_refused(mistake: str) -> None:
    make, code, message = MISTAKES[mistake]
    with pytest.raises(WrongUse, match=message) as refused:
        make()
    assert refused.value.code == code


@pytest.mark.parametrize("method", ["sink", "map", "where", "top"])
def test_a_window_without_aggregates_has_no_results(method: str) -> None:
    with pytest.raises(AttributeError, match=f"'{method}'" + ("" if method == "top" else r": add .aggregate\(")):
        getattr(window(), method)
