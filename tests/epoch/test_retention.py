"""Retention: whatever single state file is lost, one of the manifests that are kept can do without it; and old files go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from sample import Payment, Sums
from streamwork.components import Key
from streamwork.epoch import Manifest
from streamwork.epoch.retention import kept
from streamwork.state import Chain, FileRef, KeyedState, StateFiles, essential, files, ways
from streamwork.state.rows import RowFormat
from streamwork.testing import SimulatedDisk

FOLDER = Path("/job")
ROWS = RowFormat("sums", Payment, Key(("card",)), Sums, 256)
Policy = Callable[[Sequence[Manifest], int], list[Manifest]]

# An epoch: how far its number is from the one before (others may have come to nothing), and which instances change something.
LIVES = st.lists(st.tuples(st.integers(1, 3), st.sets(st.integers(0, 2))), min_size=1, max_size=30)
RETAIN = st.integers(1, 4)
LONGEST = st.integers(1, 6)
QUIET = settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


class Folder:
    """A job's folder as the driver keeps it: state files by `StateFiles`, manifests by a policy."""

    def __init__(self, retain: int, policy: Policy = kept) -> None:
        self.disk = SimulatedDisk()
        self.line = [Manifest(0, 0, "", 0, "u", {}, {}, {}, {}, "")]
        self._files = StateFiles(self.disk, FOLDER)
        self._states = [KeyedState() for _ in range(3)]
        self._chains: list[Chain] = [(), (), ()]
        self._retain = retain
        self._policy = policy

    def epoch(self, number: int, changed: set[int]) -> None:
        for instance in changed:
            self._states[instance].records[f"card-{number % 4}"] = Sums(number, number)
            self._states[instance].changed.add(f"card-{number % 4}")
        self._chains = [
            self._files.save(ROWS, state, chain, instance, number, "1-a")
            for instance, (state, chain) in enumerate(zip(self._states, self._chains, strict=True))
        ]
        components = {"sums": {str(instance): tuple(chain) for instance, chain in enumerate(self._chains)}}
        manifest = Manifest(number, self.line[0].epoch, self.line[0].sha256, 1, "u", {}, components, {}, {}, "")
        self.line = self._policy([manifest, *self.line], self._retain)

    @property
    def named(self) -> set[str]:
        return {path for manifest in self.line for path in manifest.files}

    def unprotected(self) -> set[str]:
        """The files whose loss would be the end."""
        return {path for path in self.named if not any(readable(manifest, path) for manifest in self.line)}


def readable(manifest: Manifest, lost: str) -> bool:
    """Can the state be had without that file? Told by looking for a snapshot or a beginning, and all deltas after it."""
    return all(_chain_readable(chain, lost) for chain in manifest.components.get("sums", {}).values())


def _chain_readable(chain: Chain, lost: str) -> bool:
    begins = [place for place, ref in enumerate(chain) if ref.is_snapshot and ref.path != lost]
    if not chain or not chain[0].is_snapshot:
        begins.append(-1)
    return any(all(ref.path != lost or ref.is_snapshot for ref in chain[begin + 1 :]) for begin in begins)


def grown(life: list[tuple[int, set[int]]], retain: int, policy: Policy = kept) -> Folder:
    folder, number = Folder(retain, policy), 0
    for step, changed in life:
        number += step
        folder.epoch(number, changed)
    return folder


@QUIET
@given(life=LIVES, retain=RETAIN, longest=LONGEST)
def test_no_single_file_is_the_end(
    monkeypatch: pytest.MonkeyPatch, life: list[tuple[int, set[int]]], retain: int, longest: int
) -> None:
    monkeypatch.setattr(files, "LONGEST_CHAIN", longest)
    folder, number = Folder(retain), 0
    for step, changed in life:
        number += step
        folder.epoch(number, changed)
        assert not folder.unprotected()
        assert folder.line[0].epoch == number, "the newest is always kept"
        assert len(folder.line) <= retain + 1


@QUIET
@given(life=LIVES, retain=RETAIN, longest=LONGEST)
def test_old_files_go(
    monkeypatch: pytest.MonkeyPatch, life: list[tuple[int, set[int]]], retain: int, longest: int
) -> None:
    """Per instance: two snapshots and their deltas for the newest, and what little the older ones add."""
    monkeypatch.setattr(files, "LONGEST_CHAIN", longest)
    folder = grown(life, retain)
    for instance in range(3):
        mine = [path for path in folder.named if path.startswith(f"state/sums/{instance}/")]
        assert len(mine) <= 4 * (longest + 1) + retain + 1


@QUIET
@given(life=LIVES, longest=LONGEST)
def test_every_way_to_read_a_chain_gives_the_same_state(
    monkeypatch: pytest.MonkeyPatch, life: list[tuple[int, set[int]]], longest: int
) -> None:
    monkeypatch.setattr(files, "LONGEST_CHAIN", longest)
    folder = grown(life, retain=1)
    reader = StateFiles(folder.disk, FOLDER)
    for instance, chain in folder.line[0].components["sums"].items():
        found = []
        for way in ways(chain):
            state = KeyedState()
            for ref in way:
                reader.add(ROWS, ref, reader.read(ref), state)
            found.append(state.records)
        assert all(records == folder._states[int(instance)].records for records in found)


CHAINS = st.lists(st.sampled_from(["delta", "snapshot"]), max_size=8).map(
    lambda kinds: tuple(FileRef(f"state/{n:012d}-1-a.{k}.parquet", "", 0, 0) for n, k in enumerate(kinds))
)


@given(chain=CHAINS)
def test_the_essential_files_are_those_without_which_it_cannot_be_read(chain: Chain) -> None:
    assert essential(chain) == {ref.path for ref in chain if not _chain_readable(chain, ref.path)}


# ---- negative controls ----------------------------------------------------------------------------------------------


def no_anchor(line: Sequence[Manifest], retain: int) -> list[Manifest]:
    return list(line[:retain])


def everything(line: Sequence[Manifest], retain: int) -> list[Manifest]:
    return list(line)


def test_without_the_anchor_some_file_is_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LONGEST_CHAIN", 4)
    find(LIVES, lambda life: bool(grown(life, 2, no_anchor).unprotected()), settings=QUIET)


def test_with_one_snapshot_only_some_file_is_the_end_of_its_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The anchor alone would do; but then each damaged snapshot costs a fall back."""

    def newest_snapshot(chain: Chain) -> Chain:
        places = [place for place, ref in enumerate(chain) if ref.is_snapshot]
        return tuple(chain[places[-1] :] if places else chain)

    def costs_a_fall_back(life: list[tuple[int, set[int]]]) -> bool:
        newest = grown(life, 2).line[0]
        return any(ref.is_snapshot and not readable(newest, path) for path, ref in newest.files.items())

    monkeypatch.setattr(files, "LONGEST_CHAIN", 3)
    with pytest.raises(NoSuchExample):
        find(LIVES, costs_a_fall_back, settings=QUIET)
    monkeypatch.setattr(files, "trimmed", newest_snapshot)
    find(LIVES, costs_a_fall_back, settings=QUIET)


def test_with_a_policy_that_keeps_everything_old_files_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LONGEST_CHAIN", 2)
    folder = grown([(1, {0, 1, 2})] * 30, 2, everything)
    assert len(folder.line) > 3 and len(folder.named) > 3 * (4 * 3 + 3)
