"""The fault matrix: a small world in which a job lives, breaks and lives again; what breaks it, as data; and what must hold.

Everything that happens in the world passes by under a line of text ("told commit 5", "after create checkpoints/...plan.json"),
and a `Fault` is a pattern over such lines: where it fits for the n-th time, the life ends. Print what can be broken with

    PYTHONPATH=tests python -c "from epoch.matrix import table; print(table())"
"""

from __future__ import annotations

import errno
import hashlib
import json
import random
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crashes import Crash
from sample import Payment, Seen, Summing, Sums, payments
from streamwork import EventLog, Job, KeyedOperator, ListSource, LogSink, SqliteSink, StreamworkError
from streamwork.components import Slice
from streamwork.epoch import Driver, Manifest, Started, Step, Store
from streamwork.hosts.local import LocalHost
from streamwork.log import LogReader, lock
from streamwork.state import compaction
from streamwork.testing.clock import START, VirtualClock
from streamwork.testing.processes import SimulatedProcesses
from streamwork.world import RealDisk
from streamwork.world.disk import RealDiskFile

MEMORY = Path("/dev/shm")
SLICE = 6
"""Events of an epoch."""
RETAIN = 2
CHAIN = 3
"""A snapshot every so many epochs, however many rows they have, so that there are some."""


