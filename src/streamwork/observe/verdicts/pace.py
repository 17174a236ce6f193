"""`Pace`: how fast the input of a source comes, how fast it is read, and when the source was behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from streamwork.engine.vitals import Episode
from streamwork.epoch.history.lag import Sample

WINDOW = 60.0
"""Seconds over which the present rates are measured."""
SHORTEST = 2.0
"""Seconds below which no rate is measured."""
SLACK = 3.0
"""Seconds of input that a job may be behind, besides two intervals between checkpoints."""
RELIEVED = 0.5
"""Pressure has gone when less than this part of the limit is left: so that a value near the limit is one episode."""


class Rates(NamedTuple):
    """Per second."""

    incoming: float
    reading: float


class Pace:
    """The samples of one source, oldest first."""

    def __init__(self, samples: Sequence[Sample], interval: float) -> None:
        """`interval` is the time between two checkpoints, in seconds."""
        self.samples = samples
        self._seconds = 2 * interval + SLACK

    @property
    def lag(self) -> int:
        return self.samples[-1].lag if self.samples else 0

    @property
    def seconds_behind(self) -> float | None:
        """The lag as seconds of input at its present rate; None if that is not known, or no input comes."""
        rates = self.now()
        if self.lag == 0:
            return 0.0
        return self.lag / rates.incoming if rates is not None and rates.incoming > 0 else None

    def now(self, window: float = WINDOW) -> Rates | None:
        """The present rates; None if too little is known."""
        if not self.samples:
            return None
        last = self.samples[-1].at
        return self.between(last - window, last)

    def between(self, start: float, end: float) -> Rates | None:
        """The rates from the last sample before `start` to the last one before `end`."""
        mine = [one for one in self.samples if one.at <= end]
        before = [one for one in mine if one.at <= start]
        first = before[-1] if before else mine[0] if mine else None
        if first is None or mine[-1].at - first.at < SHORTEST:
            return None
        first, last = self._clipped(first, mine, start), mine[-1]
        seconds = last.at - first.at
        if seconds < SHORTEST:
            return None
        return Rates((last.end - first.end) / seconds, (last.read - first.read) / seconds)

    @staticmethod
    def _clipped(first: Sample, mine: Sequence[Sample], start: float) -> Sample:
        """An idle source is sampled rarely: a sample long before `start` counts as one at `start`."""
        after = next((one for one in mine if one.at > first.at), None)
        if after is None or first.at >= start or start >= after.at:
            return first
        return Sample(first.source, start, first.end, first.read)

    def all_between(self, spans: Sequence[tuple[float, float]]) -> list[Rates]:
        """The rates in these spans, as far as they are known."""
        found = [self.between(*span) for span in spans if span[1] - span[0] >= SHORTEST]
        return [one for one in found if one is not None]

    def peak(self, start: float, end: float) -> float:
        """When it was furthest behind in this time."""
        mine = [one for one in self.samples if start <= one.at <= end]
        return max(mine, key=lambda one: one.lag).at if mine else end

    def limit(self) -> float:
        """How far the source may be behind and still keep up: some seconds of its input, at the rate of all samples."""
        if len(self.samples) < 2:
            return 0.0
        first, last = self.samples[0], self.samples[-1]
        mean = (last.end - first.end) / max(SHORTEST, last.at - first.at)
        recent = self.now()
        return self._seconds * max(mean, recent.incoming if recent else 0.0)

    def behind_since(self, limit: float) -> float | None:
        """Since when it has been further behind than `limit`; None if it is not."""
        since: float | None = None
        for one in reversed(self.samples):
            if one.lag <= limit:
                break
            since = one.at
        return since

    def episodes(self, limit: float) -> list[Episode]:
        """The times at which it was further behind than `limit`. Each ends when the source has clearly caught up."""
        found: list[Episode] = []
        began: float | None = None
        for one in self.samples:
            if began is None and one.lag > limit:
                began = one.at
            elif began is not None and one.lag <= limit * RELIEVED:
                found.append(Episode(began, one.at))
                began = None
        return found if began is None else [*found, Episode(began)]
