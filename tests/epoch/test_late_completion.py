"""A driver that has lost its job publishes nothing of a checkpoint that it completes (`epoch.effects`, 6a), and sets no letters of
the new driver aside (9).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from matrix.oracles import check_state_at_once
from matrix.promises import EVENTS
from matrix.stories import failure, places, ruin_newest, two_drivers
from matrix.world import SLICE, World
from streamwork.delivery import DeadLetters, Inbox
from streamwork.epoch import Epoch
from streamwork.epoch.driver import Driver
from streamwork.epoch.effects import Effects
from streamwork.epoch.fences import Fences

pytestmark = pytest.mark.usefixtures("short_chains")
GIVEN = EVENTS[: 5 * SLICE]
POISON = GIVEN[2 * SLICE + 1].amount  # in epoch 3


def world_in(folder: Path) -> World:
    """No sink: none can turn the older driver away while it commits."""
    world = World(folder, (), "echo")
    world.on_error, world.flaky = "dead-letter", {POISON: 10**6}
    return world


def replayed_once_wherever_it_stands_still(folder: Path) -> int:
    """The older driver stands still at each durable effect of epoch 3 in turn, and goes on when the newer one is done. Then the
    operator works, and all letters are replayed. Returns how often the older one was turned away.
    """
    whole = world_in(folder / "whole")
    whole.live(GIVEN).survived()
    turned_away = 0
    for number in places(whole.trace, "told prune 2", "told prune 3"):
        world, life = two_drivers(world_in(folder / str(number)), number, GIVEN)
        turned_away += life.code == "SW-DRIVER-FENCED"
        world.flaky.clear()
        letters = DeadLetters(world.disk, world.home)
        Inbox(world.disk, world.home).put(letters.all())
        world.live(GIVEN).survived()
        try:
            check_state_at_once(world, GIVEN, set())
        except AssertionError as error:
            raise AssertionError(f"{whole.trace[number - 1]}: {error}") from None
    return turned_away


@pytest.mark.proves("a checkpoint completed after another driver has taken over the job")
def test_an_event_that_failed_has_one_letter_whoever_completes_its_checkpoint(folder: Path) -> None:
    assert replayed_once_wherever_it_stands_still(folder) > 5


@pytest.mark.proves("the fence checked after a checkpoint is completed")
def test_without_the_check_after_completion_the_event_counts_twice(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only this check is removed: the older driver stops before it prunes."""
    complete, check = Driver._complete, Fences.check

    def unchecked(self: Driver, epoch: Epoch) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(Fences, "check", lambda fences, mine: None)
            complete(self, epoch)

    monkeypatch.setattr(Driver, "_complete", unchecked)
    assert "STATE" in failure(lambda: replayed_once_wherever_it_stands_still(folder))
    assert Fences.check is check


def fallen_back_in(folder: Path) -> World:
    """Checkpoint 3 is damaged; its letter is published."""
    world = world_in(folder)
    world.live(GIVEN[: 3 * SLICE]).survived()
    ruin_newest(world, 1)
    return world


def lettered_once_wherever_a_start_stands_still(folder: Path) -> int:
    """The older driver stands still at each durable effect of steps 8 and 9 of its start in turn. Returns how many there were."""
    whole = fallen_back_in(folder / "whole")
    whole.trace.clear()
    whole.live(GIVEN).survived()
    found = places(whole.trace, "told ready 2", "told plan 4")
    for number in found:
        world, life = two_drivers(fallen_back_in(folder / str(number)), number, GIVEN)
        assert life.code == "SW-DRIVER-FENCED"
        letters = [letter.event for letter in DeadLetters(world.disk, world.home).all()]
        assert len(letters) == 1 and str(POISON) in letters[0], f"LETTERS {whole.trace[number - 1]}: {letters}"
    return len(found)


@pytest.mark.proves("a start that sets letters aside after another driver has taken over the job")
def test_a_start_that_has_lost_its_job_sets_no_letters_of_the_new_driver_aside(folder: Path) -> None:
    assert lettered_once_wherever_a_start_stands_still(folder) > 5


@pytest.mark.proves("letters listed before the fence is checked")
def test_if_letters_are_listed_after_the_check_those_of_the_new_driver_are_lost(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control."""
    set_aside = Effects.set_aside
    monkeypatch.setattr(Effects, "set_aside", lambda self, fence, _: set_aside(self, fence, self.void(2, ())))
    assert "LETTERS" in failure(lambda: lettered_once_wherever_a_start_stands_still(folder))