def shorten_chains(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(compaction, "is_due", lambda chain, epoch: epoch % CHAIN == 0)


EVENTS = payments(8 * SLICE, cards=5)
MORE = payments(10 * SLICE, cards=5)
FACTOR, DRAWS, PRIME = 1_000_003, 1_000, 2**61 - 1
SINKS = {
    "append": ("journal",),
    "upsert": ("latest",),
    "log": ("log",),
    "append + log": ("journal", "log"),
    "log + upsert": ("log", "latest"),
}
"""The sinks of the jobs that are tried, in the order of their commits: SQLite without and with a key, and the log."""


# ---- what breaks --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """Ends a life where something fits `at` for the n-th time. `dead`: like kill -9, nothing reaches the disk any more."""

    at: str
    nth: int = 1
    error: type[BaseException] = Crash
    dead: bool = False

    def strike(self) -> BaseException:
        return OSError(errno.ENOSPC, "no space left") if self.error is OSError else self.error(self.at)


class WatchedDisk(RealDisk):
    """The machine's disk, without the syncs (what they are for is tested on a simulated one); each change passes by."""

    def __init__(self, world: World) -> None:
        self._world = world

    def create(self, path: Path, data: bytes) -> None:
        self._watched("create", path, lambda: super(WatchedDisk, self).create(path, data))

    def replace(self, path: Path, data: bytes) -> None:
        self._watched("replace", path, lambda: super(WatchedDisk, self).replace(path, data))

    def discard(self, path: Path) -> None:
        if path.exists():
            self._watched("discard", path, lambda: super(WatchedDisk, self).discard(path))

    def remove(self, path: Path) -> None:
        self._watched("remove", path, lambda: super(WatchedDisk, self).remove(path))

    def move(self, path: Path, target: Path) -> None:
        self._watched("move", path, lambda: super(WatchedDisk, self).move(path, target))

    def open_append(self, path: Path) -> RealDiskFile:
        return WatchedFile(self._world, path)

    def _watched(self, action: str, path: Path, act: Callable[[], None]) -> None:
        name = self._world.name(path)
        self._world.passes(f"before {action} {name}")
        act()
        self._world.passes(f"after {action} {name}")

    @staticmethod
    def _sync_folder(folder: Path) -> None: ...


class WatchedFile(RealDiskFile):
    def __init__(self, world: World, path: Path) -> None:
        super().__init__(path)
        self._world, self._named = world, world.name(path)

    def write(self, data: Any) -> int:
        self._world.passes(f"before write {self._named}")
        return super().write(data)

    def sync(self) -> None:
        self._world.passes(f"before sync {self._named}")


class WatchedTable(SqliteSink[Any]):
    def __init__(self, world: World, table: str, key: str | None = None) -> None:
        super().__init__(world.database, table, key)
        self._world = world

    def _write(self, db: sqlite3.Connection, staged: Iterator[pa.RecordBatch]) -> None:
        super()._write(db, staged)
        self._world.passes(f"rows written to {self.table}")


class WatchedLog(LogSink[Any]):
    def __init__(self, world: World) -> None:
        super().__init__(world.log, key="card", partitions=2)
        self._world = world

    def open(self, event: type[Any]) -> None:
        world, made = self._world, {"key": self._key, "partitions": self._partitions, "exist_ok": True}
        self._log = EventLog.create(self.path, event, **made, disk=world.disk, clock=world.clock)
        sync = self._log._sync_data

        def synced() -> None:
            sync()
            world.passes("rows written to log")

        self._log._sync_data = synced  # type: ignore[method-assign]


class WatchedSource(ListSource[Payment]):
    world: World

    def read(self, partition: str, start: int, end: int) -> Iterator[Slice]:
        half = (start + end) // 2
        yield from super().read(partition, start, half)
        self.world.passes(f"half read {start}")
        yield from super().read(partition, half, end)


class Watched(Summing):
    """Sums per card, as the batch program below does."""

    def __init__(self, world: World) -> None:
        self._world = world

    def apply(self, event: Payment, state: Sums, collector: Any) -> None:
        self._world.passes(f"apply {event.card}")
        super().apply(event, state, collector)


class Drawing(Watched):
    """Each sum follows from the one before and a random number: nobody can compute this again, but anybody can see a break."""

    deterministic = False

    def apply(self, event: Payment, state: Sums, collector: Any) -> None:
        state.number += 1
        state.total = (state.total * FACTOR + random.SystemRandom().randrange(DRAWS)) % PRIME
        self._world.passes(f"apply {event.card}")
        collector.emit(Seen(event.card, state.number, state.total))


class Ringing(KeyedOperator[Payment, Sums, Seen]):
    """Sums, and sets a timer for each event: one second after the other, by the machine's clock."""

    def apply(self, event: Payment, state: Sums, collector: Any) -> None:
        state.number += 1
        state.total += event.amount
        collector.emit(Seen(event.card, state.number, state.total))
        collector.set_timer(datetime.fromtimestamp(START + state.number, UTC), "processing")

    def on_timer(self, key: Any, at: datetime, state: Sums, collector: Any) -> None:
        collector.emit(Seen(f"bell {key}", round(at.timestamp() - START), 0))


OPERATORS: dict[str, Callable[[World], KeyedOperator[Any, Any, Any]]] = {
    "sums": Watched,
    "draws": Drawing,
    "timers": lambda world: Ringing(),
}


# ---- the world ----------------------------------------------------------------------------------------------------


@dataclass
class Life:
    """How one driver fared."""

    started: Started | None = None
    error: BaseException | None = None
    completed: list[int] = field(default_factory=list)
    dead_letters: int = 0

    @property
    def code(self) -> str:
        return getattr(self.error, "code", "") or type(self.error).__name__

    def survived(self) -> Life:
        if self.error is not None:
            raise self.error
        return self


class World:
    """A folder, sinks, a clock: what is there before, between and after the lives of a job."""

    def __init__(self, folder: Path, sinks: Sequence[str] = ("journal",), operator: str = "sums") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.root, self.database, self.log = folder / "root", folder / "out.db", folder / "log"
        self.home = self.root / "matrix"
        self.disk = WatchedDisk(self)
        self.clock = VirtualClock()
        self.processes = SimulatedProcesses()
        self.sinks = tuple(sinks)
        self.operator = operator
        self.on_error = "fail"
        self.refused = "fail"  # what becomes of rows that a sink refuses for good
        self.slice = SLICE
        self.manifests: dict[str, dict[str, Any]] = {}  # every one that was ever prepared, by its hash
        self.uid = ""
        self.lost: set[str] = set()  # files that a test has removed
        self.trace: list[str] = []
        self.on_line: Callable[[str], None] | None = None  # is told of everything that passes
        self._fault: Fault | None = None
        self._met = 0
        self._dead = False
        self._tokens = iter(range(10**9))

    def fork(self, folder: Path) -> World:
        """The same world once more, to try something in."""
        shutil.copytree(self.folder, folder)
        other = World(folder, self.sinks, self.operator)
        other.uid, other.manifests, other.refused, other._tokens = (
            self.uid,
            dict(self.manifests),
            self.refused,
            iter(range(10**6, 10**9)),
        )
        other.clock, other.processes.life = VirtualClock(self.clock.now()), self.processes.life
        return other

    def __deepcopy__(self, memo: Any) -> World:
        return self

    def name(self, path: Path) -> str:
        return path.relative_to(self.home if path.is_relative_to(self.home) else self.folder).as_posix()

    def passes(self, line: str) -> None:
        if self._dead:
            raise Crash("the machine is down")
        self.trace.append(line)
        if self.on_line is not None:
            self.on_line(line)
        fault = self._fault
        if fault is not None and fnmatchcase(line, fault.at):
            self._met += 1
            full = fault.error is OSError and self._met > fault.nth  # a full disk stays full
            if self._met == fault.nth or full:
                self._dead = fault.dead
                raise fault.strike()

    def on_step(self, step: Step, epoch: int, manifest: Manifest | None) -> None:
        if step in (Step.PREPARE, Step.READY):  # while it is sure to be there
            for path in self.home.glob(f"checkpoints/{epoch:012d}*.json"):
                if path.name.split(".", 1)[1] != "plan.json":
                    self._remember(path)
        if step is Step.COMPLETE:
            self._life.completed.append(epoch)
        self.passes(f"told {step.value} {epoch}")

    def _remember(self, path: Path) -> None:
        data = path.read_bytes()
        with suppress(ValueError):
            self.manifests[hashlib.sha256(data).hexdigest()] = json.loads(data)

    def job(self, events: Sequence[Payment]) -> Job:
        job = Job("matrix", checkpoint_every=0, retain=RETAIN)
        source = WatchedSource(events, Payment, max_events=self.slice)
        source.world = self
        operator = OPERATORS[self.operator](self)
        seen = job.source(source, id="payments").apply(
            operator, key="card", id="sums", parallelism=2, on_error=self.on_error
        )
        for name in self.sinks:
            seen.sink(self._sink(name), id=name, on_error=self.refused)
        return job

    def _sink(self, name: str) -> Any:
        if name == "log":
            return WatchedLog(self)
        return WatchedTable(self, name, "card" if name == "latest" else None)

    def live(
        self,
        events: Sequence[Payment],
        fault: Fault | None = None,
        accept_divergence: bool = False,
        must: bool = True,
    ) -> Life:
        """One driver, until it has caught up with the input or breaks. Then it is closed, as the runner does; or is just dead."""
        self._fault, self._met, self._dead, self._life = fault, 0, False, Life()
        job = self.job(events)
        host = LocalHost(self.disk, new_attempt=self._token)
        driver = Driver(
            job.graph(),
            job.settings,
            Store(self.disk, self.root, job.name),
            host,
            self.clock,
            self._token,
            listener=self,
            processes=self.processes,
            accept_divergence=accept_divergence,
        )
        try:
            self._life.started = driver.start()
            self.uid = driver.at.uid
            while driver.run_epoch() is not None:
                self.clock.sleep(0.1)
        except (Crash, StreamworkError, OSError) as error:
            self._life.error = error
        self._life.dead_letters = driver.dead_letters
        if fault is not None and must:
            assert self._met >= fault.nth, f"{fault} was never met"
        if fault is not None and fault.dead:
            self._bury(driver)
        else:
            with suppress(Exception, Crash):
                driver.close()
            host.close()
        self._fault, self._dead = None, False
        self.processes.restart()
        return self._life

    def _bury(self, driver: Driver) -> None:
        """Nobody closes anything; the system takes back what the process had open."""
        for sink in driver._sinks._sinks.values():
            if isinstance(sink, SqliteSink):
                sink.close()
        lock._forget_in_child()

    def _token(self) -> str:
        return f"{next(self._tokens):08x}"

    # ---- looking, and breaking ------------------------------------------------------------------------------------

    @property
    def checkpoints(self) -> list[Path]:
        """The completed manifests, oldest first."""
        found = [path for path in self.home.glob("checkpoints/*.json") if path.name.count(".") == 1]
        return sorted(found, key=lambda path: (json.loads(path.read_bytes())["fence"], path.name))

    def newest(self) -> tuple[dict[str, Any], str]:
        data = self.checkpoints[-1].read_bytes()
        return json.loads(data), hashlib.sha256(data).hexdigest()

    def copies(self, epoch: int) -> dict[str, Path]:
        stem = self.home / "checkpoints" / f"{epoch:012d}"
        return {"completed": stem.with_suffix(".json"), "prepared": stem.with_suffix(".prepared.json")}

    def state_files(self) -> list[Path]:
        return sorted(self.home.glob("state/*/*/*.parquet"))

    def keep_copy(self, name: str) -> Callable[[], None]:
        """Copy the target of a sink; what is returned brings the copy back."""
        target = self.log if name == "log" else self.database
        kept = self.folder / f"kept-{self._token()}"
        shutil.copytree(target, kept) if target.is_dir() else shutil.copy(target, kept)

        def bring_back() -> None:
            shutil.rmtree(target) if target.is_dir() else target.unlink()
            shutil.copytree(kept, target) if kept.is_dir() else shutil.copy(kept, target)

        return bring_back

    def rows(self, name: str) -> list[tuple[str, int, int]]:
        if name == "log":
            with LogReader(self.log, Seen) as reader:
                return [(one.event.card, one.event.number, one.event.total) for one in reader.last(10**6)]
        with closing(sqlite3.connect(self.database)) as db:
            return db.execute(f"SELECT card, number, total FROM {name} ORDER BY rowid").fetchall()

    def ledger(self, name: str) -> tuple[dict[str, int], str]:
        """(position, hash of the manifest) that a sink remembers."""
        if name == "log":
            with LogReader(self.log, Seen) as reader:
                row = reader.ledger(self.uid, name)
            return (row.position or {}, row.manifest_sha256) if row is not None else ({}, "")
        with closing(sqlite3.connect(self.database)) as db:
            found = db.execute(
                "SELECT position, manifest_sha256 FROM streamwork_ledger WHERE sink = ?", (name,)
            ).fetchone()
        return (json.loads(found[0] or "{}"), found[1]) if found else ({}, "")

    def everything(self) -> dict[str, str]:
        """Every byte that there is, to see that none has changed."""
        files = (path for path in self.folder.rglob("*") if path.is_file() and not path.name.startswith("kept-"))
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    def substance(self) -> dict[str, Any]:
        """The same without who drives the job: what a refusal after the fence was taken must leave alone."""
        folder = {
            path: sha for path, sha in self.everything().items() if f"{self.root}/" in path and "/fences/" not in path
        }
        return {**folder, **{name: (self.rows(name), self.ledger(name)) for name in self.sinks}}


@contextmanager
def fast_folder(otherwise: Path) -> Iterator[Path]:
    """In memory where there is such a place: syncs are not what is tested here."""
    if not MEMORY.is_dir():
        yield otherwise
        return
    made = Path(tempfile.mkdtemp(dir=MEMORY, prefix="matrix-"))
    try:
        yield made
    finally:
        shutil.rmtree(made)


def damage(path: Path, how: str) -> None:
    """The ways in which a file goes bad."""
    data = path.read_bytes()
    if how == "missing":
        path.unlink()
    elif how == "truncated":
        path.write_bytes(data[: len(data) // 2])
    elif how == "flipped":
        data, middle = data or b"x", len(data) // 2
        path.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
    else:
        raise AssertionError(how)


HOW = ("truncated", "flipped", "missing")


# ---- what must hold -----------------------------------------------------------------------------------------------


def fold(events: Sequence[Payment]) -> tuple[list[tuple[str, int, int]], dict[str, tuple[int, int]]]:
    """The batch program: what a job over these events writes, and what it keeps."""
    state: dict[str, tuple[int, int]] = {}
    rows = []
    for event in events:
        number, total = state.get(event.card, (0, 0))
        state[event.card] = number + 1, total + event.amount
        rows.append((event.card, *state[event.card]))
    return rows, state


def check(world: World, events: Sequence[Payment]) -> None:
    """Every oracle, at rest, after all of `events`."""
    check_echo(world, events)
    check_state(world, fold(events)[1])
    check_ledgers(world)
    check_closed(world, len(events))
    check_nothing_left_over(world)


def check_echo(world: World, events: Sequence[Payment]) -> None:
    wanted, state = fold(events)
    if world.operator == "timers":
        wanted += [(f"bell {card}", number, 0) for card, number, _ in wanted]
    for name in world.sinks:
        got = world.rows(name)
        if name == "latest":
            assert Counter(got) == Counter((card, *kept) for card, kept in state.items()), f"ECHO {name}"
            continue
        odd = Counter(got) - Counter(wanted), Counter(wanted) - Counter(got)
        assert not any(odd), f"ECHO {name}: too many {odd[0]}, missing {odd[1]}"
        check_sequences(name, [row for row in got if not row[0].startswith("bell")])


def check_sequences(name: str, rows: Sequence[tuple[str, int, int]]) -> None:
    last: Counter[str] = Counter()
    for card, number, _ in rows:
        assert number == last[card] + 1, f"SEQUENCE {name}: {card} goes from {last[card]} to {number}"
        last[card] = number


def stored_state(world: World) -> Iterator[dict[str, tuple[int, int]]]:
    """What the files of the newest checkpoint hold, read with nothing of ours: first the short way, then the long one.

    A way with a file that was found damaged and set aside is passed over, where the job has not gone on since.
    """
    instances = world.newest()[0]["components"]["sums"].values()
    for is_short in (True, False):
        kept: dict[str, tuple[int, int]] = {}
        for chain in instances:
            paths = [ref["path"] for ref in chain]
            whole = [place for place, path in enumerate(paths) if "snapshot" in path]
            begin = (whole[-1] if is_short else whole[0]) if whole else 0
            after = [path for path in paths[begin:] if "delta" in path]
            for path in [paths[begin], *after] if whole else paths:
                if not (world.home / path).exists():
                    aside = path in world.lost or list(world.home.glob(f"quarantine/*/{path}"))
                    assert aside, f"STATE: {path} is gone"
                    kept = {}
                    break
                for row in pq.read_table(world.home / path, use_threads=False).to_pylist():
                    assert not row["__deleted"]
                    kept[row["card"]] = row["number"], row["total"]
            else:
                continue
            break
        else:
            yield kept


def check_state(world: World, wanted: dict[str, tuple[int, int]]) -> None:
    found = list(stored_state(world))
    assert found, "STATE: cannot be read"
    assert all(one == wanted for one in found), f"STATE: {found}, not {wanted}"


def check_ledgers(world: World) -> None:
    manifest, sha256 = world.newest()
    for name in world.sinks:
        assert world.ledger(name) == (manifest["positions"], sha256), f"LEDGER {name}"


def line(world: World) -> Iterator[dict[str, Any]]:
    """The newest manifest and those that it was built on, newest first, also where they are not kept any more."""
    _, sha256 = world.newest()
    while (manifest := world.manifests[sha256])["epoch"]:
        yield manifest
        if manifest["parent"] == 0:
            return
        sha256 = manifest["parent_sha256"]


def check_closed(world: World, events: int) -> None:
    """Along the line that counts, every event was read once, and every component accounts for all that it was given."""
    read = 0
    for manifest in line(world):
        for component, counted in manifest["counters"].items():
            ended = counted["delivered"] + counted.get("ended_early", 0) + counted["dropped"]
            assert counted["processed"] == ended, f"CLOSED {component}, epoch {manifest['epoch']}"
        read += manifest["counters"]["payments"]["processed"]
    assert read == events, f"CLOSED: {read} of {events} events were read"


def check_nothing_left_over(world: World) -> None:
    kept = [json.loads(path.read_bytes()) for path in world.checkpoints]
    assert len(kept) <= RETAIN + 1, "LEFT OVER: manifests"
    prepared = {int(path.name.split(".")[0]) for path in world.home.glob("checkpoints/*.prepared.json")}
    assert prepared <= {manifest["epoch"] for manifest in kept}, "LEFT OVER: prepared"
    named = {
        ref["path"] for m in kept for chains in m["components"].values() for chain in chains.values() for ref in chain
    }
    named |= {ref["path"] for m in kept for part in m["sinks"].values() for ref in part["staged"].values()}
    found = {world.name(path) for folder in ("state", "outputs") for path in world.home.glob(f"{folder}/**/*.*")}
    assert found <= named, f"LEFT OVER: {sorted(found - named)}"
    plans = {int(path.name.split(".")[0]) for path in world.home.glob("checkpoints/*.plan.json")}
    assert min(plans) >= min(manifest["epoch"] for manifest in kept), "LEFT OVER: plans"


def check_agreement(world: World, events: Sequence[Payment]) -> None:
    """For results that nobody can compute again: sinks and state agree with each other, and every event counts once."""
    histories = [sorted(world.rows(name)) for name in world.sinks if name != "latest"]
    assert all(history == histories[0] for history in histories), "AGREEMENT of the sinks"
    check_sequences("history", histories[0])
    last = {card: (number, total) for card, number, total in histories[0]}
    assert {card: number for card, (number, _) in last.items()} == Counter(event.card for event in events), "AGREEMENT"
    totals: Counter[str] = Counter()
    for card, number, total in histories[0]:
        assert (total - totals[card] * FACTOR) % PRIME < DRAWS, f"AGREEMENT: {card} {number} was made from another sum"
        totals[card] = total
    check_state(world, last)
    check_ledgers(world)
    check_closed(world, len(events))
    check_nothing_left_over(world)


# ---- the points ---------------------------------------------------------------------------------------------------


class Outcome(Enum):
    """What the next start does."""

    GOES_ON = "goes on"
    COMPUTES_AGAIN = "computes it again"
    ROLLS_FORWARD = "rolls forward"
    OFFERS_AGAIN = "gives the sink what it lacks"
    CATCHES_UP = "falls back, catches up, writes nothing twice"
    DOES_WITHOUT = "does without the file"
    REFUSES_LEDGER = "refuses: SW-SINK-LEDGER"
    REFUSES_NONE = "refuses: SW-CHECKPOINT-NONE"
    REFUSES_SCHEMA = "refuses: SW-STATE-SCHEMA"


def outcome_of(world: World, life: Life, spent: int) -> Outcome:
    """Told from what a start says and leaves; `spent` is the newest number that was planned before it."""
    if life.error is not None:
        return next(known for known in Outcome if known.value == f"refuses: {life.code}")
    assert life.started is not None
    story = " ".join(life.started.story)
    if "fell back" in story:
        return Outcome.CATCHES_UP
    if life.started.rolled_forward is not None:
        return Outcome.ROLLS_FORWARD
    if "was behind" in story:
        return Outcome.OFFERS_AGAIN
    if "can do without it" in story or "its twin stands in" in story:
        return Outcome.DOES_WITHOUT
    return Outcome.COMPUTES_AGAIN if spent > life.started.resumed_at else Outcome.GOES_ON


@dataclass(frozen=True)
class Point:
    """Where a life breaks, and what the next one does about it."""

    name: str
    fault: Fault
    outcome: Outcome
    late: int | None = 5  # how often the place has been passed when the fifth epoch passes it; None: only once
    only: Callable[[tuple[str, ...]], bool] = lambda sinks: True

    def faults(self) -> Iterator[Fault]:
        yield self.fault
        yield replace(self.fault, nth=self.late or self.fault.nth, dead=self.fault.error is Crash)


def _several(sinks: tuple[str, ...]) -> bool:
    return len(sinks) > 1


AGAIN, FORWARD, ON = Outcome.COMPUTES_AGAIN, Outcome.ROLLS_FORWARD, Outcome.GOES_ON
POINTS = [
    Point("before plan", Fault("before create checkpoints/*.plan.json"), ON),
    Point("after plan", Fault("told plan *"), AGAIN),
    Point("mid compute: the operator dies", Fault("apply *", 3), AGAIN, 4 * SLICE + 3),
    Point("mid compute: the source dies", Fault("half read *"), AGAIN),
    Point("mid compute: the disk is full", Fault("before create state/*.delta.parquet", error=OSError), AGAIN, 9),
    Point("mid compute: no room for outputs", Fault("before write outputs/*", error=OSError), AGAIN, 110),
    Point("after a delta file, before its report", Fault("after create state/*.delta.parquet"), AGAIN, 9),
    Point("after all reports", Fault("told report *"), AGAIN),
    Point("before prepared", Fault("before create checkpoints/*[1-9].prepared.json"), AGAIN),
    Point("no room for prepared", Fault("before create checkpoints/*[1-9].prepared.json", error=OSError), AGAIN),
    Point("after prepared, before the first sink", Fault("told prepare *"), FORWARD),
    Point("mid transaction of the first sink", Fault("rows written to *"), FORWARD),
    Point("between two sinks", Fault("told commit *"), FORWARD, 9, _several),
    Point("mid transaction of the second sink", Fault("rows written to *", 2), FORWARD, 10, _several),
    Point("after the last sink, before completed", Fault("before create checkpoints/*[1-9].json"), FORWARD),
    Point("no room for completed", Fault("before create checkpoints/*[1-9].json", error=OSError), FORWARD),
    Point("after completed", Fault("told complete *"), ON),
    Point("compaction: between two snapshots", Fault("after create state/*.snapshot.parquet"), ON, 3),
    Point("compaction: before a manifest names them", Fault("after create state/*.snapshot.parquet", 2), ON, 4),
    Point("retention: before the first removal", Fault("before discard checkpoints/*"), ON, None),
    Point("retention: between the copies of a manifest", Fault("after discard checkpoints/*"), ON, None),
    Point("retention: between manifest and files", Fault("before discard outputs/*"), ON, None),
    Point("retention: between two files", Fault("after discard outputs/*", 2), ON, None),
    Point("retention: before the plans", Fault("before discard checkpoints/*.plan.json"), ON, None),
]
"""Each early, by an exception after which the driver is closed; and about four epochs later, by one after which nothing is."""

PREPARED = Fault("told prepare *", 5, dead=True)
PRUNING = Fault("before discard outputs/*", dead=True)
RECOVERY = [
    ("register", PREPARED, Fault("told register *")),
    ("read", PREPARED, Fault("told read *")),
    ("commit, mid transaction", PREPARED, Fault("rows written to *")),
    ("commit", PREPARED, Fault("told commit *")),
    ("before complete", PREPARED, Fault("before create checkpoints/*.json")),
    ("before ready", PREPARED, Fault("before create fences/*.start.json")),
    ("ready", PREPARED, Fault("told ready *")),
    ("before prune", PRUNING, Fault("before discard *")),
    ("mid prune", PRUNING, Fault("after discard *")),
    ("prune", PRUNING, Fault("told prune *")),
]
"""(step of a start, what the life before it left to do, where the start breaks)"""

DAMAGES = [
    ("fallback by 1, sinks ahead", 1, Outcome.CATCHES_UP),
    ("fallback to the oldest that is kept, sinks ahead", RETAIN, Outcome.CATCHES_UP),
    ("all manifests damaged", RETAIN + 1, Outcome.REFUSES_NONE),
]
"""How many of the newest manifests are damaged, both copies."""

BEHIND = [
    ("a sink behind by 1", 1, Outcome.OFFERS_AGAIN),
    ("a sink behind by 2", 2, Outcome.OFFERS_AGAIN),
    ("a sink behind by all that is kept", RETAIN + 1, Outcome.OFFERS_AGAIN),
    ("a sink behind by more than is kept", RETAIN + 2, Outcome.REFUSES_LEDGER),
]
"""By how many checkpoints the copy is older that a sink's target was brought back from."""

OTHERS = [
    ("newest manifest: its completed copy damaged", Outcome.DOES_WITHOUT),
    ("newest manifest: its prepared copy damaged", Outcome.GOES_ON),
    ("newest manifest: both copies damaged", Outcome.CATCHES_UP),
    ("a state file damaged that some way does not need", Outcome.DOES_WITHOUT),
    ("a state file damaged that every way needs", Outcome.CATCHES_UP),
    ("staged output damaged before the first commit", Outcome.COMPUTES_AGAIN),
    ("plan damaged after a crash in compute", Outcome.COMPUTES_AGAIN),
    ("an incompatible record", Outcome.REFUSES_SCHEMA),
]
OTHER = dict(OTHERS)


def tried_with(name: str) -> Sequence[str]:
    """The sinks that a point is tried with. What happens to state files does not depend on sinks; it is tried with two."""
    return ["append + log"] if name.startswith("a state file") else list(SINKS)


def table() -> str:
    """The matrix as Markdown: what the next start does, by point and sinks. The tests hold each of these cells."""
    lines = ["| point | " + " | ".join(SINKS) + " |", "|---" * (1 + len(SINKS)) + "|"]

    def line(name: str, outcomes: Sequence[str]) -> None:
        lines.append(f"| {name} | " + " | ".join(outcomes) + " |")

    for point in POINTS:
        line(point.name, [point.outcome.value if point.only(sinks) else "" for sinks in SINKS.values()])
    for name, _, _ in RECOVERY:
        line(f"recovery: {name}", ["starts over"] * len(SINKS))
    for name, outcome in [(n, o) for n, _, o in (*DAMAGES, *BEHIND)] + OTHERS:
        line(name, [outcome.value if sinks in tried_with(name) else "" for sinks in SINKS])
    return "\n".join(lines)
