"""The simulated disk keeps the promises of `Disk`, and not one more."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamwork.testing.disk import DiskCrashed, SimulatedDisk, Survival
from streamwork.world import Disk, RealDisk

FOLDER = Path("/data")
FILE = FOLDER / "file"


def disk_with_folder(seed: int = 0, **options: bool) -> SimulatedDisk:
    disk = SimulatedDisk(seed, **options)
    disk.make_folder(FOLDER)
    return disk


def use(disk: Disk, folder: Path) -> list[object]:
    """A walk through every operation; what a program saw on the way."""
    seen: list[object] = []
    disk.make_folder(folder / "a" / "b")
    disk.create(folder / "one", b"1")
    with pytest.raises(FileExistsError):
        disk.create(folder / "one", b"2")
    disk.replace(folder / "one", b"three")
    disk.replace(folder / "two", b"2")
    with disk.open_append(folder / "log") as file:
        seen += [file.write(b"hello"), file.tell()]
        file.sync()
        file.truncate(2)
        file.write(memoryview(b"y!"))
        seen.append(file.tell())
    with disk.open_append(folder / "log") as file:
        file.write(b"?")
    disk.sync(folder / "log")
    seen += [disk.read(folder / "log"), disk.read_at(folder / "log", 1, 100), disk.size(folder / "log")]
    seen += [disk.map(folder / "log").to_pybytes(), disk.names(folder), disk.names(folder / "nowhere")]
    disk.remove(folder / "two")
    disk.remove(folder / "two")
    seen += [disk.exists(folder / "two"), disk.exists(folder / "a"), disk.read(folder / "one")]
    for missing in (disk.read, disk.size, disk.sync, disk.map):
        with pytest.raises(FileNotFoundError):
            missing(folder / "two")
    with pytest.raises(FileNotFoundError):
        disk.create(folder / "no" / "such", b"")
    return seen


def test_it_behaves_like_a_real_disk(tmp_path: Path) -> None:
    disk = disk_with_folder()
    assert use(disk, FOLDER) == use(RealDisk(), tmp_path)
    before = disk.read(FOLDER / "log")
    disk.crash(Survival.NOTHING)
    assert disk.read(FOLDER / "log") == before  # everything was synced
    assert disk.names(FOLDER) == ["a", "log", "one"]


def test_unsynced_bytes_survive_in_part_and_synced_ones_whole() -> None:
    left = set()
    for seed in range(200):
        disk = disk_with_folder(seed)
        file = disk.open_append(FILE)
        file.write(b"safe")
        file.sync()
        file.write(b"ABC")
        file.write(b"DEF")
        disk.crash()
        left.add(disk.read(FILE))
        with pytest.raises(DiskCrashed):
            file.write(b"from a former life")
    assert all(content.startswith(b"safe") for content in left)
    whole = {b"safeABCDEF"[:n] for n in range(4, 11)}
    assert whole <= left
    assert all(set(content[4:]) <= set(b"ABCDEF\0") for content in left)
    assert any(b"\0" in content for content in left)  # holes


@pytest.mark.parametrize(("survival", "expected"), [(Survival.NOTHING, b"one"), (Survival.EVERYTHING, b"onetwo")])
def test_the_extremes(survival: Survival, expected: bytes) -> None:
    disk = disk_with_folder()
    with disk.open_append(FILE) as file:
        file.write(b"one")
        file.sync()
        file.write(b"two")
    disk.crash(survival)
    assert disk.read(FILE) == expected


def test_replace_is_atomic_wherever_it_crashes() -> None:
    left = set()
    for step in range(1, 5):
        for seed in range(20):
            disk = disk_with_folder(seed)
            disk.replace(FILE, b"old")
            disk.crash_at(disk.steps + step)
            with pytest.raises(DiskCrashed):
                disk.replace(FILE, b"new")
            with pytest.raises(DiskCrashed):
                disk.read(FILE)  # dead until it is restarted
            disk.crash()
            left.add(disk.read(FILE))
            assert disk.names(FOLDER) == ["file"]
    assert left == {b"old", b"new"}


def test_a_removal_or_creation_under_way_may_or_may_not_survive() -> None:
    removed, created = set(), set()
    for seed in range(20):
        disk = disk_with_folder(seed)
        disk.create(FILE, b"x")
        disk.crash_at(disk.steps + 2)  # unlink, then the folder's sync
        with pytest.raises(DiskCrashed):
            disk.remove(FILE)
        disk.crash()
        removed.add(disk.exists(FILE))
        disk.crash_at(disk.steps + 2)
        with pytest.raises(DiskCrashed):
            disk.open_append(FOLDER / "new")
        disk.crash()
        created.add(disk.exists(FOLDER / "new"))
    assert removed == created == {True, False}


def test_what_has_returned_is_durable_and_a_lying_disk_shows_why_that_matters() -> None:
    for honest in (True, False):
        disk = disk_with_folder(honest=honest)
        disk.create(FILE, b"x")
        with disk.open_append(FOLDER / "log") as file:
            file.write(b"y")
            file.sync()
        disk.crash(Survival.NOTHING)
        assert disk.exists(FILE) == honest
        assert disk.exists(FOLDER / "log") == honest


@pytest.mark.parametrize("synced", [True, False])
def test_names_that_a_killed_process_made_are_durable_once_they_are_synced(synced: bool) -> None:
    """Also in the top folder. The process is killed before it syncs the name of the folder it made."""
    disk = SimulatedDisk()
    disk.fail_at(2)
    with pytest.raises(OSError, match="sync folder /"):
        disk.make_folder(FOLDER)
    if synced:
        disk.sync_names(FOLDER.parent)
    disk.crash(Survival.NOTHING)
    assert disk.exists(FOLDER) == synced


def test_full_failing_and_bad() -> None:
    disk = disk_with_folder()
    file = disk.open_append(FILE)
    disk.capacity = 3
    with pytest.raises(OSError, match="no space"):
        file.write(b"12345")
    assert disk.read(FILE) == b"123"  # as on a real disk, part of it was written
    with pytest.raises(OSError, match="no space"):
        disk.replace(FOLDER / "other", b"1")
    assert disk.names(FOLDER) == ["file"]
    disk.capacity = None
    disk.fail_at(disk.steps + 1)
    with pytest.raises(OSError, match="simulated failure"):
        file.sync()
    file.sync()
    disk.flip(FILE, 0, 1)
    assert disk.read(FILE) == b"323"
    position = disk.flip_somewhere(FILE)
    assert disk.read(FILE)[position] != b"323"[position]
    assert any("truncate" in line or "write" in line for line in disk.trace)


def test_the_same_seed_gives_the_same_outcome() -> None:
    def outcome(seed: int) -> bytes:
        disk = disk_with_folder(seed)
        with disk.open_append(FILE) as file:
            for number in range(10):
                file.write(bytes([number]) * 300)
        disk.crash()
        return disk.read(FILE)

    assert outcome(3) == outcome(3)
    assert len({outcome(seed) for seed in range(20)}) > 10
