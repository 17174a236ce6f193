"""Batch runs and the streaming job are killed with SIGKILL, again and again: no event is counted twice or missed at the seam."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lambdas.world import Purchase, World

LIFE = """
import sys
from pathlib import Path
from lambdas.world import World
world = World.__new__(World)
world.folder, world.semantics, world.parallelism, world.slice_size = Path(sys.argv[1]), "exactly-once", 1, 50
print("ready", flush=True)
while True:
    world.{what}()
    print("done", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
def test_kills_at_any_moment_leave_the_seam_right(tmp_path: Path, seed: int) -> None:
    """`seed` chooses the moments: pytest tests/lambdas/test_kill.py -k SEED runs it again."""
    dice = random.Random(seed)
    world = World(tmp_path, "exactly-once", slice_size=50)

    def add() -> None:
        world.add([Purchase(dice.choice("abcdef"), dice.randrange(100), dice.choice("xyz")) for _ in range(400)])

    add()
    world.stream()
    runs = 0
    for _ in range(4):
        add()
        lives = [start(tmp_path, what) for what in ("stream", "batch")]
        for life in lives:
            assert life.stdout is not None
            for done in range(dice.randrange(1, 4)):
                life.stdout.readline()  # so that a slow machine comes as far
                runs += life is lives[1] and done > 0
        for life in dice.sample(lives, 2):
            try:
                life.wait(dice.random() * 0.4)
            except subprocess.TimeoutExpired:
                life.send_signal(signal.SIGKILL)
            life.wait()
            assert life.returncode == -signal.SIGKILL, "it works until it is killed"
            assert life.stdout is not None
            life.stdout.close()
        world.stream()
        world.check()
    assert (world.check()["run"] or 0) >= runs > 2, "batch runs were completed in between"
    world.batch()
    world.check()


def start(folder: Path, what: str) -> subprocess.Popen[str]:
    code = LIFE.format(what=what)
    paths = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
    return subprocess.Popen(
        [sys.executable, "-c", paths + code, folder], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
