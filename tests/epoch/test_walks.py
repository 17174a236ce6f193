"""Random walks over the protocol (`walk.py`): whatever happens to two drivers, every row is there once, and state is the fold.

More seeds by hand:  STREAMWORK_WALKS=100000 python -m pytest tests/epoch/test_walks.py
One again:           STREAMWORK_REPLAY=4711 python -m pytest tests/epoch/test_walks.py -k whatever_happens (or by_report)
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from epoch_walk import Chaos, Kind, Walk, Walked, check
from streamwork.components import LedgerRow
from streamwork.components import commit_rule as commit
from streamwork.delivery import inbox
from streamwork.epoch import driver, effects, fences, pruning, retention, store
from streamwork.epoch import redelivery as undone
from streamwork.epoch.recovery import catch_up
from streamwork.epoch.recovery import restore_point as choice
from streamwork.state import compaction, is_snapshot
from streamwork.testing import SimulatedDisk

WALKS = int(os.environ.get("STREAMWORK_WALKS", "400"))
KINDS = [Kind.PLAIN, Kind.LETTERS, Kind.POLLED, Kind.ACKNOWLEDGING]
REPLAY = os.environ.get("STREAMWORK_REPLAY")


@pytest.fixture(autouse=True)
def short_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots and tidying within a few epochs."""
    monkeypatch.setattr(compaction, "LONGEST_CHAIN", 3)
    monkeypatch.setattr(pruning, "CLEAN_UP_EVERY", 2)


def walk(seed: int, kind: Kind | None = None, **options: Any) -> Walked:
    """One walk, checked. Which misfortunes it may meet, and what flows, follows from the seed, too."""
    kind = KINDS[seed % len(KINDS)] if kind is None else kind
    lettered, turn = kind is not Kind.PLAIN, seed // len(KINDS)
    relents = turn % 2 if kind is Kind.LETTERS else 0
    chaos = Chaos(
        kind=kind,
        random=turn % 3 == 0 and kind is not Kind.ACKNOWLEDGING,
        retain=1 + turn % 3,
        damages=turn % 2 + (turn % 7 == 0),
        losses=0 if relents or kind is Kind.ACKNOWLEDGING else 1,  # a sink that lost rows, and takes more than before
        replays=2 if lettered else 0,
        relents=relents,
    )
    one = Walk(seed, chaos, **options)
    try:
        walked = one.run()
        check(one)
    except BaseException as error:
        error.add_note("\n".join(one.walked.story))
        test = "by_report" if kind is Kind.REPORTED else "whatever_happens"
        error.add_note(f"replay with: STREAMWORK_REPLAY={seed} python -m pytest {__file__} -k {test}")
        raise
    return walked


def seeds(quick: int) -> list[Any]:
    if REPLAY:
        return [pytest.param([int(REPLAY)], id=REPLAY)]
    others = range(quick, max(WALKS, quick))
    return [pytest.param(range(quick), id="the first"), pytest.param(others, id="the others", marks=pytest.mark.slow)]


@pytest.mark.parametrize("seeds", seeds(30))
@pytest.mark.timeout(3600)
@pytest.mark.proves(
    "two drivers in any interleaving, with crashes, damage and lost commits",
    "a dead letter replayed at any moment; its checkpoint lost afterwards",
    "two drivers, and a source that cannot be read again",
)
def test_exactly_once_whatever_happens(seeds: Sequence[int]) -> None:
    met: Counter[str] = Counter()
    refused = 0
    for seed in seeds:
        walked = walk(seed)
        met.update(walked.spent)
        refused += bool(walked.refused)
    if not REPLAY:
        often = len(seeds) // 10
        assert all(met[name] > often for name in ("kill", "arrive", "power", "damage", "lose", "replay")), met
        assert met["relent"] > len(seeds) // 50, met
        assert refused < often, "a walk that refuses proves little"


@pytest.mark.parametrize("seeds", seeds(30))
@pytest.mark.timeout(3600)
@pytest.mark.proves("drivers that read by plan and by report in turns, with crashes and damage")
def test_exactly_once_when_slices_end_by_report(seeds: Sequence[int]) -> None:
    met: Counter[str] = Counter()
    for seed in seeds:
        met.update(walk(seed, Kind.REPORTED).spent)
    if not REPLAY:
        often = len(seeds) // 10
        assert all(met[name] > often for name in ("kill", "arrive", "power", "damage", "lose", "replay")), met


# ---- without a guard, some walk goes wrong --------------------------------------------------------------------------


