"""Contestants that compute the same epochs in turn, and the figures that come of it.

The contestants take turns, one epoch each, with the same events, so that noise on the machine affects all of them. The first
epochs are a warm-up. A ratio compares two contestants on the same epoch; the median over all epochs is reported. At the end every
contestant checks its results; a difference is an error, and no speed is reported.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

import pyarrow as pa

from streamwork.bench.peers import Unavailable
from streamwork.bench.spark_peers import QueryFailed
from streamwork.bench.spread import spread

T = TypeVar("T")
Note = Callable[[str], None]
Epoch = Mapping[str, pa.RecordBatch]
"""The rows of an epoch, by the name of their input."""


class Wrong(AssertionError):
    """A contestant has computed something else than the oracle: no speed is reported."""


class Timed(NamedTuple):
    seconds: float
    cpu: float


class Contestant(ABC):
    """One of the systems that are compared."""

    warms_up: ClassVar[bool] = True
    """False if each epoch starts from nothing, so that a warm-up changes nothing."""

    @abstractmethod
    def run(self, epoch: Epoch) -> Timed:
        """Compute an epoch. Raises `QueryFailed` or `Unavailable` if a peer cannot."""

    @abstractmethod
    def check(self) -> None:
        """Compare all results with the oracle. Raises `Wrong`."""

    def close(self) -> None:
        """Stop. The default has nothing to stop."""
        return


class Contest:
    """Measures contestants, and leaves out those that fail."""

    def __init__(self, contestants: Mapping[str, Contestant], warm: int, repeats: int, note: Note) -> None:
        self._contestants = dict(contestants)
        self._warm, self._repeats = warm, repeats
        self._note = note
        self._rows: list[int] = []
        self._times: dict[str, list[Timed]] = {}
        self.skipped: dict[str, str] = {}

    def run(self, next_epoch: Callable[[], Epoch]) -> None:
        for repeat in range(-self._warm, self._repeats):
            epoch = next_epoch()
            rows = sum(batch.num_rows for batch in epoch.values())
            if repeat >= 0:
                self._rows.append(rows)
            for name in turned([*self._contestants], repeat):
                self._turn(name, epoch, repeat, rows)

    def run_unmeasured(self, epoch: Epoch) -> None:
        for name in [*self._contestants]:
            if self._contestants[name].warms_up:
                self._attempt(name, epoch)

    def close(self) -> None:
        for contestant in self._contestants.values():
            contestant.close()

    def check(self) -> None:
        for name, contestant in self._contestants.items():
            self._note(f"checking the results of {name}")
            contestant.check()

    def _turn(self, name: str, epoch: Epoch, repeat: int, rows: int) -> None:
        if name not in self._contestants or (repeat < 0 and not self._contestants[name].warms_up):
            return
        timed = self._attempt(name, epoch)
        if timed is None:
            return
        self._note(f"epoch {repeat + 1} of {self._repeats}, {name}: {rows / timed.seconds:,.0f} events/s")
        if repeat >= 0:
            self._times.setdefault(name, []).append(timed)

    def _attempt(self, name: str, epoch: Epoch) -> Timed | None:
        try:
            return self._contestants[name].run(epoch)
        except (QueryFailed, Unavailable) as why:
            self.skipped[name] = str(why)
            self._contestants.pop(name).close()
            self._note(f"{name} is left out: {why}")
            return None

    def figures(self, peers: tuple[str, ...]) -> dict[str, Any]:
        """The figures of each contestant, with its ratios to `peers`. Medians, with all repeats."""
        found = {}
        for name in self._contestants:
            times = self._times[name]
            spreads = {
                "events_per_s": spread([n / one.seconds for n, one in zip(self._rows, times, strict=True)], 0),
                **{f"ratio_vs_{peer}": self._ratio(name, peer) for peer in peers if peer != name},
                "cpu_s_per_million": spread([one.cpu * 1e6 / n for n, one in zip(self._rows, times, strict=True)]),
            }
            found[name] = _row(spreads)
        return found

    def _ratio(self, name: str, peer: str) -> dict[str, Any] | None:
        """The speed relative to a peer, epoch by epoch."""
        if peer not in self._contestants:
            return None
        pairs = zip(self._times[name], self._times[peer], strict=True)
        return spread([theirs.seconds / mine.seconds for mine, theirs in pairs])


def with_worst(figures: dict[str, Any], ours: tuple[str, ...], peers: tuple[str, ...]) -> dict[str, Any]:
    """The figures, below the smaller of our ratios to each peer: that is the ratio that counts."""
    worst: dict[str, Any] = {}
    for peer in peers:
        name = f"ratio_vs_{peer}"
        slower = min(ours, key=lambda one: figures[one][name] or 0.0)
        worst[name] = figures[slower]["spread"].get(name)
    return {**_row(worst), **figures}


def _row(spreads: dict[str, Any]) -> dict[str, Any]:
    medians = {name: None if figures is None else figures["median"] for name, figures in spreads.items()}
    return {**medians, "spread": {name: figures for name, figures in spreads.items() if figures}}


def turned(names: Sequence[T], repeat: int) -> list[T]:
    """The contestants, rotated: each repeat starts with another one."""
    at = repeat % len(names)
    return [*names[at:], *names[:at]]
