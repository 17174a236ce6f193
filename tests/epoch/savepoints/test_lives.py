"""Random lives of a job with savepoints: saved, moved, forked, rolled back and forked again. Each life writes what a run would that
never stopped.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from savepoint_lives import Life, Target, has, journal
from savepoint_world import JOB
from streamwork.epoch.savepoints import Savepoint
from streamwork.epoch.savepoints.origin import Origin

MOVES = ["run", "save", "back", "move", "fork", "first"]


class Walk:
    """The lives of one job on one disk: all of them have the same input and the same version."""

    def __init__(self, seed: int) -> None:
        self.lives = [Life(seed)]
        self.saved: list[tuple[Path, int, int]] = []  # folder, whose, how many events it has read
        self.begins = [0]  # how many events a life does not have in its targets
        self.life = 0
        self.undone: set[Path] = set()  # savepoints whose output was removed since

    @property
    def now(self) -> Life:
        return self.lives[self.life]

    def run(self, epochs: int) -> None:
        self.now.run(epochs)

    def save(self, _: int) -> None:
        driver = self.now.run(0)
        name = f"s{len(self.saved)}"
        driver.save(name, "a@b", "")
        folder = self.now.root / self.now.name / "savepoints" / name
        self.saved.append((folder, self.life, driver.at.positions["in/0"]))

    def mine(self) -> dict[Path, int]:
        """Savepoints of this life that its sinks can be rewound to: they have written something by then, and still have it."""
        least = self.begins[self.life]
        mine = {folder: read for folder, life, read in self.saved if life == self.life and least < read}
        return {folder: read for folder, read in mine.items() if folder not in self.undone}

    def back(self, number: int) -> None:
        """To a savepoint of this life, with its output."""
        if mine := self.mine():
            self.rewind(list(mine)[number % len(mine)])

    def rewind(self, savepoint: Path) -> None:
        mine = self.mine()
        self.now.restoring(savepoint, rewind=True)
        self.undone |= {folder for folder, read in mine.items() if read > mine[savepoint]}

    def move(self, number: int) -> None:
        if mine := self.mine():
            self.now.root = Path(f"/root-{len(self.lives)}-{number}-{len(self.saved)}-{self.now.processes.life}")
            self.rewind(list(mine)[number % len(mine)])

    def fork(self, number: int) -> None:
        if not self.saved:
            return
        folder, life, read = self.saved[number % len(self.saved)]
        forked = copy.copy(self.lives[life])
        forked.name, forked.targets = f"fork-{len(self.lives)}", {"one": Target(), "two": Target()}
        identity = Origin.of_savepoint(Savepoint.open(forked.disk, folder)).identity
        uid = f"{len(self.lives):032x}"
        forked.restoring(folder, identity=msgspec.structs.replace(identity, job=forked.name, uid=uid))
        self.lives.append(forked)
        self.begins.append(read)
        self.life = len(self.lives) - 1

    def first(self, number: int) -> None:
        """Another life goes on."""
        self.life = number % len(self.lives)

    def check(self) -> None:
        for life, begin in zip(self.lives, self.begins, strict=True):
            life.to_the_end()
            rows = journal(life, [(24, 1)])[begin:]
            assert all(has(target, rows) for target in life.targets.values()), life.name


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 99),
    steps=st.lists(st.tuples(st.sampled_from(MOVES), st.integers(0, 3)), min_size=3, max_size=12),
)
@example(seed=0, steps=[("fork", 0), ("save", 0), ("run", 1), ("back", 0)])
@example(seed=0, steps=[("run", 1), ("save", 0), ("back", 0), ("back", 1)])
@example(seed=0, steps=[("run", 1), ("save", 0), ("back", 0), ("run", 1), ("back", 1)])
def test_every_life_writes_what_a_run_would_that_never_stopped(seed: int, steps: list[tuple[str, int]]) -> None:
    walk = Walk(seed)
    for move, number in [("run", 1), ("save", 0), *steps]:
        getattr(walk, move)(number)
    assert walk.lives[0].name == JOB
    walk.check()


def test_control_a_start_that_reads_elsewhere_is_noticed() -> None:
    walk = Walk(0)
    walk.run(1)
    walk.save(0)
    walk.fork(0)
    walk.begins[1] += 1
    failed: Any = None
    try:
        walk.check()
    except AssertionError as error:
        failed = error
    assert failed is not None and "fork" in str(failed)