def breaks(kind: Kind = Kind.PLAIN, most: int = 400, **options: Any) -> bool:
    for seed in range(most):
        try:
            walk(seed, kind, **options)
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
    monkeypatch.setattr(pruning, "kept", lambda line, retain, pinned=None: list(line[:1]))
    monkeypatch.setattr(
        compaction, "trimmed", lambda chain: tuple(chain[-1:] if chain and is_snapshot(chain[-1]) else chain)
    )


def without_live_writers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start removes the temporary files of other drivers, too."""
    monkeypatch.setattr(SimulatedDisk, "abandoned", lambda self: [p for p in self._names if p.name.startswith(".tmp-")])


@pytest.mark.parametrize(
    "remove",
    [
        without_fence,
        pytest.param(without_roll_forward, marks=pytest.mark.slow),
        pytest.param(without_limits, marks=pytest.mark.slow),
        without_offers,
        pytest.param(without_anchor, marks=pytest.mark.slow),
        pytest.param(without_live_writers, marks=pytest.mark.slow),
    ],
)
def test_without_a_guard(monkeypatch: pytest.MonkeyPatch, remove: Any) -> None:
    remove(monkeypatch)
    assert breaks()


# ---- effects outside the manifest (`epoch.effects`) -------------------------------------------------------------------


def letters_before_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = driver.Driver._commit

    def early(self: Any, epoch: Any) -> None:
        self._effects.publish(epoch.manifest)
        commit(self, epoch)

    monkeypatch.setattr(driver.Driver, "_commit", early)


def refused_rows_that_a_start_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects.Effects, "publish_refused_at_start", lambda *_: None)


def letters_that_are_not_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects.Effects, "set_aside", lambda *_: None)


def letters_that_are_not_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects.Effects, "_with_known_ids", lambda self, component, epoch, letters: list(letters))


def inbox_files_that_are_not_adopted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(undone.Redelivery, "_orphans", lambda self: [])


def inbox_files_removed_before_the_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = undone.Redelivery.prepared

    def early(self: Any, epoch: Any) -> None:
        prepared(self, epoch)
        self._inbox.discard("in", set(self._accounted), self._fence)

    monkeypatch.setattr(undone.Redelivery, "prepared", early)


def inbox_files_removed_by_a_driver_that_lost_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """No copies, no check, and a file goes with the first manifest that accounts for it."""
    complete = driver.Driver._complete

    def unchecked(self: Any, epoch: Any) -> None:
        self._store.write_completed(epoch.manifest)
        for path in epoch.manifest.taken:
            self._store.disk.discard(self._store.folder / path)
        complete(self, epoch)

    monkeypatch.setattr(driver.Driver, "_complete", unchecked)
    monkeypatch.setattr(undone.Redelivery, "_adopt", lambda self, orphan: self._adopted.append(orphan) or orphan)


def inbox_files_of_higher_fences(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, discard = inbox.Inbox.taken, inbox.Inbox.discard
    monkeypatch.setattr(inbox.Inbox, "taken", lambda self, source, fence: taken(self, source, 10**6))
    monkeypatch.setattr(inbox.Inbox, "discard", lambda self, source, keys, fence: discard(self, source, keys, 10**6))


@pytest.mark.parametrize(
    ("kind", "remove"),
    [
        pytest.param(Kind.LETTERS, letters_before_the_commit, marks=pytest.mark.slow),
        (Kind.LETTERS, refused_rows_that_a_start_forgets),
        pytest.param(Kind.LETTERS, letters_that_are_not_set_aside, marks=pytest.mark.slow),
        pytest.param(Kind.LETTERS, letters_that_are_not_recognised, marks=pytest.mark.slow),
        (Kind.ACKNOWLEDGING, inbox_files_that_are_not_adopted),
        pytest.param(Kind.ACKNOWLEDGING, inbox_files_removed_before_the_checkpoint, marks=pytest.mark.slow),
        pytest.param(Kind.ACKNOWLEDGING, inbox_files_removed_by_a_driver_that_lost_its_job, marks=pytest.mark.slow),
        (Kind.ACKNOWLEDGING, inbox_files_of_higher_fences),
    ],
)
@pytest.mark.proves(
    "dead letters published after the checkpoint, quarantined and recognised",
    "inbox files removed late, copied, and never those of a higher fence",
)
def test_without_a_rule_for_effects(monkeypatch: pytest.MonkeyPatch, kind: Kind, remove: Any) -> None:
    remove(monkeypatch)
    assert breaks(kind)


def test_the_policy_itself_is_what_the_control_removes() -> None:
    assert retention.kept is pruning.kept
