"""The catalogue: which manifests count, which were completed, what leads to what. No file is read."""

from __future__ import annotations

import random
from collections.abc import Collection

import pytest

from streamwork.components import Position
from streamwork.epoch import Manifest
from streamwork.epoch.recovery.catalogue import Catalogue
from streamwork.epoch.start_records import StartRecord
from streamwork.epoch.store import Stored

SEEDS = range(200)


class Files:
    """The health of files, as a set of epochs whose state is damaged."""

    def __init__(self, damaged: Collection[int] = ()) -> None:
        self.damaged = damaged

    def state_problem(self, manifest: Manifest) -> str:
        return "damaged" if manifest.epoch in self.damaged else ""

    def staged_problem(self, manifest: Manifest, sink: str) -> str:
        return ""


class History:
    """Drivers that take a job over from each other; one that has lost its job may write on for a while."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.manifests = [Manifest(0, 0, "", 0, "u", Position(), {}, {}, {}, "")]
        self.starts: dict[int, StartRecord] = {}
        self.line = [self.manifests[0]]  # oldest first
        late: list[Manifest] = []
        for fence in range(1, rng.randrange(2, 6)):
            self.starts[fence] = StartRecord(fence, self.line[-1].epoch, self.line[-1].sha256)
            for _ in range(rng.randrange(4)):
                self.line.append(self._next(self.line[-1], fence))
            late = []
            at = self.line[-1]
            for _ in range(rng.randrange(3)):
                at = self._next(at, fence)
                late.append(at)
        self.line += late  # the last driver was not overtaken: what it wrote counts
        pruned = set(rng.sample([m.epoch for m in self.line[:-1]], rng.randrange(len(self.line))))
        self.stored = [
            Stored(m.epoch, m.epoch != self.manifests[-1].epoch, m) for m in self.manifests if m.epoch not in pruned
        ]
        self.kept = [m for m in self.line if m.epoch not in pruned]
        self.damaged = {m.epoch for m in self.manifests if rng.random() < 0.3}

    def _next(self, parent: Manifest, fence: int) -> Manifest:
        epoch = max(m.epoch for m in self.manifests) + 1
        made = Manifest(epoch, parent.epoch, parent.sha256, fence, "u", Position(), {}, {}, {}, "")
        self.manifests.append(made)
        return made


def check(history: History) -> None:
    catalogue = Catalogue(history.stored, history.starts, Files(history.damaged))
    assert [m.epoch for m in catalogue.newest_first] == [m.epoch for m in reversed(history.kept)], "COUNTS"
    sound = [m for m in reversed(history.kept) if m.epoch not in history.damaged]
    assert catalogue.newest == (sound[0] if sound else None)
    if history.kept:
        tip = history.kept[-1]
        assert catalogue.line(tip) == list(reversed(history.kept)), "LINE"
        lineage = list(catalogue.lineage(tip))
        assert lineage == list(reversed(history.kept))[: len(lineage)]
        assert catalogue.parent(tip) == (lineage[1] if len(lineage) > 1 else None)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_an_overtaken_driver_wrote_does_not_count(seed: int) -> None:
    check(History(seed))


def test_without_the_starts_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control."""
    monkeypatch.setattr(Catalogue, "_counts", lambda self, manifest: True)
    with pytest.raises(AssertionError, match="COUNTS"):
        for seed in SEEDS:
            check(History(seed))


def test_a_parent_was_completed() -> None:
    """Also if the copy that says so is lost."""
    first = Manifest(1, 0, "", 1, "u", Position(), {}, {}, {}, "")
    second = Manifest(2, 1, first.sha256, 1, "u", Position(), {}, {}, {}, "")
    catalogue = Catalogue([Stored(2, False, second), Stored(1, False, first)], {}, Files())
    assert [catalogue.is_completed(m) for m in (first, second)] == [True, False]


def test_what_cannot_be_read_is_listed() -> None:
    catalogue = Catalogue([Stored(3, True, None, "torn")], {}, Files())
    assert catalogue.newest is None and catalogue.problems == catalogue.unreadable == [(3, "torn")]
