"""``streamwork bench recovery``: the time from kill -9 to the first completed new epoch, by parts.

A job (embedded log, keyed count, SQLite) runs in a process of its own, and is killed with -9 after it has prepared an epoch and
before a sink has committed it: the most expensive moment, because that epoch is rolled forward. The next process reports when
each of its parts was done. Its first new epoch is accepted only if the sink holds the right row for every key, as of the position
in its ledger, and the ledger names the manifest of that epoch.

    process      from the kill until the interpreter of the next process is up
    imports      of everything that `streamwork run` imports
    spark        Spark's own start, with the import of pyspark; nothing on the local host
    recovery     from there until it is ready: look, wait, claim, register, read, finish (commit, complete), set aside, prune
    first epoch  plan, compute (state restored, slice computed), prepare, commit, complete

    history      the same keys and the same shape of the file chain, after few and after many checkpoints and starts; on the
                 local host, which shares all but Spark with microbatch
    plain        Spark without Streamwork, interleaved: its start, and its first job, which hands one row through a Python worker.
                 On Spark, compute has that in it
    restore      a state of many keys: recovery, plan and compute, which is all that the size of a state bears upon, less plain
                 Spark's first job; then the restoring alone: files compared with their hashes, Parquet, rows put in place;
                 and how long it takes until all of them have become records, which a job does as keys come

All processes are on one machine, so they share a monotonic clock.
"""

from __future__ import annotations

import contextlib
import gc
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from streamwork.bench.recovery_job import COUNTS, JOB, SOURCE, Life, Use, build, options_for
from streamwork.bench.spread import spread
from streamwork.components import Position
from streamwork.engine.instance import row_format
from streamwork.epoch import Manifest, Store
from streamwork.log import EventLog
from streamwork.run.mode import Mode
from streamwork.run.runner import run as run_job
from streamwork.state import KeyedState, StateFiles, is_snapshot, ways
from streamwork.state.files import STATE_FILE
from streamwork.world import RealDisk

