"""The past of a job: `EpochPage`, its epochs page by page; `JobHistory`, how its input and its state have gone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import TypeVar

import msgspec

from streamwork.epoch.history.lag import Sample
from streamwork.epoch.history.reading import input_ends, number_of_rows, rows, samples, state_sizes
from streamwork.epoch.history.values import Result, Row, StateSize
from streamwork.epoch.job_folder import open_store

T = TypeVar("T")
POINTS = 300
MOST_POINTS = 10_000
MOST_EPOCHS = 1_000


class EpochPage(msgspec.Struct, frozen=True):
    """Some epochs, newest first. An epoch has a row for each outcome that it had."""

    job: str
    root: str
    epochs: Sequence[Row]
    next: int | None  # older epochs are before this one; None: there are none
    kept: int  # how many rows there are in all


class InputPoint(msgspec.Struct, frozen=True):
    """The input of a source at one moment; rates are per second since the point before."""

    at: float  # seconds since 1970
    lag: int
    incoming: float | None
    reading: float | None


class InputSeries(msgspec.Struct, frozen=True):
    source: str
    unit: str
    points: list[InputPoint]


class StatePoint(msgspec.Struct, frozen=True):
    at: float  # seconds since 1970
    keys: int  # 0 if the state is not keyed
    bytes: int


class StateSeries(msgspec.Struct, frozen=True):
    component: str
    points: list[StatePoint]


class JobHistory(msgspec.Struct, frozen=True):
    """Series over time, oldest first."""

    job: str
    root: str
    input: list[InputSeries]
    state: list[StateSeries]


def read_epochs(root: Path, job: str, last: int, before: int | None = None, outcome: Result | None = None) -> EpochPage:
    """The newest epochs, or those before one; only those with one outcome, if asked."""
    path = open_store(root, job).folder / "history.sqlite"
    found = rows(path, last + 1, before, outcome)
    if len(found) <= last:
        return EpochPage(job, str(root), found, None, number_of_rows(path))
    page = found[:last]
    # The rows of one epoch stay together: the next page begins with an epoch that this one does not show.
    whole = [row for row in page if row.epoch != found[last].epoch]
    shown = whole or [row for row in rows(path, MOST_EPOCHS, page[0].epoch + 1, outcome) if row.epoch == page[0].epoch]
    return EpochPage(job, str(root), shown, shown[-1].epoch, number_of_rows(path))


def read_history(root: Path, job: str, since: float = 0.0, points: int = POINTS) -> JobHistory:
    """At most so many points in each series."""
    path = open_store(root, job).folder / "history.sqlite"
    units = {one.source: one.unit for one in input_ends(path)}
    sampled = _by(samples(path, since), lambda one: one.source)
    sizes = _by((one for one in state_sizes(path) if one.at >= since), lambda one: one.component)
    return JobHistory(
        job,
        str(root),
        [InputSeries(source, units.get(source, ""), _input(_some(mine, points))) for source, mine in sampled.items()],
        [StateSeries(component, _state(_some(mine, points))) for component, mine in sizes.items()],
    )


def _by(found: Iterable[T], name: Callable[[T], str]) -> dict[str, list[T]]:
    ordered = sorted(found, key=name)
    return {key: list(mine) for key, mine in groupby(ordered, key=name)}


def _some(found: Sequence[T], points: int) -> Sequence[T]:
    """Evenly chosen ones, with the first and the last."""
    if len(found) <= points:
        return found
    return [found[round(place * (len(found) - 1) / (points - 1))] for place in range(points)]


def _input(found: Sequence[Sample]) -> list[InputPoint]:
    first = [InputPoint(one.at, one.lag, None, None) for one in found[:1]]
    return first + [_between(before, after) for before, after in pairwise(found)]


def _between(before: Sample, after: Sample) -> InputPoint:
    seconds = after.at - before.at
    if seconds <= 0:
        return InputPoint(after.at, after.lag, None, None)
    incoming, reading = (after.end - before.end) / seconds, (after.read - before.read) / seconds
    return InputPoint(after.at, after.lag, max(0.0, incoming), max(0.0, reading))


def _state(found: Sequence[StateSize]) -> list[StatePoint]:
    return [StatePoint(one.at, one.keys, one.bytes) for one in found]
