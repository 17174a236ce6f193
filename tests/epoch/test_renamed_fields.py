"""Renamed fields of events behind windows, tables and joins: keys, sub-keys and partial aggregates follow them.

The same job twice: one whose events were renamed in the middle of the input, and one that had the new names from the beginning.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest

from sample import run_job
from streamwork import (
    Event,
    Fixed,
    Job,
    ListSource,
    Refused,
    Session,
    SqliteSink,
    count,
    max_of,
    mean_of,
    sum_of,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
EVENTS = 90


class Paid(Event):
    card: str
    shop: str
    amount: int
    at: datetime


class Renamed(Event):
    renamed_from: ClassVar = {"account": "card", "euros": "amount", "place": "shop"}
    account: str
    place: str
    euros: int
    at: datetime


class Usage(Event):
    card: str
    window_start: datetime
    window_end: datetime
    payments: int
    spent: int
    mean: float
    most: int | None


class RenamedUsage(Event):
    renamed_from: ClassVar = {"account": "card", "purchases": "payments", "average": "mean", "largest": "most"}
    account: str
    window_start: datetime
    window_end: datetime
    purchases: int
    spent: int
    average: float
    largest: int | None


class Holder(Event):
    card: str
    name: str
    at: datetime


class RenamedHolder(Event):
    renamed_from: ClassVar = {"account": "card", "owner": "name"}
    account: str
    owner: str
    at: datetime


def given(number: int) -> tuple[str, str, int, datetime]:
    return f"c{number * number % 7}", f"s{number % 3}", number, START + timedelta(seconds=10 * number)


class Version:
    """The names of the fields in one version of the code."""

    def __init__(self, is_new: bool) -> None:
        self.paid: type[Any] = Renamed if is_new else Paid
        self.usage: type[Any] = RenamedUsage if is_new else Usage
        self.holder: type[Any] = RenamedHolder if is_new else Holder
        self.key, self.amount = ("account", "euros") if is_new else ("card", "amount")
        self.count, self.mean, self.most = (
            ("purchases", "average", "largest") if is_new else ("payments", "mean", "most")
        )

    def aggregates(self) -> dict[str, Any]:
        return {
            self.count: count(),
            "spent": sum_of(self.amount),
            self.mean: mean_of(self.amount),
            self.most: max_of(self.amount),
        }


Build = Callable[[Job, Any, Version, int], Any]


def windows(job: Job, payments: Any, version: Version, events: int) -> Any:
    return payments.window(Fixed("3min"), key=version.key, time="at", id="usage").aggregate(
        version.usage, **version.aggregates()
    )


def sessions(job: Job, payments: Any, version: Version, events: int) -> Any:
    return payments.window(Session("45s"), key=version.key, time="at", id="usage").aggregate(
        version.usage, **version.aggregates()
    )


def late_windows(job: Job, payments: Any, version: Version, events: int) -> Any:
    window = payments.window(Fixed("3min"), key=version.key, time="at", id="usage", lateness="1min")
    return window.aggregate(version.usage, **version.aggregates())


def best(job: Job, payments: Any, version: Version, events: int) -> Any:
    return windows(job, payments, version, events).top(2, by="spent", id="best")


def renaming(kind: type[Any]) -> Callable[[Any], Any]:
    return lambda event: kind(*(getattr(event, name) for name in event.__struct_fields__))


def holders(job: Job, version: Version, events: int) -> Any:
    found = [Holder(f"c{n * n % 7}", f"name-{n}", START + timedelta(seconds=10 * n)) for n in range(0, events, 4)]
    source = job.source(ListSource(found, Holder, max_events=5), id="holders", time="at", parallelism=1)
    return source.map(renaming(version.holder), to=version.holder)


def table(job: Job, payments: Any, version: Version, events: int) -> Any:
    known = holders(job, version, events).table(key=version.key, time="at", id="known", history="10min")
    return payments.join(known, key=version.key, time="at", id="named")


def outer_table(job: Job, payments: Any, version: Version, events: int) -> Any:
    known = holders(job, version, events).table(key=version.key, time="at", id="known", history="10min")
    return payments.join(known, key=version.key, time="at", id="named", how="left")


def in_time(job: Job, payments: Any, version: Version, events: int) -> Any:
    other = holders(job, version, events)
    return payments.join(other, key=version.key, time="at", id="named", within="2min", how="full")


class Row(Event):
    values: str


def values(event: Any) -> Row:
    return Row(str([str(getattr(event, name)) for name in event.__struct_fields__]))


def life(folder: Path, build: Build, is_new: bool, events: int, parallelism: int = 2) -> None:
    folder.mkdir(exist_ok=True)
    version = Version(is_new)
    job = Job("renamed", checkpoint_every=0, parallelism=parallelism)
    source = ListSource([Paid(*given(number)) for number in range(events)], Paid, max_events=17)
    read = job.source(source, id="payments", time="at", parallelism=1)
    payments = read.map(renaming(version.paid), to=version.paid)
    build(job, payments, version, events).map(values, to=Row).sink(SqliteSink(folder / "out.db", "out"), id="out")
    run_job(job, folder / "root")


def rows(folder: Path) -> list[Any]:
    with closing(sqlite3.connect(folder / "out.db")) as db:
        return sorted(db.execute("SELECT * FROM out"))


BUILDS = [windows, sessions, late_windows, best, table, outer_table, in_time]
named = pytest.mark.parametrize("build", BUILDS, ids=lambda build: build.__name__)


@named
def test_state_follows_the_fields_of_events(tmp_path: Path, build: Build) -> None:
    for name, first in (("whole", True), ("renamed", False)):
        life(tmp_path / name, build, first, EVENTS // 2)
        life(tmp_path / name, build, True, EVENTS, parallelism=3)
    assert len(rows(tmp_path / "whole")) > 5
    assert rows(tmp_path / "renamed") == rows(tmp_path / "whole")


@named
def test_control_without_the_former_names_a_start_is_refused(
    tmp_path: Path, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    life(tmp_path / "job", build, False, EVENTS // 2)
    for kind in (Renamed, RenamedUsage, RenamedHolder):
        monkeypatch.setattr(kind, "renamed_from", {})
    with pytest.raises(Refused, match="SW-STATE-SCHEMA"):
        life(tmp_path / "job", build, True, EVENTS)