CHILD = (
    "import time; up = time.monotonic(); import sys; import streamwork.cli.main; "
    "from streamwork.bench import recovery_job; recovery_job.live(up, *sys.argv[1:])"
)
"""A process of the job. It imports the command line, as `streamwork run` does."""
Note = Callable[[str], None]
Lives = dict[str, list[Life]]


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How much is measured. Both histories end equally far behind a snapshot, so that their file chains are comparable."""

    keys: int = 20_000
    slice: int = 2_000  # events of one epoch
    short: int = 5  # lives of ten checkpoints each
    long: int = 61
    repeats: int = 7
    many_keys: int = 1_000_000
    many_slices: int = 20  # epochs in which each of many keys comes once
    restores: int = 5
    spark_repeats: int = 5  # 0: without Spark at all


FULL = Sizes()
TEN = 10


def run(folder: Path | None = None, sizes: Sizes = FULL, note: Note = lambda line: None) -> dict[str, Any]:
    """Measure and return all figures. Raises AssertionError if a result is wrong. `note` receives progress lines."""
    with tempfile.TemporaryDirectory(prefix="bench-recovery-", dir=folder) as scratch, contextlib.ExitStack() as stack:
        places = {name: Place(Path(scratch) / name, sizes.keys, sizes.slice) for name in ("short", "long")}
        places["many"] = Place(Path(scratch) / "many", sizes.many_keys, sizes.many_keys // sizes.many_slices)
        for place in places.values():
            stack.callback(place.kill)
        for name, lives in (("short", sizes.short), ("long", sizes.long)):
            note(f"making a history of {lives * TEN} checkpoints, {sizes.keys:,} keys")
            for _ in range(lives):
                places[name].make(TEN)
        note(f"making a state of {sizes.many_keys:,} keys")
        places["many"].make(sizes.many_slices)
        more = TEN // 2
        while not places["many"].has_snapshot():  # it is made in the background: a life must last as long as that takes
            places["many"].make(more)
            more *= 2
        places["many"].slice = sizes.slice
        for place in places.values():
            place.life(Mode.LOCAL)  # leaves a process to kill
        local = _lives(places, Mode.LOCAL, sizes.repeats, note)
        long = {"long": places.pop("long")}
        spark = _lives({"plain": Plain(Path(scratch)), **places}, Mode.MICROBATCH, sizes.spark_repeats, note)
        spark |= _lives(long, Mode.MICROBATCH, min(2, sizes.spark_repeats), note)
        note("restoring the state alone")
        restored = [places["many"].restore() for _ in range(sizes.restores)]
    return _numbers(sizes, local, spark, restored)


def _lives(places: Mapping[str, Place | Plain], mode: Mode, repeats: int, note: Note) -> Lives:
    """Interleaved, so that noise affects all, and in alternating order, so that none always follows the same one."""
    found: Lives = {name: [] for name in places if repeats}
    for repeat in range(repeats):
        for name, place in list(places.items())[:: -1 if repeat % 2 else 1]:
            found[name].append(life := place.life(mode))
            note(f"{mode.value}, {name}, {repeat + 1} of {repeats}: {life['total']:.2f} s")
    return found


# ---- a job and its lives ------------------------------------------------------------------------------------------------


class Place:
    """A folder with a log, a job's root and its database. Event number i has key i modulo `keys`."""

    def __init__(self, folder: Path, keys: int, size: int) -> None:
        self.folder = folder
        self.keys = keys
        self.slice = size
        self.events = 0
        self._process: subprocess.Popen[bytes] | None = None  # waits to be killed
        folder.mkdir()
        EventLog.create(folder / "log", Use).close()

    def make(self, checkpoints: int) -> None:
        """One run on the local host that ends without a kill."""
        before = self.completed().epoch if self.events else 0
        self.append(checkpoints)
        outcome = run_job(build(self.folder, self.slice), options_for(self.folder, Mode.LOCAL))
        assert outcome.checkpoint == before + checkpoints, outcome
        self.check()

    def has_snapshot(self) -> bool:
        return any(is_snapshot(ref) for ref in self.completed().components[COUNTS]["0"])

    def life(self, mode: Mode) -> Life:
        """Kill the job, restart it, wait for its first new epoch and check it; then let it prepare another one.

        Returns the seconds of each part. Afterwards the job can be killed again.
        """
        self.append(2)
        before = self.completed()
        command = [sys.executable, "-c", CHILD, str(self.folder), mode.value, str(self.slice)]
        killed = time.monotonic()
        self.kill()
        process = self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin is not None and process.stdout is not None
        said = msgspec.json.decode(process.stdout.readline() or b"{}", type=Life)
        assert said, "the job ended before it had a new epoch"
        newest = self.check()
        assert newest.epoch == said.pop("epoch") > before.epoch and newest.fence > before.fence, "no new epoch"
        process.stdin.write(b"go on\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"prepared\n", "the job did not go on"
        up, done = said.pop("up"), said.pop("done")
        total = done - killed
        return {
            "process": up - killed,
            **said,
            "recovery_and_first_epoch": said["recovery"] + said["first_epoch"],
            "recovery_plan_compute": said["recovery"] + said["plan"] + said["compute"],
            "total": total,
            "total_without_spark": total - said["spark"],
        }

    def kill(self) -> None:
        if self._process is not None:
            with self._process as process:  # closes its pipes, and waits for it
                process.send_signal(signal.SIGKILL)
            self._process = None

    def restore(self) -> Life:
        """Seconds that a worker takes to load the state, by parts. The records are checked."""
        manifest = self.completed()
        job = build(self.folder, self.slice)
        graph = job.graph()
        rows = row_format(graph, graph[COUNTS], job.settings.groups)
        disk, folder = RealDisk(), self.folder / "root" / JOB
        files, chain = StateFiles(disk, folder), manifest.components[COUNTS]["0"]
        way, state = next(ways(chain)), rows.new_state()
        assert isinstance(state, KeyedState)
        times = []
        for work in (
            lambda: [ref.read(disk, folder, STATE_FILE) for ref in way],
            lambda: [files.read(ref) for ref in way],  # checks, too
            lambda: files.load(rows, chain, state),  # reads, too
            lambda: state.warm(map(_card, range(self.keys))),
        ):
            gc.collect()
            began = time.perf_counter()
            work()
            times.append(time.perf_counter() - began)
        seen = {key: (count.seen, count.total) for key, count in state.records.items()}  # type: ignore[attr-defined]
        assert seen == self._wanted(manifest.positions[f"{SOURCE}/0"]), "the records are wrong"
        check, read, load, warm = times
        return {
            "check": check,
            "parquet": read - check,
            "place": load - read,
            "load": load,
            "records_of_all_keys": warm,
            "bytes": float(sum(ref.bytes for ref in way)),
            "rows": float(sum(ref.rows for ref in way)),
        }

    def append(self, checkpoints: int) -> None:
        first, self.events = self.events, self.events + checkpoints * self.slice
        keys = [number % self.keys for number in range(first, self.events)]
        batch = pa.record_batch({"card": list(map(_card, keys)), "amount": list(map(_mixed, keys))})
        with EventLog(self.folder / "log", Use) as log:
            log.append(batch)

    def completed(self) -> Manifest:
        store = Store(RealDisk(), self.folder / "root", JOB)
        return store.manifest(max(store.completed()))

    def check(self) -> Manifest:
        """Check the row of every key against the ledger's position, and that the ledger names the newest completed manifest."""
        manifest = self.completed()
        with closing(sqlite3.connect(self.folder / "out.db")) as db:
            position, named = db.execute("SELECT position, manifest_sha256 FROM streamwork_ledger").fetchone()
            rows = {card: (seen, total) for card, seen, total in db.execute("SELECT card, seen, total FROM usage")}
        position = Position.from_json(position)
        assert (position, named) == (manifest.positions, manifest.sha256), (
            "the ledger does not name the newest manifest"
        )
        assert rows == self._wanted(position[f"{SOURCE}/0"]), "the rows are wrong"
        return manifest

    def _wanted(self, events: int) -> dict[str, tuple[int, int]]:
        rounds, rest = divmod(events, self.keys)
        counts = ((key, rounds + (key < rest)) for key in range(min(events, self.keys)))
        return {_card(key): (seen, seen * _mixed(key)) for key, seen in counts}


class Plain:
    """Spark without Streamwork."""

    def __init__(self, folder: Path) -> None:
        self._command = [sys.executable, "-c", CHILD, str(folder)]

    def life(self, mode: Mode) -> Life:
        began = time.monotonic()
        said = subprocess.run(self._command, stdout=subprocess.PIPE, check=True).stdout
        found = msgspec.json.decode(said, type=Life)
        up, done = found.pop("up"), found.pop("done")
        return {"process": up - began, **found, "total": done - began}


def _mixed(key: int) -> int:
    """A distinct number below 2**32 for each key, so that files compress no better than those of real keys."""
    return key * 2_654_435_761 % 2**32


def _card(key: int) -> str:
    return f"{_mixed(key):08x}"


# ---- what came of it ----------------------------------------------------------------------------------------------------


def _numbers(sizes: Sizes, local: Lives, spark: Lives, restored: list[Life]) -> dict[str, Any]:
    found = {"local": _spreads(local)} | ({"microbatch": _spreads(spark)} if spark else {})
    main = found["microbatch" if spark else "local"]
    driven = {
        host: [one[name]["recovery_and_first_epoch"]["median"] for name in ("long", "short")]
        for host, one in found.items()
    }
    ratios = {host: round(long / short, 3) for host, (long, short) in driven.items()}
    first_job = main["plain"]["first_job"]["median"] if spark else 0.0
    restored_with = main["many"]["recovery_plan_compute"]["median"]
    return {
        "kill_to_new_epoch_s": main["short"]["total"]["median"],
        "kill_to_new_epoch_without_spark_s": main["short"]["total_without_spark"]["median"],
        "ratio_long_vs_short": ratios["local"],
        f"restore_{sizes.many_keys // 1_000_000}m_keys_s": round(restored_with - first_job, 4),
        f"restore_{sizes.many_keys // 1_000_000}m_keys_with_first_job_s": restored_with,
        "plain_spark_first_job_s": first_job,
        "ratios_long_vs_short": ratios,
        "seconds": found,
        "restore_alone": {part: spread([one[part] for one in restored], 4) for part in restored[0]},
        "settings": {
            **msgspec.to_builtins(sizes),
            "checkpoints": {"short": sizes.short * TEN, "long": sizes.long * TEN},
        },
    }


def _spreads(lives: Lives) -> dict[str, dict[str, dict[str, Any]]]:
    return {name: {part: spread([life[part] for life in one], 4) for part in one[0]} for name, one in lives.items()}
