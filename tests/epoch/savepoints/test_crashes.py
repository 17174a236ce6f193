"""The power fails at any step of making a savepoint, and of a start from one: what is left is the one thing or the other.

The invariants are those of the crash tables in `epoch.savepoints.saving` and `epoch.savepoints.restoring`. Driver, store, recovery
and local host are real; the disk and the processes are simulated, and two sinks can be rewound.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sample import expected_journal
from savepoint_lives import Life, Target, has, journal
from savepoint_world import JOB, ROOT
from streamwork import Refused, WrongUse
from streamwork.epoch import Store
from streamwork.epoch.savepoints import Savepoint
from streamwork.epoch.savepoints.origin import Origin
from streamwork.testing.disk import DiskCrashed, SimulatedDisk, Survival
from tiers import quick_every


def steps_of(make: Callable[[], tuple[Life, Callable[[], Any]]]) -> int:
    """The number of steps that change something on the disk."""
    life, act = make()
    before = life.disk.steps
    act()
    return life.disk.steps - before


def broken_off(life: Life, act: Callable[[], Any], step: int, survival: Survival) -> bool:
    """Act, with a power cut in a step. False if it was over before."""
    life.disk.crash_at(life.disk.steps + step)
    try:
        act()
        return False
    except DiskCrashed:
        return True
    finally:
        life.disk.crash_at(None)
        life.power_fails(survival)


def survival_of(step: int) -> Survival:
    """Neighbouring steps have different ones."""
    return list(Survival)[step % len(Survival)]


# ---- making one -----------------------------------------------------------------------------------------------------


def about_to_save(disk: SimulatedDisk | None = None) -> tuple[Life, Callable[[], Any]]:
    life = Life(disk=disk)
    driver = life.run(3)
    return life, lambda: driver.save("one", "a@b", "")


def check_saved(life: Life) -> str:
    """What is left counts or is refused; the job goes on; a name that is half-made is free after it is dropped."""
    folder = life.folder / "one"
    try:
        savepoint = Savepoint.open(life.disk, folder)
    except (Refused, WrongUse) as refused:
        found = refused.code
        assert found in ("SW-SAVEPOINT-INCOMPLETE", "SW-SAVEPOINT-UNKNOWN")
    else:
        found = "complete"
        savepoint.check()
        assert life.sums(savepoint) == {card: total for card, _, total in expected_journal(life.events[:12])}
    driver = life.run(1)
    if found == "SW-SAVEPOINT-INCOMPLETE":
        with pytest.raises(Refused) as refused_again:
            driver.save("one", "a@b", "")
        assert refused_again.value.code == "SW-SAVEPOINT-EXISTS" and "half-made" in refused_again.value.cause
        life.disk.remove_tree(folder)
    if found != "complete":
        driver.save("one", "a@b", "")
        Savepoint.open(life.disk, folder).check()
    life.to_the_end()
    assert all(has(target, journal(life, [(24, 1)])) for target in life.targets.values())
    return found


SAVING = steps_of(about_to_save)


@pytest.mark.proves("the power fails at any step of a savepoint")
@pytest.mark.parametrize("step", quick_every(30, range(1, SAVING + 1)))
def test_a_power_cut_while_a_savepoint_is_made(step: int) -> None:
    survival = survival_of(step)
    life, save = about_to_save()
    assert broken_off(life, save, step, survival)
    found = check_saved(life)
    assert found != "complete" or step > SAVING - 6, "only the last file makes it one"


def test_control_a_savepoint_that_has_lost_a_file_is_noticed() -> None:
    """As on a disk that syncs nothing: the last file is there, another one is not."""
    life, save = about_to_save()
    save()
    folder = life.folder / "one"
    lost = next(path for path in Savepoint.open(life.disk, folder).record.files if path.endswith(".parquet"))
    life.disk.remove(folder / lost)
    with pytest.raises(Refused, match="SW-SAVEPOINT-DAMAGED"):
        check_saved(life)


# ---- a start from one ---------------------------------------------------------------------------------------------------


def bad_upgrade() -> tuple[Life, Path]:
    """A savepoint after 8 events; 8 more were processed by another version."""
    life = Life()
    folder = life.save(life.run(2))
    life.factor = 10
    life.run(2)
    life.factor = 1
    return life, folder


OLD = [(8, 1), (8, 10), (8, 1)]
"""The job goes on where it was."""
BACK = [(24, 1)]
"""The upgrade was rolled back, with its output."""


def about_to_rewind() -> tuple[Life, Callable[[], Any]]:
    life, folder = bad_upgrade()
    return life, lambda: life.restoring(folder, rewind=True)


REWINDING = steps_of(about_to_rewind)


@pytest.mark.proves("the power fails at any step of a start from a savepoint, which rewinds the sinks")
@pytest.mark.parametrize("step", quick_every(30, range(1, REWINDING + 1)))
def test_a_power_cut_while_an_upgrade_is_rolled_back(step: int) -> None:
    """Asked for again, it is rolled back. An ordinary start finds one or the other, the same at both sinks."""
    survival = survival_of(step)
    life, restore = about_to_rewind()
    assert broken_off(life, restore, step, survival)
    life.restoring(life.folder / "one", rewind=True)
    life.to_the_end()
    assert all(has(target, journal(life, BACK)) for target in life.targets.values())

    life, restore = about_to_rewind()
    assert broken_off(life, restore, step, survival)
    life.to_the_end()
    found = [[has(target, journal(life, one)) for one in (OLD, BACK)] for target in life.targets.values()]
    assert found in ([[True, False]] * 2, [[False, True]] * 2), "the sinks agree"


def about_to_move() -> tuple[Life, Callable[[], Any]]:
    life = Life()
    folder = life.save(life.run(2))
    life.root = Path("/elsewhere")
    return life, lambda: life.restoring(folder)


MOVING = steps_of(about_to_move)


@pytest.mark.parametrize("step", quick_every(30, range(1, MOVING + 1)))
def test_a_power_cut_while_a_job_is_moved(step: int) -> None:
    """What is left in the new root is nothing, is refused, or is the job. The old root goes on if the new one does not."""
    survival = survival_of(step)
    life, restore = about_to_move()
    assert broken_off(life, restore, step, survival)
    life.restoring(ROOT / JOB / "savepoints" / "one")
    life.to_the_end()
    assert all(has(target, journal(life, BACK)) for target in life.targets.values())
    life.root = ROOT
    with pytest.raises(Refused) as refused:
        life.run(0)
    assert refused.value.code == "SW-ROOT-MOVED"

    life, restore = about_to_move()
    assert broken_off(life, restore, step, survival)
    try:
        if life.store.identity() is None:
            life.root = ROOT
        life.to_the_end()
    except Refused as unfinished:
        assert unfinished.code == "SW-ROOT-UNFINISHED"
        life.root = ROOT
        moved = max(target.ledger.fence for target in life.targets.values() if target.ledger) > 1
        life.run(0, take_over=moved)
        life.to_the_end()
    assert all(has(target, journal(life, BACK)) for target in life.targets.values())


def about_to_fork() -> tuple[Life, Callable[[], Any]]:
    life = Life()
    folder = life.save(life.run(2))
    identity = msgspec.structs.replace(
        Origin.of_savepoint(Savepoint.open(life.disk, folder)).identity, job="fork", uid="f" * 32
    )
    life.name, life.factor, life.first = "fork", 10, life.targets  # type: ignore[attr-defined]
    life.targets = {"one": Target(), "two": Target()}
    return life, lambda: life.restoring(folder, identity=life.store.identity() or identity)


FORKING = steps_of(about_to_fork)


@pytest.mark.proves("the power fails at any step of a fork, or of a move to another root")
@pytest.mark.parametrize("step", quick_every(30, range(1, FORKING + 1)))
def test_a_power_cut_while_a_job_is_forked(step: int) -> None:
    """The same fork again completes it. Its targets get what it processes itself, and the first job does not notice."""
    survival = survival_of(step)
    life, fork = about_to_fork()
    assert broken_off(life, fork, step, survival)
    if life.store.identity() is not None:
        try:
            life.run(0)
        except Refused as unfinished:
            assert unfinished.code == "SW-ROOT-UNFINISHED"
            fork()
    else:
        fork()
    life.to_the_end()
    rows = journal(life, [(8, 1), (16, 10)])[8:]
    assert all(has(target, rows) for target in life.targets.values())
    life.name, life.factor, life.targets = JOB, 1, life.first  # type: ignore[attr-defined]
    life.to_the_end()
    assert all(has(target, journal(life, BACK)) for target in life.targets.values())


@pytest.mark.proves("`job.json` names the origin before there is state")
def test_control_without_the_origin_in_its_folder_an_interrupted_fork_would_begin_empty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`job.json` names the origin before there is any state: without it an ordinary start would take the folder for a new job."""
    create = Store.create_from
    monkeypatch.setattr(
        Store,
        "create_from",
        lambda store, graph, identity: create(store, graph, msgspec.structs.replace(identity, origin=msgspec.UNSET)),
    )
    for step in itertools.count(12):
        life, restore = about_to_fork()
        assert broken_off(life, restore, step, Survival.EVERYTHING), "some start is one from nothing"
        if life.store.identity() is not None:
            life.to_the_end()
            if not all(has(target, journal(life, [(8, 1), (16, 10)])[8:]) for target in life.targets.values()):
                break
