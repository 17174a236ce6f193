"""Negative controls of the kinds of emission: a window that emits too little, too much or something else is noticed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from operators.windows.oracle import Case, random_events
from operators.windows.test_emission import check_each, check_epochs, check_top
from operators.windows.test_windows import KINDS, check, job_of
from streamwork.operators.aggregates.columns import take
from streamwork.operators.windows import counts, each_event, merging, running
from streamwork.operators.windows.changed import Changed
from streamwork.operators.windows.plan import WindowPlan
from streamwork.testing import run

SEED, CUT = 5, 4


def close(kind: str) -> None:
    """``emit="close"``: each window that is over has one result, and none that is open."""
    case, events = Case(KINDS[kind]), random_events(SEED, 40, 3, 25)
    check(case, events, run(job_of(case, 2, emit="close"), {"in": events}, seed=SEED, epoch_events=CUT))


def epoch(kind: str) -> None:
    check_epochs(KINDS[kind], SEED, 7, 2, CUT)


def event(kind: str) -> None:
    check_each(KINDS[kind], SEED, 40, 2, CUT)


def top_per_epoch(kind: str) -> None:
    assert kind == "sliding"
    check_top("epoch", SEED, 7, 1, 2, CUT)


def emits_twice(patch: pytest.MonkeyPatch) -> None:
    """A window that has closed stays, and is due again."""
    patch.setattr(merging.Windows, "forget", lambda *_: None)


def emits_when_full_is_near(patch: pytest.MonkeyPatch) -> None:
    """A window by count emits one event too early."""
    made = counts.Counts.__init__

    def shorter(self: Any, plan: WindowPlan) -> None:
        made(self, plan)
        self._length -= 1

    patch.setattr(counts.Counts, "__init__", shorter)


def forgets_changes(patch: pytest.MonkeyPatch) -> None:
    """No row counts as changed but the first of a batch."""
    add = Changed.add
    patch.setattr(Changed, "add", lambda self, places: add(self, places[:1]))


def keeps_changes(patch: pytest.MonkeyPatch) -> None:
    """What has emitted before a checkpoint still counts as changed."""
    patch.setattr(Changed, "take", lambda self: np.flatnonzero(self._mask))


def lags_behind(patch: pytest.MonkeyPatch) -> None:
    """Each event but the first of a batch leaves with the aggregates of the event before it."""
    plain = running.run

    def run_late(*given: Any) -> running.Running:
        found = plain(*given)
        return found._replace(parts=take(found.parts, np.maximum(np.arange(len(found.groups.codes)) - 1, 0)))

    for module in (each_event, counts):
        patch.setattr(module, "run", run_late)


CONTROLS: list[tuple[Callable[[str], None], str, Callable[[pytest.MonkeyPatch], None]]] = [
    (close, "sliding", emits_twice),
    (close, "sliding count", emits_when_full_is_near),
    (epoch, "sliding", forgets_changes),
    (epoch, "sliding", keeps_changes),
    (epoch, "sliding count", forgets_changes),
    (epoch, "sliding count", keeps_changes),
    (top_per_epoch, "sliding", forgets_changes),
    (event, "sliding", lags_behind),
    (event, "sliding count", lags_behind),
]


@pytest.mark.parametrize(
    ("emits", "kind", "fault"), CONTROLS, ids=[f"{e.__name__}-{k}-{f.__name__}" for e, k, f in CONTROLS]
)
def test_a_fault_of_emission_is_caught(
    emits: Callable[[str], None],
    kind: str,
    fault: Callable[[pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    emits(kind)
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        emits(kind)
