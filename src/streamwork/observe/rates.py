"""How fast a job works at present: its sources by samples of their input, its components by what they counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

import msgspec

from streamwork.delivery.counts import TOGETHER
from streamwork.epoch.history.lag import Lag, Sample
from streamwork.epoch.history.reading import recent_counts
from streamwork.epoch.history.values import Row
from streamwork.observe.verdicts.pace import WINDOW, Pace

INTERVALS = 3
"""Components are measured over at least so many intervals between checkpoints."""


class SourceRate(msgspec.Struct, frozen=True):
    """How fast the input of sources comes, and how fast it is read. Per second, over the last minute."""

    reading: float
    incoming: float
    unit: str  # empty if the sources have different units


class Behind(msgspec.Struct, frozen=True):
    """Input that no completed checkpoint has read."""

    total: int
    unit: str  # empty if the sources have different units
    seconds: float | None  # the same as seconds of input at its present rate; None if nothing comes, or units differ


def source_rates(
    samples: Sequence[Sample], units: Mapping[str, str], interval: float, now: float
) -> dict[str, SourceRate]:
    """By source, as far as it is known; `interval` is the time between two checkpoints."""
    ordered = sorted(samples, key=lambda one: (one.source, one.at))
    found = {}
    for source, mine in groupby(ordered, key=lambda one: one.source):
        pace = Pace(list(mine), interval)
        rates = pace.now()
        if rates is not None and now - pace.samples[-1].at <= max(WINDOW, INTERVALS * interval):
            found[source] = SourceRate(max(0.0, rates.reading), max(0.0, rates.incoming), units.get(source, ""))
    return found


def together(rates: Mapping[str, SourceRate]) -> SourceRate | None:
    """All sources of a job as one."""
    if not rates:
        return None
    return SourceRate(
        sum(one.reading for one in rates.values()),
        sum(one.incoming for one in rates.values()),
        _one({one.unit for one in rates.values()}),
    )


def behind(lags: Mapping[str, Lag], rates: Mapping[str, SourceRate]) -> Behind | None:
    """The lag of these sources as one; None if there are none with offsets."""
    if not lags:
        return None
    total, unit = sum(one.total for one in lags.values()), _one({one.unit for one in lags.values()})
    incoming = sum(rates[source].incoming for source in lags if source in rates)
    return Behind(total, unit, round(total / incoming, 3) if unit and incoming > 0 else None)


def _one(units: set[str]) -> str:
    return next(iter(units)) if len(units) == 1 else ""


def component_rates(
    history: Path, epochs: Sequence[Row], interval: float, now: float
) -> dict[str, dict[int, float]] | None:
    """Component -> instance -> events processed per second in committed epochs, lately. `epochs` are the last ones, oldest first.

    None if too little is known. Instances that were counted together have the number -1.
    """
    since = now - max(WINDOW, INTERVALS * interval)
    late = [row for row in epochs if row.started >= since]
    if not epochs or not late or now <= late[0].started:
        return {} if epochs else None
    seconds = now - late[0].started
    found: dict[str, dict[int, float]] = {}
    for one in recent_counts(history, late[0].epoch):
        if one.outcome.committed:
            mine = found.setdefault(one.counts.component, {})
            mine[one.counts.instance] = mine.get(one.counts.instance, 0.0) + one.counts.processed / seconds
    return found


def spread(by_instance: Mapping[int, float]) -> float | None:
    """How much more than the mean the busiest instance gets; None where there is one instance only."""
    apart = [rate for instance, rate in by_instance.items() if instance != TOGETHER]
    return round(max(apart) * len(apart) / sum(apart), 3) if len(apart) > 1 and sum(apart) > 0 else None
