"""Random walks over the protocol (`walk.py`): whatever happens to two drivers, every row is there once, and state is the fold.

More seeds by hand:  STREAMWORK_WALKS=100000 python -m pytest tests/epoch/test_walks.py
One again:           STREAMWORK_REPLAY=4711 python -m pytest tests/epoch/test_walks.py -k exactly_once
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from epoch_walk import Chaos, Walk, Walked, check
from streamwork.components import LedgerRow
from streamwork.epoch import catch_up, choice, commit, driver, fences, recovery, retention, store
from streamwork.state import compaction

WALKS = int(os.environ.get("STREAMWORK_WALKS", "1000"))
REPLAY = os.environ.get("STREAMWORK_REPLAY")


@pytest.fixture(autouse=True)
def short_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots and tidying within a few epochs."""
    monkeypatch.setattr(compaction, "LONGEST_CHAIN", 3)
    monkeypatch.setattr(driver, "TIDY_EVERY", 2)


def walk(seed: int, **options: Any) -> Walked:
    """One walk, checked. Which misfortunes it may meet follows from the seed, too."""
    chaos = Chaos(random=seed % 3 == 0, retain=1 + seed % 3, damages=seed % 2 + (seed % 7 == 0))
    one = Walk(seed, chaos, **options)
    try:
        walked = one.run()
        check(one)
    except BaseException as error:
        error.add_note("\n".join(one.walked.story))
        error.add_note(f"replay with: STREAMWORK_REPLAY={seed} python -m pytest {__file__} -k exactly_once")
        raise
    return walked


def seeds() -> Iterator[int]:
    yield from [int(REPLAY)] if REPLAY else range(WALKS)


@pytest.mark.timeout(3600)
def test_exactly_once_whatever_happens() -> None:
    met: Counter[str] = Counter()
    refused = 0
    for seed in seeds():
        walked = walk(seed)
        met.update(walked.spent)
        refused += bool(walked.refused)
    if not REPLAY:
        assert all(met[name] > WALKS // 10 for name in ("kill", "arrive", "power", "damage", "lose")), met
        assert refused < WALKS // 10, "a walk that refuses proves little"


# ---- without a guard, some walk goes wrong --------------------------------------------------------------------------


def breaks(most: int = 400, **options: Any) -> bool:
    for seed in range(most):
        try:
            walk(seed, **options)
        except (AssertionError, KeyError, FileNotFoundError, RuntimeError):
            return True
    return False


def test_without_the_ledger() -> None:
    assert breaks(use_ledger=False)


def without_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sinks take what anybody offers."""
    judge = commit.judge
    monkeypatch.setattr(commit, "judge", lambda row, entry: judge(_with_fence(row, 0), entry))
    monkeypatch.setattr(fences.Fences, "check", lambda self, mine: None)


def _with_fence(row: LedgerRow, fence: int) -> LedgerRow:
    return LedgerRow(fence, row.position, row.manifest_sha256, row.mark)


def without_roll_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = store.Store.stored
    monkeypatch.setattr(store.Store, "stored", lambda self: [s for s in stored(self) if s.completed])


def without_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans reach across the position of a sink that is ahead."""
    monkeypatch.setattr(catch_up.Route, "capped", lambda self, start, end: end)
    monkeypatch.setattr(catch_up.Route, "leg", lambda self, at: None)


def without_offers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is offered to a sink that is behind."""
    monkeypatch.setattr(choice, "_reach", lambda shelf, manifest, ledgers: ())


def without_anchor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the newest manifests are kept, and only one way to read each."""
    for module in (driver, recovery):
        monkeypatch.setattr(module, "kept", lambda line, retain, pinned=None: list(line[:1]))
    monkeypatch.setattr(
        compaction, "trimmed", lambda chain: tuple(chain[-1:] if chain and chain[-1].is_snapshot else chain)
    )


@pytest.mark.parametrize(
    "remove",
    [
        without_fence,
        without_roll_forward,
        without_limits,
        without_offers,
        without_anchor,
    ],
)
def test_without_a_guard(monkeypatch: pytest.MonkeyPatch, remove: Any) -> None:
    remove(monkeypatch)
    assert breaks()


def test_the_policy_itself_is_what_the_control_removes() -> None:
    assert retention.kept is driver.kept is recovery.kept
