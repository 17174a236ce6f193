"""Another parallelism: the next start rewrites the state, and the job goes on as if it had never been divided otherwise."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewriting_crashes import BreakAt, break_everywhere, power_fails_in, write_nothing_prepared
from sample import Summing, expected_journal, payments
from savepoint_world import World
from streamwork import Refused
from streamwork.engine.instance import row_format
from streamwork.epoch import Driver
from streamwork.job import Graph
from streamwork.state import StateFiles
from streamwork.state import restore_plan as plans
from streamwork.state.restore_plan import ComponentPlan, groups_of
from streamwork.state.view import StateView
from streamwork.testing.disk import Survival


class Rescaled(World):
    """A world whose job may have another parallelism in each of its lives."""

    parallelism = 2

    def graph(self, parallelism: int | None = None) -> Graph:
        return super().graph(parallelism or self.parallelism)

    def life(self, epochs: int | None = None, parallelism: int | None = None, **options: Any) -> Driver:
        """A new process: it starts, and completes some epochs, or all that there are."""
        self.processes.restart()
        self.parallelism = parallelism or self.parallelism
        driver = self.run(0, **options)
        while (epochs is None or epochs > 0) and driver.run_epoch() is not None:
            epochs = None if epochs is None else epochs - 1
        return driver

    def check(self) -> None:
        """The output is that of a run that never stopped, key by key in the order of the input; and the state is its fold."""
        journal = expected_journal(self.events)
        for card in {event.card for event in self.events}:
            mine = [(row.number, row.total) for row in self.table.rows if row.card == card]
            assert mine == [(number, total) for name, number, total in journal if name == card]
        assert len(self.table.rows) == len(journal)
        self.check_state({card: total for card, _, total in journal})

    def check_state(self, expected: dict[str, int]) -> None:
        manifest, graph = self.store.manifest(max(self.store.completed())), self.graph()
        files, rows = StateFiles(self.disk, self.store.folder), row_format(graph, graph["sums"], 256)
        found = Counter[str]()
        for instance, chain in manifest.components["sums"].items():
            mine = StateView(files, rows, {instance: chain})
            found.update(mine.keys())
            groups = set(mine.to_arrow().column("__group").to_pylist())
            assert groups <= set(groups_of(int(instance), self.parallelism, 256)), "a key where it is not routed to"
            assert {key: record.total for key, record in mine.records().items()}.items() <= expected.items()
        assert found == Counter(expected.keys()), "every key once"


def test_a_start_with_another_parallelism_goes_on() -> None:
    world = Rescaled()
    world.life(2)
    base = world.store.manifest(2)
    driver = world.life(0, parallelism=5)
    written = driver.at
    assert (written.epoch, written.positions, written.parent_sha256) == (3, base.positions, base.sha256)
    assert written.reached_by == 2
    assert written.sinks["out"].staged == {} and not written.sinks["out"].first
    assert set(written.components["sums"]) == {"0", "1", "2", "3", "4"}
    world.check_state({card: total for card, _, total in expected_journal(world.events[:8])})
    world.life(1, parallelism=1)
    world.life(1, parallelism=3)
    world.life()
    world.check()


def test_the_same_parallelism_rewrites_nothing() -> None:
    world = Rescaled()
    world.life(2)
    assert world.life(0).at.epoch == 2


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 1000),
    lives=st.lists(st.tuples(st.integers(0, 3), st.sampled_from([1, 2, 3, 8, 13])), min_size=1, max_size=5),
    cards=st.integers(1, 12),
)
def test_any_history_of_parallelisms(seed: int, lives: list[tuple[int, int]], cards: int) -> None:
    world = Rescaled(seed, payments(30, cards=cards), slices=3)
    for epochs, parallelism in lives:
        world.life(epochs, parallelism)
    world.life()
    world.check()


# ---- crashes ------------------------------------------------------------------------------------------------------


def prepared(seed: int = 0) -> Rescaled:
    world = Rescaled(seed, payments(18, cards=5), slices=6)
    world.life(2, parallelism=2)
    return world


def cut(world: Rescaled, step: int, survival: Survival, next_parallelism: int) -> bool:
    """Cut the power in a step of the start that rescales. False if the start has fewer steps."""
    if not power_fails_in(world, step, survival, lambda: world.life(0, parallelism=8)):
        return False
    world.life(0, parallelism=next_parallelism)
    counted = set(world.store.manifest(max(world.store.completed())).components["sums"])
    assert counted == {str(number) for number in range(next_parallelism)}
    return True


def cut_everywhere(survival: Survival, next_parallelism: int, stride: int) -> None:
    step = 1
    while cut(world := prepared(step), step, survival, next_parallelism):
        world.life()
        world.check()
        step += stride
    assert step > 30, "the start that rescales has more steps than that"


@pytest.mark.slow
@pytest.mark.parametrize("survival", list(Survival))
@pytest.mark.parametrize("next_parallelism", [2, 8])
def test_a_power_cut_at_any_step_leaves_the_old_layout_or_the_new_one(
    survival: Survival, next_parallelism: int
) -> None:
    cut_everywhere(survival, next_parallelism, stride=1)


def test_a_power_cut_at_some_steps() -> None:
    cut_everywhere(Survival.SEEDED, 2, stride=7)


def break_off_everywhere() -> None:
    def start(world: Rescaled, at: BreakAt) -> None:
        world.life(0, parallelism=8, listener=at)

    def end(world: Rescaled) -> None:
        world.life()
        world.check()

    break_everywhere(prepared, start, end)


@pytest.mark.parametrize("deterministic", [True, False])
def test_a_driver_that_dies_after_any_phase_leaves_what_the_next_one_needs(
    deterministic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Summing, "deterministic", deterministic)
    break_off_everywhere()


def test_control_a_ledger_that_is_moved_before_the_manifest_is_durable_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_nothing_prepared(monkeypatch)
    monkeypatch.setattr(Summing, "deterministic", False)
    with pytest.raises(Refused, match="SW-STATE-DIVERGES"):
        break_off_everywhere()


def test_control_without_the_ranges_keys_are_in_several_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "groups_of", lambda instance, count, groups: range(groups))
    monkeypatch.setattr(ComponentPlan, "is_spread", property(lambda self: True))
    with pytest.raises(AssertionError):
        test_a_start_with_another_parallelism_goes_on()
