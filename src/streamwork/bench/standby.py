"""``streamwork bench recovery --standby``: the gap in the output of a job whose driver is killed with -9.

A job (embedded log, keyed count, SQLite) is run by the command line, in processes of their own, while events are appended steadily.
The gap is the time from the last output before the kill to the first new output after it; an output is a change of the position in
the sink's ledger, which is read every few milliseconds.

    known     a standby on the machine of the driver: it finds that the process is gone
    unknown   the driver's fence names another machine, so that nothing is known about its process: the lease must pass.
              `beyond_lease` is the gap without it
    cold      no standby: an ordinary start, begun at the moment of the kill

They take turns. At the end all events must have been counted exactly once.
"""

from __future__ import annotations

import contextlib
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from streamwork.bench.recovery import TEN, Note, Place
from streamwork.bench.recovery_job import JOB, SOURCE
from streamwork.bench.spread import spread
from streamwork.components import Position
from streamwork.epoch.fences import Fences
from streamwork.run.mode import Mode
from streamwork.run.standbys import standbys
from streamwork.world import RealClock, RealDisk, RealProcesses

JOBFILE = """from pathlib import Path

from streamwork.bench.recovery_job import build

job = build(Path(__file__).parent, 100_000)
"""
LOOK_SECONDS = 0.005
APPEND_SECONDS = 0.05
SETTLED = 5
"""Number of outputs between two measurements, so that no start is in progress at a kill."""
READS = 2
"""Checkpoints that a standby reads before the kill: one that waits for long has read many."""
PATIENCE = 300.0
KINDS = ("known", "unknown", "cold")
MODES = (Mode.MICROBATCH, Mode.LIVE)


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How much is measured."""

    keys: int = 100_000
    events: int = 20  # appended every 50 ms
    repeats: int = 5
    checkpoint_every: str = "100ms"
    lease: float = 10.0  # that of a job: with a shorter one a busy machine takes a driver for dead
    kinds: tuple[str, ...] = KINDS


FULL = Sizes()
QUICK = Sizes(keys=1_000, repeats=1)


def run(
    folder: Path | None = None,
    sizes: Sizes = FULL,
    note: Note = lambda line: None,
    modes: Sequence[Mode] = MODES,
) -> dict[str, Any]:
    """Measure and return all figures; the first ones are those of the first mode. Raises AssertionError if a result is wrong.
    `note` receives progress lines.
    """
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    for mode in modes:
        with tempfile.TemporaryDirectory(prefix="bench-standby-", dir=folder) as scratch:
            found[mode.value] = _measure(Path(scratch) / "job", mode, sizes, note)
    seconds = {
        mode: {kind: {name: spread(values) for name, values in one.items()} for kind, one in kinds.items()}
        for mode, kinds in found.items()
    }
    main = seconds[modes[0].value]
    return {
        "gap_known_s": main["known"]["gap"]["median"],
        "gap_unknown_beyond_lease_s": main["unknown"]["beyond_lease"]["median"],
        "gap_cold_s": main["cold"]["gap"]["median"],
        "seconds": seconds,
        "settings": msgspec.to_builtins(sizes),
    }


def _measure(folder: Path, mode: Mode, sizes: Sizes, note: Note) -> dict[str, dict[str, list[float]]]:
    place = Place(folder, sizes.keys, sizes.keys // TEN)
    note(f"making a state of {sizes.keys:,} keys")
    place.make(TEN)
    place.slice = sizes.events
    found: dict[str, dict[str, list[float]]] = {kind: defaultdict(list) for kind in sizes.kinds}
    with contextlib.ExitStack() as stack:
        runs = stack.enter_context(_runs(folder, mode, sizes))
        stack.enter_context(_appending(place))
        watch = Watch(folder)
        holder = runs(False)
        watch.settle(holder)
        for repeat in range(sizes.repeats):
            for kind in sizes.kinds:
                standby = None if kind == "cold" else runs(True)
                read: set[int] = set()
                while standby is not None and len(read) < READS:
                    watch.next(holder)
                    read |= _read_by_standbys(folder)
                watch.settle(holder)
                if kind == "unknown":
                    _move_elsewhere(folder)
                last = watch.killed(holder)
                holder = standby or runs(False)
                gap = watch.next(holder) - last
                found[kind]["gap"].append(gap)
                if kind == "unknown":
                    found[kind]["beyond_lease"].append(gap - sizes.lease)
                note(f"{mode.value}, {kind}, {repeat + 1} of {sizes.repeats}: {gap:.2f} s")
                watch.settle(holder)
    _finish(folder, mode, sizes, place)
    return found


def _finish(folder: Path, mode: Mode, sizes: Sizes, place: Place) -> None:
    """Let a last driver process what is left, and check the row of every key."""
    command = [*_command(folder, mode, sizes), "--until-caught-up"]
    subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, check=True)
    place.check()
    assert _position(folder) == place.events, "not all events were counted"


class Watch:
    """Reads the position of the sink, and knows when it last changed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen = _position(folder)
        self._changed = time.monotonic()

    def look(self) -> bool:
        """True if there is a new output."""
        found = _position(self._folder)
        if found == self._seen:
            return False
        self._seen, self._changed = found, time.monotonic()
        return True

    def until(self, done: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
        """Look until it is done. A process that ends meanwhile, or none for minutes, is an error."""
        deadline = time.monotonic() + PATIENCE
        while True:
            assert process.poll() is None, f"a run has ended with exit code {process.returncode}"
            assert time.monotonic() < deadline, "nothing happens"
            if done():
                return
            time.sleep(LOOK_SECONDS)
            self.look()

    def settle(self, process: subprocess.Popen[bytes]) -> None:
        for _ in range(SETTLED):
            self.next(process)

    def next(self, process: subprocess.Popen[bytes]) -> float:
        """The time of the next output."""
        before = self._changed
        self.until(lambda: self._changed > before, process)
        return self._changed

    def killed(self, process: subprocess.Popen[bytes]) -> float:
        """Kill a process. The time of its last output."""
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.look()
        return self._changed


def _position(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "out.db", timeout=60)) as db:
        (text,) = db.execute("SELECT position FROM streamwork_ledger").fetchone()
    return Position.from_json(text)[f"{SOURCE}/0"]


