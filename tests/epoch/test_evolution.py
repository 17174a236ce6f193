"""A changed record or key: the next start rewrites the state, and the job goes on as if it had always been that version."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evolving
from evolving import VERSIONS, Evolving, Text
from rewriting_crashes import BreakAt, break_everywhere, power_fails_in, write_nothing_prepared
from sample import Payment, payments
from streamwork import Digits, JobFailed, Record, Refused
from streamwork.epoch.start_records import Drop
from streamwork.state.evolution import Evolution
from streamwork.testing.disk import Survival

LAST = len(VERSIONS) - 1


@pytest.mark.parametrize("version", range(1, LAST + 1))
def test_a_start_of_a_later_version_goes_on(version: int) -> None:
    world = Evolving()
    world.life(2)
    base = world.store.manifest(2)
    driver = world.life(0, version)
    written = driver.at
    assert (written.epoch, written.positions, written.parent_sha256) == (3, base.positions, base.sha256)
    assert written.reached_by == 2
    assert written.sinks["out"].staged == {}
    world.check(8)
    assert world.life(0).at.epoch == 3, "it is rewritten once"
    world.life()
    world.check()


def test_the_start_says_what_it_has_changed() -> None:
    world = Evolving()
    world.life(1)
    world.version = 1
    (line,) = [one for one in world.driver().start().story if "rewritten" in one]
    for said in ("note (string) is new, with its default", "spent (decimal128(6, 2)) is new"):
        assert said in line
    world.version = 2
    (line,) = [one for one in world.driver().start().story if "rewritten" in one]
    for said in ("card is now account", "total is now amounts", "number becomes optional", "was decimal128(6, 2)"):
        assert said in line


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 1000),
    lives=st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, LAST), st.sampled_from([1, 2, 5])), min_size=1, max_size=6
    ),
    cards=st.integers(1, 12),
)
def test_any_history_of_versions(seed: int, lives: list[tuple[int, int, int]], cards: int) -> None:
    world = Evolving(seed, payments(30, cards=cards), slices=3)
    for epochs, version, parallelism in sorted(lives, key=lambda life: life[1]):
        world.life(epochs, version, parallelism)
    world.life()
    world.check()


# ---- refused ------------------------------------------------------------------------------------------------------


def test_going_back_is_refused_and_nothing_is_changed() -> None:
    world = Evolving()
    world.life(2, version=LAST)
    before = world.store.stored()
    for version, says in ((LAST - 1, "version 3 of Text wrote it"), (2, "version 3 of Renamed wrote it")):
        with pytest.raises(Refused, match="SW-STATE-SCHEMA") as refused:
            world.life(0, version)
        assert says in str(refused.value)
    assert world.store.stored() == before
    world.life(version=LAST)
    world.check()


@pytest.mark.parametrize(
    ("migrate", "says"),
    [
        (lambda row, version: 1 / 0, "raised ZeroDivisionError"),
        (lambda row, version: None, "returned None, which is no Text"),
        (lambda row, version: Text(text=7), "text is 7"),
    ],
)
def test_a_migrate_that_fails_changes_nothing(monkeypatch: pytest.MonkeyPatch, migrate: Any, says: str) -> None:
    world = Evolving()
    world.life(2)
    before = world.store.stored()
    with monkeypatch.context() as patch:
        patch.setattr(Text, "migrate", staticmethod(migrate))
        with pytest.raises(JobFailed, match="SW-STATE-MIGRATE") as failed:
            world.life(0, 3)
        assert says in failed.value.cause
    assert world.store.stored() == before
    world.life(version=3)
    world.check()


def test_a_version_without_migrate_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Evolving()
    world.life(2)
    monkeypatch.delattr(Text, "migrate")
    with pytest.raises(Refused, match=r"Text has schema_version 2 and no migrate\(\)"):
        world.life(0, 3)


class Less(Record):
    """`More` without its note."""

    number: int = 0
    total: int = 0
    spent: Annotated[Decimal, Digits(6, 2)] = Decimal(0)


def drop(*names: str) -> Drop:
    return Drop(names, "request")


def test_a_field_that_is_gone_is_dropped_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evolving, "VERSIONS", [*VERSIONS, (Payment, Less)])
    world = Evolving()
    world.life(2, version=1)
    with pytest.raises(Refused, match=r"note \(string\) is no longer there") as refused:
        world.life(0, LAST + 1)
    assert "--drop-state sums.note" in refused.value.action
    with pytest.raises(Refused, match="SW-STATE-SCHEMA"):
        world.life(0, drop=drop("sums.nothing"))
    with pytest.raises(Refused, match="SW-STATE-UNKNOWN"):
        world.life(0, drop=drop("nothing.note"))
    driver = world.life(1, drop=drop("sums.note"))
    assert driver.at.epoch == 4, "the state was rewritten, then came an epoch"
    world.life(1, drop=drop("sums.note"))  # the same request: a restart
    for name in ("note", "card", "__group"):
        with pytest.raises(Refused, match="SW-STATE-UNKNOWN"):
            world.life(0, drop=Drop((f"sums.{name}",), "another"))
    world.life()
    world.check()


def test_a_dropped_field_stays_dropped_when_a_start_falls_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evolving, "VERSIONS", [*VERSIONS, (Payment, Less)])
    world = Evolving()
    world.life(2, version=1)
    written = world.life(0, LAST + 1, drop=drop("sums.note")).at
    path = next(iter(written.components["sums"].values()))[0].path
    world.disk.replace(world.store.folder / path, b"damaged")
    driver = world.life(0)
    assert driver.at.parent == 2, "it fell back to the one before, and rewrote that once more"
    world.life()
    world.check()


# ---- crashes ------------------------------------------------------------------------------------------------------


def prepared(seed: int = 0) -> Evolving:
    world = Evolving(seed, payments(18, cards=5), slices=6)
    world.life(2)
    return world


def cut(world: Evolving, step: int, survival: Survival, version: int) -> bool:
    """Cut the power in a step of the start that migrates. False if the start has fewer steps."""
    if not power_fails_in(world, step, survival, lambda: world.life(0, version)):
        return False
    # The state is that of the old version or of the new one, as a whole.
    newest = world.store.manifest(max(world.store.completed()))
    world.version = version if newest.epoch > 2 else 0
    world.check(12)
    return True


def cut_everywhere(survival: Survival, version: int, stride: int) -> None:
    step = 1
    while cut(world := prepared(step), step, survival, version):
        world.life(version=version)
        world.check()
        step += stride
    assert step > 20, "the start that migrates has more steps than that"


@pytest.mark.slow
@pytest.mark.parametrize("survival", list(Survival))
def test_a_power_cut_at_any_step_leaves_the_old_version_or_the_new_one(survival: Survival) -> None:
    cut_everywhere(survival, 3, stride=1)


def test_a_power_cut_at_some_steps() -> None:
    cut_everywhere(Survival.SEEDED, 3, stride=6)


def break_off_everywhere() -> None:
    def start(world: Evolving, at: BreakAt) -> None:
        world.life(0, version=3, listener=at)

    def end(world: Evolving) -> None:
        world.life(version=3)
        world.check()

    break_everywhere(prepared, start, end)


@pytest.mark.parametrize("deterministic", [True, False])
def test_a_driver_that_dies_after_any_phase_leaves_what_the_next_one_needs(
    deterministic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evolving.Sum, "deterministic", deterministic)
    break_off_everywhere()


def test_control_a_ledger_that_is_moved_before_the_manifest_is_durable_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_nothing_prepared(monkeypatch)
    monkeypatch.setattr(evolving.Sum, "deterministic", False)
    with pytest.raises(Refused, match="SW-STATE-DIVERGES"):
        break_off_everywhere()


def test_control_rows_that_are_not_migrated_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Evolution, "_migrate", lambda self, row, version: self._record())
    with pytest.raises(AssertionError):
        test_a_start_of_a_later_version_goes_on(3)
