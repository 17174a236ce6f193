"""Temporary files: a dead writer's are removed by the next start, a live writer's never."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sample import Payment, Seen, Summing, payments, run_job, summing_job
from streamwork import Job, ListSource, ParquetSink
from streamwork.log import EventLog
from streamwork.testing.disk import DiskCrashed, SimulatedDisk, Survival
from streamwork.world import RealDisk
from streamwork.world import temporary as module
from streamwork.world.temporary import PREFIX, remove_abandoned, temporary

WRITER = """
import os, sys
from pathlib import Path
from streamwork.world import RealDisk

def waiting(act):
    def acts(*arguments):
        print("written", flush=True)
        sys.stdin.readline()
        return act(*arguments)
    return acts

os.link, Path.replace = waiting(os.link), waiting(Path.replace)
getattr(RealDisk(), sys.argv[1])(Path(sys.argv[2]), b"whole")
"""
OPERATIONS = pytest.mark.parametrize("operation", ["create", "replace"])


@contextmanager
def writer(operation: str, path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has written a file and stands still before it gives it its name."""
    command = [sys.executable, "-c", WRITER, operation, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "written\n"
        try:
            yield process
        finally:
            process.kill()


def left(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob(f"{PREFIX}*"))


@OPERATIONS
@pytest.mark.proves("a process killed between writing a file and renaming it")
def test_what_a_killed_writer_leaves_is_removed(tmp_path: Path, operation: str) -> None:
    with writer(operation, tmp_path / "file") as process:
        process.kill()
        process.wait()
        assert len(left(tmp_path)) == 1
        assert RealDisk().names(tmp_path) == []
    RealDisk().remove_abandoned(tmp_path)
    assert left(tmp_path) == []


@OPERATIONS
def test_what_a_live_writer_has_written_stays(tmp_path: Path, operation: str) -> None:
    with writer(operation, tmp_path / "file") as process:
        RealDisk().remove_abandoned(tmp_path)
        assert len(left(tmp_path)) == 1
        process.communicate("\n")
        assert process.returncode == 0
    assert (tmp_path / "file").read_bytes() == b"whole"
    assert left(tmp_path) == []


@OPERATIONS
@pytest.mark.proves("the lock on a temporary file")
def test_without_the_lock_a_live_writer_fails(tmp_path: Path, operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_lock", lambda descriptor, without: True)
    with writer(operation, tmp_path / "file") as process:
        RealDisk().remove_abandoned(tmp_path)
        process.communicate("\n")
        assert process.returncode != 0
    assert not (tmp_path / "file").exists()


@pytest.mark.parametrize("moment", ["before it is locked", "while it is locked"])
def test_a_file_that_is_taken_from_its_writer_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Between creating and locking: the writer begins again."""
    lock, taken = module._lock, []

    def locks(descriptor: int, without: bool) -> bool:
        if without and not taken:
            taken.extend(left(tmp_path))
            remove_abandoned(tmp_path, below=False)
            return lock(descriptor, without) and moment == "before it is locked"
        return lock(descriptor, without)

    monkeypatch.setattr(module, "_lock", locks)
    RealDisk().create(tmp_path / "file", b"whole")
    assert len(taken) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: Any) -> None:
        raise OSError("no locks here")

    monkeypatch.setattr("fcntl.flock", refuses)
    RealDisk().create(tmp_path / "file", b"whole")
    abandoned(tmp_path)
    RealDisk().remove_abandoned(tmp_path)
    assert len(left(tmp_path)) == 1


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "job", tmp_path / "elsewhere"
    folder.mkdir(), elsewhere.mkdir()
    victim = abandoned(elsewhere)
    (folder / "linked").symlink_to(elsewhere)
    (folder / f"{PREFIX}aaaaaaaaaaaa").symlink_to(victim)
    (folder / f"{PREFIX}mine").write_text("of a person")
    (folder / f"{PREFIX}bbbbbbbbbbbb").mkdir()
    os.mkfifo(folder / f"{PREFIX}cccccccccccc")
    before = left(tmp_path)
    RealDisk().remove_abandoned(folder, below=True)
    assert left(tmp_path) == before and victim.exists()


def test_a_failure_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(OSError, match="file"):
        RealDisk().replace(tmp_path / "file", b"cannot replace a folder")
    with pytest.raises(FileExistsError):
        RealDisk().create(tmp_path / "file", b"")
    assert left(tmp_path) == []


# ---- who cleans up where ------------------------------------------------------------------------------------------------


def abandoned(folder: Path, name: str = "0123456789ab") -> Path:
    path = folder / f"{PREFIX}{name}"
    path.write_bytes(b"half")
    return path


def in_every_folder(top: Path) -> list[Path]:
    return [abandoned(folder) for folder in (top, *(path for path in top.rglob("*") if path.is_dir()))]


@pytest.mark.proves("temporary files of dead processes, in any folder of the job")
def test_a_start_removes_them_in_every_folder_of_the_job(tmp_path: Path) -> None:
    root, events = tmp_path / "root", payments(20)
    run_job(summing_job(events, tmp_path / "out.db", 5), root)
    (job,) = root.iterdir()
    for name in ("control/retrying", "inbox/in", "dead-letters/sums", "outputs/journal", "claims"):
        (job / name).mkdir(parents=True, exist_ok=True)
    assert len(in_every_folder(job)) > 8
    with temporary(job / "state") as (mine, _):
        run_job(summing_job(events, tmp_path / "out.db", 5), root)
        assert left(job) == [mine]
    assert left(job) == []


def test_a_log_removes_them_when_it_is_opened_for_appending(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with EventLog.create(path, Payment, key="card", partitions=2) as log:
        log.append(payments(10))
        log.consumers.keep("u", {0: 1})
    for name in ("schemas", "quarantine"):
        (path / name).mkdir(exist_ok=True)
    made = [path for path in in_every_folder(path) if path.parent.name != "transactions"]
    assert len(made) == 6
    with EventLog(path, Payment) as log, temporary(path / "0") as (mine, _):
        log.append(payments(10))
        assert [path for path in left(path) if path.parent.name != "transactions"] == [mine]


def test_a_parquet_sink_removes_those_of_rows_written_at_once(tmp_path: Path) -> None:
    def run() -> None:
        job = Job("at-once", semantics="at-least-once")
        stream = job.source(ListSource(payments(6), Payment), id="in").apply(Summing(), key="card", id="sums")
        stream.sink(ParquetSink[Seen](tmp_path / "out"), id="out")
        run_job(job, tmp_path / "root")

    run()
    made = abandoned(tmp_path / "out" / "epoch=0")
    with temporary(tmp_path / "out" / "epoch=0") as (mine, _):
        run()
        assert left(tmp_path / "out") == [mine]
    assert not made.exists()


# ---- the simulated disk -------------------------------------------------------------------------------------------------

FOLDER = Path("/data")


def crashed(step: int, act: Callable[[SimulatedDisk], None]) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_folder(FOLDER)
    disk.crash_at(disk.steps + step)
    with pytest.raises(DiskCrashed):
        act(disk)
    disk.crash(Survival.EVERYTHING)
    return disk


@OPERATIONS
def test_a_crash_of_the_simulated_disk_leaves_some(operation: str) -> None:
    found = []
    for step in range(1, 6 if operation == "create" else 5):
        disk = crashed(step, lambda disk: getattr(disk, operation)(FOLDER / "file", b"whole"))
        found.append(len(disk.abandoned()))
        disk.remove_abandoned(FOLDER)
        assert disk.abandoned() == []
    assert (
        found[:3] == [1, 1, 1] and found[-1] == 0
    )  # create, write, sync; then it is named, and the other name is gone


@OPERATIONS
def test_a_live_writer_of_the_simulated_disk(operation: str) -> None:
    """Another one cleans up before each of its steps."""

    class Shared(SimulatedDisk):
        def _step(self, what: str, effect: Callable[[], None], atomic: bool = False) -> None:
            if not what.startswith("unlink"):
                self.remove_abandoned(FOLDER)
            super()._step(what, effect, atomic)

    disk = Shared()
    disk.make_folder(FOLDER)
    getattr(disk, operation)(FOLDER / "file", b"whole")
    assert disk.read(FOLDER / "file") == b"whole"
    disk._writing = Deaf()
    with pytest.raises((KeyError, FileNotFoundError)):  # the control
        getattr(disk, operation)(FOLDER / "other", b"whole")


class Deaf(set[Path]):
    def __contains__(self, path: object) -> bool:
        return False
