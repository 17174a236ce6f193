"""`ComponentCounts`: the counters of a component."""

from __future__ import annotations

from pathlib import Path

import msgspec

from streamwork.delivery.counts import KINDS, summed
from streamwork.epoch.history.reading import counts, totals


class InstanceCounts(msgspec.Struct, frozen=True):
    """The counters of one instance since the history began."""

    attempted: dict[str, int]
    committed: dict[str, int]


class ComponentCounts(msgspec.Struct, frozen=True):
    """The counters of one component since the history began; `delivery.counts` defines the kinds. Instance "-1" is the sum of
    instances that were not counted separately.
    """

    attempted: dict[str, int]  # in all attempts, also in those that were abandoned or failed
    committed: dict[str, int]  # in committed epochs
    last: dict[str, dict[str, int]]  # in the last epoch, by instance
    instances: dict[str, InstanceCounts]

    @property
    def uncommitted(self) -> int:
        """Events processed in attempts that were abandoned or failed."""
        return self.attempted["processed"] - self.committed["processed"]


def read_counts(history: Path, last: int) -> dict[str, ComponentCounts]:
    """By component; `last` is the last epoch in the history."""
    known = totals(history)
    attempted = summed(one.counts for one in known)
    committed = summed(one.counts for one in known if one.outcome.committed)
    of_last: dict[str, dict[str, dict[str, int]]] = {}
    for one in counts(history, last):
        _add(of_last.setdefault(one.counts.component, {}), one.counts.instance, one.counts.numbers)
    every: dict[str, dict[str, dict[str, int]]] = {name: {} for name in attempted}
    done: dict[str, dict[str, dict[str, int]]] = {name: {} for name in attempted}
    for one in known:
        _add(every[one.counts.component], one.counts.instance, one.counts.numbers)
        if one.outcome.committed:
            _add(done[one.counts.component], one.counts.instance, one.counts.numbers)
    zero = dict.fromkeys(KINDS, 0)
    return {
        name: ComponentCounts(
            attempted[name],
            committed.get(name, zero),
            of_last.get(name, {}),
            {instance: InstanceCounts(mine, done[name].get(instance, {})) for instance, mine in every[name].items()},
        )
        for name in attempted
    }


def _add(sums: dict[str, dict[str, int]], instance: int, numbers: dict[str, int]) -> None:
    mine = sums.setdefault(str(instance), dict.fromkeys(KINDS, 0))
    for kind, number in numbers.items():
        mine[kind] += number
