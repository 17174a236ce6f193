"""The merged view is the fold of the input, however the streaming job, batch runs and crashes of both follow each other."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crashes import Crash, CrashAt
from lambdas.world import Purchase, World, fold
from streamwork import JobFailed
from streamwork.lambdas import partials
from streamwork.query.answer import NEWEST
from streamwork.world import RealDisk

PURCHASES = st.lists(
    st.builds(Purchase, st.sampled_from("abcd"), st.integers(0, 99), st.sampled_from("xyz")), min_size=1, max_size=12
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), PURCHASES),
        st.tuples(st.just("stream"), st.one_of(st.none(), st.integers(0, 30))),
        st.tuples(st.just("batch"), st.one_of(st.none(), st.integers(0, 30))),
    ),
    min_size=2,
    max_size=9,
)


def walk(world: World, steps: list[tuple[str, Any]], is_exact: bool) -> None:
    world.add([Purchase("a", 1)])
    world.stream()
    for what, given_ in steps:
        if what == "add":
            world.add(given_)
            continue
        watcher = None if given_ is None else CrashAt(given_)
        try:
            world.stream(watcher) if what == "stream" else world.batch(watcher)
        except Crash:
            pass
        except JobFailed as error:
            assert error.code == "SW-LAMBDA-SEAM", error
        if what == "batch":
            world.check(is_exact=False)
    world.stream()
    world.check(is_exact)
    world.add([Purchase("a", 1)])  # else events of an interrupted epoch may be the last ones, behind every checkpoint
    world.stream()
    world.batch()
    assert world.check()["cards"] == len(fold(world.events)), "a batch run brings back what the streaming job has lost"


@settings(max_examples=20, deadline=None)
@given(steps=STEPS, parallelism=st.integers(1, 2), apart=st.integers(0, 3))
def test_the_view_is_the_fold_of_the_input(steps: list[tuple[str, Any]], parallelism: int, apart: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(partials, "APART", apart)
        patch.setattr(partials, "EVERY", 1)
        walk(World(Path(folder), "exactly-once", parallelism), steps, is_exact=True)


@settings(max_examples=10, deadline=None)
@given(steps=STEPS)
def test_what_at_most_once_loses_comes_back_with_the_next_batch_run(steps: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        walk(World(Path(folder)), steps, is_exact=not any(what == "stream" and at is not None for what, at in steps))


class Failing(RealDisk):
    """Crashes before the n-th file is created."""

    def __init__(self, files: int) -> None:
        self.left = files

    def create(self, path: Path, data: bytes) -> None:
        self.left -= 1
        if self.left < 0:
            raise Crash
        super().create(path, data)


@pytest.mark.parametrize("files", range(2))
def test_a_crash_before_the_claim_or_the_switch_leaves_the_view_as_it_is(tmp_path: Path, files: int) -> None:
    world = World(tmp_path)
    world.add([Purchase("a", 1), Purchase("b", 2)])
    world.stream()
    world.batch()
    world.add([Purchase("a", 5)])
    world.stream()
    before = world.check()
    with pytest.raises(Crash):
        world.batch(disk=Failing(files))
    assert world.check() == before
    assert world.batch().run == 2 + files, "a claimed run is not used again"
    assert world.check()["seam"] > before["seam"]


def test_rows_between_two_seams_become_one_per_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the state would grow with every checkpoint until the next batch run."""
    monkeypatch.setattr(partials, "APART", 2)
    monkeypatch.setattr(partials, "EVERY", 1)
    world = World(tmp_path, slice_size=1)
    world.add([Purchase("a", amount) for amount in range(20)])
    world.stream()
    world.batch()
    world.add([Purchase("a", amount) for amount in range(20)])
    world.stream()
    world.check()
    with world.view() as view:
        (table, _), _ = view._stream.answer(NEWEST, lambda version: view._taken(version, None))
    assert table.num_rows <= 2 * (2 + 2)


def test_rows_that_lie_across_a_seam_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control of the seam: a claim that the streaming job did not see in time."""
    world = World(tmp_path, slice_size=1)
    world.add([Purchase("a", amount) for amount in range(10)])
    world.stream()
    world.batch()
    monkeypatch.setattr(partials, "APART", 0)
    monkeypatch.setattr(partials, "EVERY", 1)
    monkeypatch.setattr(partials.SeamFolder, "look", lambda self: partials.Seams({}, ()))
    world.add([Purchase("a", 5)])
    world.stream()
    monkeypatch.undo()
    with world.view() as view, pytest.raises(JobFailed, match="SW-LAMBDA-SEAM"):
        view.get("a")
    world.batch()
    world.check()


def test_a_run_beyond_a_fall_back_is_not_shown(tmp_path: Path) -> None:
    world = World(tmp_path, "exactly-once", slice_size=1)
    world.add([Purchase("a", amount) for amount in range(6)])
    world.stream()
    world.batch()
    for path in sorted((world.root / "card-spending" / "checkpoints").glob("*6.*")):
        path.write_bytes(b"damaged")
    world.stream()
    with world.view() as view, pytest.raises(JobFailed, match="SW-LAMBDA-SEAM"):
        view.get("a")
    world.batch()
    world.check()
