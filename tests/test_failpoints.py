"""The driver on a real Spark, killed or stopped at a chosen step, and state files damaged before a start.

Whenever nobody is at work, each sink holds exactly what a fold over the input gives up to the position in its ledger; at rest
that is all the input, and the ledger names the newest completed manifest.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crashes import CrashAt
from failpoint_job import SLICE, build
from matrix.faults import HOW, damage
from prompt import wait_for_snapshots
from sample import Payment, expected_journal, payments, run_job
from streamwork import Refused
from streamwork.epoch import Started
from streamwork.state import is_snapshot
from streamwork.world import FileRef
from streamwork.world.temporary import PREFIX

HERE = Path(__file__).parent
SOAK = bool(os.environ.get("STREAMWORK_SOAK"))
LIFE = 3 * SLICE
"""New events for each life of the driver: they make three epochs."""


# ---- what must hold -----------------------------------------------------------------------------------------------------


def add_events(folder: Path, count: int) -> None:
    path = folder / "payments.jsonl"
    have = len(path.read_bytes().splitlines()) if path.exists() else 0
    with path.open("ab") as file:
        file.writelines(msgspec.json.encode(event) + b"\n" for event in payments(have + count)[have:])


def check_sinks(folder: Path) -> dict[str, tuple[dict[str, int], str]]:
    """Both sinks are right as far as their ledgers say that they are. Returns (position, hash of the manifest) of each."""
    data = (folder / "payments.jsonl").read_bytes()
    with closing(sqlite3.connect(folder / "out.db")) as db:
        rows = db.execute("SELECT sink, position, manifest_sha256 FROM streamwork_ledger").fetchall()
        found = {sink: (json.loads(position or "{}"), sha256) for sink, position, sha256 in rows}
        wanted = {sink: fold(data[: position.get("payments/0", 0)]) for sink, (position, _) in found.items()}
        journal = db.execute("SELECT card, number, total FROM journal ORDER BY rowid").fetchall()
        latest = db.execute("SELECT card, number, total FROM latest").fetchall()
    assert journal == wanted["journal"], "the journal is not what its ledger says"
    assert sorted(latest) == sorted({row[0]: row for row in wanted["latest"]}.values()), "latest is wrong"
    return found


def fold(data: bytes) -> list[tuple[str, int, int]]:
    return expected_journal([msgspec.json.decode(line, type=Payment) for line in data.splitlines()])


def check(folder: Path, job: str = "guarded") -> None:
    """At rest: everything is there, and the ledgers name the newest completed manifest."""
    newest = max(path for path in (folder / "root" / job / "checkpoints").glob("*.json") if path.name.count(".") == 1)
    data = newest.read_bytes()
    position = json.loads(data)["positions"]
    assert position == {"payments/0": (folder / "payments.jsonl").stat().st_size}, "not all the input was read"
    ledgers = check_sinks(folder)
    assert ledgers == dict.fromkeys(("journal", "latest"), (position, hashlib.sha256(data).hexdigest())), "LEDGER"


def substance(folder: Path) -> dict[str, str]:
    """Every file below a folder and its hash; without signs of life, what Spark prints, and files that are being written."""
    files = [
        path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith(("life-", PREFIX))
    ]
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
        if path.suffix not in (".alive", ".log")
    }


# ---- lives ----------------------------------------------------------------------------------------------------------------


class Life:
    """One process that drives the job, as the command line does."""

    numbers = itertools.count()

    def __init__(self, folder: Path, failpoint: str, *options: str, mode: str = "microbatch", job: str = "guarded"):
        self._output = folder / f"life-{next(self.numbers)}.txt"
        command = ["run", f"{HERE / 'failpoint_job.py'}:{job}", "--mode", mode, "--master", "local[2]", "--json"]
        command += ["--root", str(folder / "root"), "--until-caught-up", *options]
        with self._output.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, str(HERE / "failpoint_job.py"), failpoint, *command],
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(HERE)},
            )

    @property
    def text(self) -> str:
        return self._output.read_text()

    def ends_with(self, code: int) -> Life:
        assert self.process.wait(120) == code, self.text
        return self

    def stops(self) -> Life:
        """Wait until it has been stopped."""
        until = time.monotonic() + 120
        while not os.WIFSTOPPED(os.waitpid(self.process.pid, os.WUNTRACED | os.WNOHANG)[1]):
            assert time.monotonic() < until and self.process.poll() is None, self.text
            time.sleep(0.02)
        return self


CHAIN = (
    # where a life of the driver ends, and whether it leaves a prepared epoch, which the next one rolls forward
    ("epochs/plan/2", True),  # it is planned while the one before it is prepared and not committed yet
    ("epochs/compute/2", False),
    ("epochs/report/2", False),
    ("epochs/prepare/2", True),
    ("recovery/commit/1", True),  # of the epoch that is rolled forward: one sink has it
    ("epochs/commit/3", True),  # of the second epoch, the first sink
    ("epochs/commit/4", True),
    ("epochs/complete/2", False),
    ("epochs/prune/2", False),
    ("recovery/register/1", False),
    ("recovery/read/1", False),
    ("recovery/ready/1", False),
)


def survive(folder: Path, failpoints: tuple[tuple[str, bool], ...], mode: str, job: str = "guarded") -> None:
    """Each life is killed at its failpoint, and the next one, with more input, gets over it, as far as its own."""
    prepared = False
    for failpoint, leaves in failpoints:
        add_events(folder, LIFE)
        life = Life(folder, f"{failpoint}/SIGKILL", mode=mode, job=job).ends_with(-signal.SIGKILL)
        assert f"SIGKILL at {failpoint}" in life.text
        if not failpoint.startswith("recovery"):
            assert ("rolled forward" in life.text) is prepared
        prepared = leaves
        check_sinks(folder)
    life = Life(folder, "none", mode=mode, job=job).ends_with(0)
    assert ("rolled forward" in life.text) is prepared
    check(folder, job)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_driver_that_is_killed_at_each_step_in_turn_leaves_what_the_next_one_needs(tmp_path: Path) -> None:
    survive(tmp_path, CHAIN, "microbatch")


@pytest.mark.slow
@pytest.mark.parametrize("failpoint", ["epochs/commit/1", "epochs/prune/1"])
def test_without_the_ledger_the_same_check_fails(tmp_path: Path, failpoint: str) -> None:
    """On the local host, which is quicker; the sink is the same."""
    for job in ("guarded", "unguarded"):
        (tmp_path / job).mkdir()
    points = ((failpoint, "commit" in failpoint),)
    survive(tmp_path / "guarded", points, "local")
    with pytest.raises(AssertionError, match="not what its ledger says"):
        survive(tmp_path / "unguarded", points, "local", "unguarded")


# ---- a driver that is stopped, and wakes up when another one has its job ----------------------------------------------------


@contextlib.contextmanager
def lives(folder: Path, mode: str) -> Iterator[Any]:
    """Starts lives; whatever becomes of the test, none is left."""
    begun: list[Life] = []

    def begin(failpoint: str, *options: str) -> Life:
        begun.append(Life(folder, failpoint, *options, mode=mode))
        return begun[-1]

    try:
        yield begin
    finally:
        for life in begun:
            life.process.kill()
            life.process.wait()


@pytest.mark.slow(mode="microbatch")
@pytest.mark.parametrize("mode", ["local", pytest.param("microbatch", marks=pytest.mark.spark)])
def test_a_driver_that_was_stopped_and_wakes_up_changes_nothing(tmp_path: Path, mode: str) -> None:
    add_events(tmp_path, 2 * LIFE)
    with lives(tmp_path, mode) as begin:
        first = begin("epochs/prepare/2/SIGSTOP", "--lease", "1s").stops()
        began = time.monotonic()
        second = begin("epochs/commit/3/SIGSTOP", "--lease", "1s").stops()
        assert time.monotonic() - began > 1, "it did not watch the first one for its lease"
        assert "holds this job; watching for 1 s whether it is alive" in second.text
        check_sinks(tmp_path)
        third = begin("none", "--take-over").ends_with(0)
        assert "watching" not in third.text
        check(tmp_path)
        before = substance(tmp_path)
        for life in (first, second):
            life.process.send_signal(signal.SIGCONT)
            life.ends_with(Refused.exit_code)
            assert '"SW-DRIVER-FENCED"' in life.text or '"SW-SINK-FENCED"' in life.text
            now = substance(tmp_path)
            assert {path: now.get(path) for path in before} == before
            # What its tasks were at when it was stopped goes on without it, on Spark: into files that nobody names. Its vital signs
            # are files of its own fence.
            mine = re.compile(r"/((outputs|state)/.*/\d{12}-|vitals/)[12]-")
            assert all(mine.search(path) for path in now.keys() - before.keys())
    check(tmp_path)


# ---- state files that go bad before a start ---------------------------------------------------------------------------------

CHECKPOINTS = 45  # enough for two snapshots, deltas between them, and some after them


class Watching(CrashAt):
    """Remembers how a run started."""

    started: Started

    def __init__(self) -> None:
        super().__init__(10**9)

    def on_started(self, *given: Any) -> None:
        self.started = given[1]


@pytest.fixture(scope="module")
def resting(tmp_path_factory: pytest.TempPathFactory, shared_spark: Any) -> Path:
    """A job after many checkpoints on Spark: to be copied, never touched."""
    shared_spark()
    folder = tmp_path_factory.mktemp("resting")
    add_events(folder, CHECKPOINTS * SLICE)
    with pytest.MonkeyPatch.context() as patch:
        wait_for_snapshots(patch)
        run_job(build(folder=folder), folder / "root", "microbatch")
    check(folder)
    return folder


def chains_of(folder: Path) -> dict[int, tuple[FileRef, ...]]:
    """Checkpoint -> the files of its state; the newest first."""
    paths = (path for path in (folder / "root" / "guarded" / "checkpoints").iterdir() if path.name.count(".") == 1)
    stored = {int(path.stem): json.loads(path.read_bytes())["components"] for path in sorted(paths, reverse=True)}
    return {epoch: msgspec.convert(found["sums"]["0"], tuple[FileRef, ...]) for epoch, found in stored.items()}


def can_do_without(chain: tuple[FileRef, ...], lost: list[FileRef]) -> bool:
    """Is there a whole snapshot with all deltas after it, or are there all deltas from the first one on?"""
    begins = [place for place, ref in enumerate(chain) if is_snapshot(ref)]
    if not is_snapshot(chain[0]):
        begins.append(-1)
    ways = [
        [ref for place, ref in enumerate(chain) if place == b or (place > b and not is_snapshot(ref))] for b in begins
    ]
    return any(not any(ref in lost for ref in way) for way in ways)


def goes_on_from(resting: Path, lost: list[FileRef]) -> int | None:
    """The newest checkpoint that can do without the files that are lost."""
    return next((epoch for epoch, chain in chains_of(resting).items() if can_do_without(chain, lost)), None)


def restart(resting: Path, folder: Path, lost: list[FileRef], how: str) -> Started:
    """Damage these files in a copy, and go on there with more input. Raises what the start raises, having changed nothing."""
    shutil.copytree(resting, folder)
    for ref in lost:
        damage(folder / "root" / "guarded" / ref.path, how)
    add_events(folder, SLICE // 2)
    watching, before = Watching(), substance(folder)
    try:
        run_job(build(folder=folder), folder / "root", "microbatch", watcher=watching)
    except Refused:
        assert substance(folder) == before, "it refused, and changed something"
        raise
    check(folder)
    shutil.rmtree(folder)
    return watching.started


@pytest.mark.slow
@pytest.mark.spark
def test_any_one_file_of_a_chain_may_go_bad(tmp_path: Path, resting: Path) -> None:
    chain = chains_of(resting)[CHECKPOINTS]
    newest = max(place for place, ref in enumerate(chain) if is_snapshot(ref))
    met = set()
    for place, ref in enumerate(chain):
        telling = is_snapshot(ref) or place in (newest // 2, newest + 1)
        for how in HOW if telling or SOAK else HOW[place % 3 :][:1]:
            started = restart(resting, tmp_path / f"{place}-{how}", [ref], how)
            # What nothing can stand in for costs the checkpoints that name it; the sinks are ahead then, and stay as they are.
            assert started.resumed_at == goes_on_from(resting, [ref]), ref.path
            assert (started.resumed_at < CHECKPOINTS) is (place > newest), ref.path
            told = "sink journal is ahead of it" if place > newest else "can do without it"
            assert told in "\n".join(started.story), ref.path
            met.add((is_snapshot(ref), place > newest, how))
    assert len(met) == len(HOW) * 3, "snapshots, deltas before the newest and after it, in all ways"


Lost = Callable[[tuple[FileRef, ...], int], list[FileRef]]
LOST: dict[str, tuple[Lost, str]] = {
    # of a chain and the place of its newest snapshot: what is lost, and what becomes of the job
    "all snapshots and a delta before the newest": (
        lambda chain, at: [*(ref for ref in chain if is_snapshot(ref)), chain[at - 3]],
        "refused",
    ),
    "the newest snapshot and a delta before it": (lambda chain, at: [chain[at - 3], chain[at]], "refused"),
    "everything before the newest snapshot": (lambda chain, at: list(chain[:at]), "goes on"),
    "the newest snapshot and a delta after it": (lambda chain, at: [chain[at], chain[at + 1]], "falls back"),
    "everything": (lambda chain, at: list(chain), "refused"),
}


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(("lost", "outcome"), LOST.values(), ids=LOST)
def test_only_the_loss_of_all_ways_to_read_a_state_is_refused(
    tmp_path: Path, resting: Path, lost: Lost, outcome: str
) -> None:
    chain = chains_of(resting)[CHECKPOINTS]
    damaged = lost(chain, max(place for place, ref in enumerate(chain) if is_snapshot(ref)))
    goes_on = goes_on_from(resting, damaged)
    assert outcome == ("refused" if goes_on is None else "goes on" if goes_on == CHECKPOINTS else "falls back")
    for how in HOW if SOAK else ["flipped"]:
        if goes_on is not None:
            assert restart(resting, tmp_path / how, damaged, how).resumed_at == goes_on
        else:
            with pytest.raises(Refused, match="SW-CHECKPOINT-NONE"):
                restart(resting, tmp_path / how, damaged, how)
