"""The job's folder is restored from a backup, as errors advise: every target takes it, and nothing is lost or doubled."""

from __future__ import annotations

import shutil

import pytest

from connectors.kits import DURABLE, Kit, cases
from connectors.test_lost import World

durable = pytest.mark.parametrize("kit", cases(DURABLE), indirect=True)


@pytest.mark.slow(more=2)
@pytest.mark.slow(behind=4)
@durable
@pytest.mark.parametrize("behind", [1, 4])
@pytest.mark.parametrize("more", [1, 2, 9], ids=lambda n: f"{n} more")
@pytest.mark.proves("the job's root restored from a backup, sinks ahead")
def test_a_job_goes_on_after_its_folder_was_restored(kit: Kit, behind: int, more: int) -> None:
    """Checkpoints get numbers again that the target knows already, for other rows: `max_events` has changed."""
    world = World(kit)
    root = kit.folder / "root"
    world.add(1, 2, 3, 4)
    world.run()
    shutil.copytree(root, kit.folder / "backup")
    world.add(*range(5, 5 + 2 * behind))
    world.run()
    for _ in range(2):  # a restored folder may be restored once more
        shutil.rmtree(root)
        shutil.copytree(kit.folder / "backup", root)
        world.max_events = 50
        world.run(take_over=True)
        assert kit.rows() == kit.expected(world.events)
        world.add(*range(100, 100 + more))
        world.run()
        assert kit.rows() == kit.expected(world.events)
