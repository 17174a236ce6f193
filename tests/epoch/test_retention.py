"""Retention: whatever single state file is lost, one of the manifests that are kept can do without it; and old files go."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from pathlib import Path

import pytest
from hypothesis import HealthCheck, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from sample import Payment, Summing, Sums
from streamwork import Job, ListSource
from streamwork.components import Key, Position
from streamwork.epoch import Manifest
from streamwork.epoch.compactor import Compactor, Snapshots
from streamwork.epoch.footing import Footing
from streamwork.epoch.retention import kept
from streamwork.epoch.store import Identity
from streamwork.state import FileChain, KeyedState, StateFiles, compaction, essential, is_snapshot, ways
from streamwork.state.rows import RowFormat
from streamwork.testing import SimulatedDisk
from streamwork.world import FileRef

FOLDER = Path("/job")
ROWS = RowFormat("sums", Payment, Key(("card",)), Sums, 256)
Policy = Callable[[Sequence[Manifest], int, int | None], list[Manifest]]

# An epoch: how far its number is from the one before (others may have come to nothing), and which instances change something.
LIVES = st.lists(st.tuples(st.integers(1, 3), st.sets(st.integers(0, 2))), min_size=1, max_size=30)
RETAIN = st.integers(1, 4)
LONGEST = st.integers(1, 6)
DELAY = st.integers(0, 4)  # epochs until a snapshot is ready
QUIET = settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


class Folder:
    """A job's folder as the driver keeps it: state files by `StateFiles`, snapshots by `Compactor`, manifests by a policy."""

    def __init__(self, retain: int, policy: Policy = kept, delay: int = 0, forgetful: bool = False) -> None:
        """`forgetful` workers go on with the chain that they reported, and do not hear of snapshots."""
        self.disk = SimulatedDisk()
        self.line = [Manifest(0, 0, "", 0, "u", Position(), {}, {}, {}, "")]
        self.states = [KeyedState() for _ in range(3)]
        self._files = StateFiles(self.disk, FOLDER)
        self._chains: list[FileChain] = [(), (), ()]
        self._retain = retain
        self._policy = policy
        self._delay = delay
        self._forgetful = forgetful
        self._named: dict[str, FileChain] = {}
        self._waiting: list[tuple[int, Future[Snapshots], Callable[[], Snapshots]]] = []
        job = Job("kept", parallelism=3)
        job.source(ListSource([], Payment), id="in").apply(Summing(), key="card", id="sums")
        self._compactor = Compactor(job.graph(), self._files, self._later, lambda: "1-b", lambda paths: None)
        self._compactor.resume(
            Footing(Identity("kept", "u", 256, 0.0), True, 1, self.line[0], False, {}, (), Position(), None)
        )

    def _later(self, work: Callable[[], Snapshots]) -> Future[Snapshots]:
        self._waiting.append((self._delay, Future(), work))
        return self._waiting[-1][1]

    def epoch(self, number: int, changed: set[int]) -> None:
        for instance in changed:
            self.states[instance].records[f"card-{number % 4}"] = Sums(number, number)
            self.states[instance].changed.add(f"card-{number % 4}")
        for left, future, work in [one for one in self._waiting if one[0] == 0]:
            assert left == 0
            future.set_result(work())
        self._waiting = [(left - 1, future, work) for left, future, work in self._waiting if left]
        reported = {
            str(instance): self._files.save(ROWS, state, chain, instance, number, "1-a")
            for instance, (state, chain) in enumerate(zip(self.states, self._chains, strict=True))
        }
        components = self._compactor.install({"sums": reported}, {"sums": self._named}, number)
        self._chains = [reported[str(n)] if self._forgetful else components["sums"][str(n)] for n in range(3)]
        self._named = components["sums"]
        manifest = Manifest(number, self.line[0].epoch, self.line[0].sha256, 1, "u", Position(), components, {}, {}, "")
        self._compactor.begin(manifest)
        self.line = self._policy([manifest, *self.line], self._retain, self._compactor.pinned)

    @property
    def named(self) -> set[str]:
        return {path for manifest in self.line for path in manifest.files}

    def unprotected(self) -> set[str]:
        """The files whose loss would be the end."""
        return {path for path in self.named if not any(readable(manifest, path) for manifest in self.line)}


def readable(manifest: Manifest, lost: str) -> bool:
    """Can the state be had without that file? Told by looking for a snapshot or a beginning, and all deltas after it."""
    return all(_chain_readable(chain, lost) for chain in manifest.components.get("sums", {}).values())


def _chain_readable(chain: FileChain, lost: str) -> bool:
    begins = [place for place, ref in enumerate(chain) if is_snapshot(ref) and ref.path != lost]
    if not chain or not is_snapshot(chain[0]):
        begins.append(-1)
    return any(all(ref.path != lost or is_snapshot(ref) for ref in chain[begin + 1 :]) for begin in begins)