def _read_by_standbys(folder: Path) -> set[int]:
    """The newest checkpoint that each standby has read."""
    found = standbys(RealDisk(), folder / "root" / JOB, RealClock(), RealProcesses())
    return {one.checkpoint for one in found if one.checkpoint is not None}


def _move_elsewhere(folder: Path) -> None:
    """Let the newest fence name a process of another machine."""
    fences = Fences(RealDisk(), folder / "root" / JOB, RealClock(), RealProcesses())
    path = folder / "root" / JOB / "fences" / f"{fences.highest()}.json"
    RealDisk().replace(path, path.read_bytes().replace(b'"host": "', b'"host": "elsewhere-'))


def _command(folder: Path, mode: Mode, sizes: Sizes) -> list[str]:
    options = ["--mode", mode.value, "--master", "local[2]", "--root", str(folder / "root"), "--no-restart"]
    options += ["--checkpoint-every", sizes.checkpoint_every, "--lease", f"{sizes.lease:g}s"]
    return [sys.executable, "-m", "streamwork", "run", "usage.py", *options]


@contextlib.contextmanager
def _runs(folder: Path, mode: Mode, sizes: Sizes) -> Iterator[Callable[[bool], subprocess.Popen[bytes]]]:
    """Starts runs, as standbys or not. None is left at the end."""
    begun: list[subprocess.Popen[bytes]] = []
    (folder / "usage.py").write_text(JOBFILE)

    def begin(standby: bool) -> subprocess.Popen[bytes]:
        command = [*_command(folder, mode, sizes), *(["--standby"] if standby else [])]
        begun.append(subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL))
        return begun[-1]

    try:
        yield begin
    finally:
        for process in begun:
            process.kill()
            process.wait()


@contextlib.contextmanager
def _appending(place: Place) -> Iterator[None]:
    """Append events steadily, in a thread."""
    over = threading.Event()

    def append() -> None:
        while not over.wait(APPEND_SECONDS):
            place.append(1)

    thread = threading.Thread(target=append, name="bench-append")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