def grown(life: list[tuple[int, set[int]]], retain: int, policy: Policy = kept, delay: int = 0) -> Folder:
    folder, number = Folder(retain, policy, delay), 0
    for step, changed in life:
        number += step
        folder.epoch(number, changed)
    return folder


@QUIET
@given(life=LIVES, retain=RETAIN, longest=LONGEST, delay=DELAY, forgetful=st.booleans())
def test_no_single_file_is_the_end(
    monkeypatch: pytest.MonkeyPatch,
    life: list[tuple[int, set[int]]],
    retain: int,
    longest: int,
    delay: int,
    forgetful: bool,
) -> None:
    monkeypatch.setattr(compaction, "LONGEST_CHAIN", longest)
    folder, number = Folder(retain, delay=delay, forgetful=forgetful), 0
    for step, changed in life:
        number += step
        folder.epoch(number, changed)
        assert not folder.unprotected()
        assert folder.line[0].epoch == number, "the newest is always kept"
        assert len(folder.line) <= retain + 2, "the anchor, and the one whose snapshots are being made"


@QUIET
@given(life=LIVES, retain=RETAIN, longest=LONGEST, delay=DELAY)
def test_old_files_go(
    monkeypatch: pytest.MonkeyPatch, life: list[tuple[int, set[int]]], retain: int, longest: int, delay: int
) -> None:
    """Per instance: two snapshots and their deltas for the newest, and what little the older ones add."""
    monkeypatch.setattr(compaction, "LONGEST_CHAIN", longest)
    folder = grown(life, retain, delay=delay)
    most = max(longest, 4) + delay  # deltas between two snapshots: at least as many rows as there are keys
    for instance in range(3):
        mine = [path for path in folder.named if path.startswith(f"state/sums/{instance}/")]
        assert len(mine) <= 4 * (most + 2) + retain + 1


@QUIET
@given(life=LIVES, longest=LONGEST)
def test_every_way_to_read_a_chain_gives_the_same_state(
    monkeypatch: pytest.MonkeyPatch, life: list[tuple[int, set[int]]], longest: int
) -> None:
    monkeypatch.setattr(compaction, "LONGEST_CHAIN", longest)
    folder = grown(life, retain=1)
    reader = StateFiles(folder.disk, FOLDER)
    for instance, chain in folder.line[0].components["sums"].items():
        found = []
        for way in ways(chain):
            state = KeyedState()
            reader.catch_up(ROWS, way, state)
            found.append(state.records)
        assert all(records == folder.states[int(instance)].records for records in found)


CHAINS = st.lists(st.sampled_from(["delta", "snapshot"]), max_size=8).map(
    lambda kinds: tuple(FileRef(f"state/{n:012d}-1-a.{k}.parquet", "", 0, 0) for n, k in enumerate(kinds))
)


@given(chain=CHAINS)
def test_the_essential_files_are_those_without_which_it_cannot_be_read(chain: FileChain) -> None:
    assert essential(chain) == {ref.path for ref in chain if not _chain_readable(chain, ref.path)}


# ---- negative controls ----------------------------------------------------------------------------------------------


def no_anchor(line: Sequence[Manifest], retain: int, pinned: Collection[int]) -> list[Manifest]:
    return list(line[:retain])


def everything(line: Sequence[Manifest], retain: int, pinned: Collection[int]) -> list[Manifest]:
    return list(line)


@pytest.mark.slow
def test_without_the_anchor_some_file_is_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "LONGEST_CHAIN", 4)
    find(LIVES, lambda life: bool(grown(life, 2, no_anchor).unprotected()), settings=QUIET)


@pytest.mark.slow
def test_with_one_snapshot_only_some_file_is_the_end_of_its_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The anchor alone would do; but then each damaged snapshot costs a fall back."""

    def newest_snapshot(chain: FileChain) -> FileChain:
        places = [place for place, ref in enumerate(chain) if is_snapshot(ref)]
        return tuple(chain[places[-1] :] if places else chain)

    def costs_a_fall_back(life: list[tuple[int, set[int]]]) -> bool:
        newest = grown(life, 2).line[0]
        return any(is_snapshot(ref) and not readable(newest, path) for path, ref in newest.files.items())

    monkeypatch.setattr(compaction, "LONGEST_CHAIN", 3)
    with pytest.raises(NoSuchExample):
        find(LIVES, costs_a_fall_back, settings=QUIET)
    monkeypatch.setattr(compaction, "trimmed", newest_snapshot)
    find(LIVES, costs_a_fall_back, settings=QUIET)


def test_with_a_policy_that_keeps_everything_old_files_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "LONGEST_CHAIN", 2)
    folder = grown([(1, {0, 1, 2})] * 30, 2, everything)
    assert len(folder.line) > 3 and len(folder.named) > 3 * (4 * 3 + 3)
