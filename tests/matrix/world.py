"""A folder, sinks, a clock: what is there before, between and after the lives of a job."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from crashes import Crash
from matrix.faults import Fault
from matrix.targets import TARGETS, Row, Target
from matrix.watched import OPERATORS, WatchedDisk, WatchedQueue, WatchedSource
from sample import Payment, payments
from streamwork import Job, KeyedOperator, StreamworkError, shuffle
from streamwork.connectors import postgres, redis, sqlite
from streamwork.epoch import Driver, Manifest, Phase, Started, Store
from streamwork.hosts.local import LocalHost
from streamwork.log import lock
from streamwork.state import compaction
from streamwork.testing.clock import VirtualClock
from streamwork.testing.processes import SimulatedProcesses

SLICE = 6
"""Events of an epoch."""
RETAIN = 2
CHAIN = 3
"""A snapshot every so many epochs, however many rows they have, so that there are some."""
EVENTS = payments(8 * SLICE, cards=5)
MORE = payments(10 * SLICE, cards=5)
SETTLING = 100
"""So often a life waits for events that are to come again."""


def shorten_chains(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(compaction, "is_due", lambda chain, epoch: epoch % CHAIN == 0)
    patch.setattr(sqlite, "LOCK_SECONDS", 0.05)  # who holds it is in this process, too
    patch.setattr(postgres, "_BEGIN", postgres._BEGIN.replace("'30.0s'", "'50ms'"))
    patch.setattr(redis, "CHUNK", 1)  # so that there is something between two keys


@dataclass
class Life:
    """How one driver fared."""

    started: Started | None = None
    error: BaseException | None = None
    completed: list[int] = field(default_factory=list)
    refusals: dict[str, int] = field(default_factory=dict)

    @property
    def code(self) -> str:
        return getattr(self.error, "code", "") or type(self.error).__name__

    def survived(self) -> Life:
        if self.error is not None:
            raise self.error
        return self


class World:
    def __init__(
        self,
        folder: Path,
        sinks: Sequence[str] = ("journal",),
        operator: str = "sums",
        semantics: str = "exactly-once",
        tracking: str | None = None,
        isolation: str = "read-committed",
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.root, self.database, self.log = folder / "root", folder / "out.db", folder / "log"
        self.home = self.root / "matrix"
        self.schema = ""  # of PostgreSQL, if there is one
        self.disk = WatchedDisk(self)
        self.clock = VirtualClock()
        self.processes = SimulatedProcesses()
        self.sinks = tuple(sinks)
        self.operator = operator
        self.semantics, self.tracking, self.isolation = semantics, tracking, isolation
        self.on_error: str | None = None
        self.refused: str | None = None  # what becomes of rows that a sink refuses for good
        self.slice = SLICE
        self.host: type[LocalHost] = LocalHost
        self.queue: list[Payment] | None = None  # instead of the input: what is taken from it is gone
        self.taken: list[int] = []  # what was taken from it last
        self.flaky: dict[int, int] = {}  # amounts on which the operator raises, and how often
        self.manifests: dict[str, dict[str, Any]] = {}  # every one that was ever prepared, by its hash
        self.uid = ""
        self.lost: set[str] = set()  # files that a test has removed
        self.in_doubt: set[int] = set()  # places in the input, in epochs that were open when a life broke
        self.broken = 0  # lives
        self.taken_over = False  # another driver has the job
        self.trace: list[str] = []
        self.on_line: Callable[[str], None] | None = None  # is told of everything that passes
        self.opened: list[Any] = []  # sinks with connections
        self.lose_answer = ""  # behind this line, a database's answer to COMMIT is lost
        self.dead = False
        self.targets = {name: TARGETS[name](self, name) for name in self.sinks}
        self._fault: Fault | None = None
        self._met = 0
        self._tokens = iter(range(10**9))

    def fork(self, folder: Path) -> World:
        """The same world once more, to try something in."""
        shutil.copytree(self.folder, folder)
        other = World(folder, self.sinks, self.operator, self.semantics, self.tracking, self.isolation)
        other.uid, other.manifests, other.refused, other._tokens = (
            self.uid,
            dict(self.manifests),
            self.refused,
            iter(range(10**6, 10**9)),
        )
        other.clock, other.processes.life = VirtualClock(self.clock.now()), self.processes.life
        return other

    def twin(self) -> World:
        """The same world as another driver sees it, at the same time."""
        other = World(self.folder, (), self.operator, self.semantics, self.tracking, self.isolation)
        other.sinks, other.schema, other.manifests = self.sinks, self.schema, self.manifests
        other.targets = {name: type(target).__new__(type(target)) for name, target in self.targets.items()}
        for name, target in other.targets.items():
            Target.__init__(target, other, name)
        other.processes.life = self.processes.life + 1
        other.clock, other.on_error, other.refused, other.flaky = self.clock, self.on_error, self.refused, self.flaky
        other._tokens = iter(range(10**6, 10**9))
        return other

    def __deepcopy__(self, memo: Any) -> World:
        return self

    def name(self, path: Path) -> str:
        return path.relative_to(self.home if path.is_relative_to(self.home) else self.folder).as_posix()

    def passes(self, line: str) -> None:
        if self.dead:
            raise Crash("the machine is down")
        self.trace.append(line)
        if self.on_line is not None:
            self.on_line(line)
        fault = self._fault
        if fault is not None and fnmatchcase(line, fault.at):
            self._met += 1
            full = fault.error is OSError and self._met > fault.nth  # a full disk stays full
            if self._met == fault.nth or full:
                self.dead = fault.dead
                raise fault.strike()

    def on_phase(self, step: Phase, epoch: int, manifest: Manifest | None) -> None:
        if step in (Phase.PREPARE, Phase.READY):  # while it is sure to be there
            for path in self.home.glob(f"checkpoints/{epoch:012d}*.json"):
                if path.name.split(".", 1)[1] != "plan.json":
                    self._remember(path)
        if step is Phase.COMPLETE:
            self._life.completed.append(epoch)
        self.passes(f"told {step.value} {epoch}")

    def _remember(self, path: Path) -> None:
        data = path.read_bytes()
        with suppress(ValueError):
            self.manifests[hashlib.sha256(data).hexdigest()] = json.loads(data)

    def job(self, events: Sequence[Payment]) -> Job:
        job = Job(
            "matrix",
            semantics=self.semantics,
            tracking=self.tracking,  # type: ignore[arg-type]
            checkpoint_every=0,
            retain=RETAIN,
            retry_after=0,
        )
        source = self.source(events)
        operator = OPERATORS[self.operator](self)
        seen = job.source(source, id="payments").apply(
            operator,
            key="card" if isinstance(operator, KeyedOperator) else None,
            grouping=None if isinstance(operator, KeyedOperator) else shuffle(),
            id="sums",
            parallelism=2,
            on_error=self.on_error,  # type: ignore[arg-type]
        )
        for name, target in self.targets.items():
            seen.sink(target.sink(), id=name, on_error=self.refused, isolation=self.isolation)  # type: ignore[arg-type]
        return job

    def source(self, events: Sequence[Payment]) -> Any:
        source: Any = (
            WatchedQueue() if self.queue is not None else WatchedSource(events, Payment, max_events=self.slice)
        )
        source.world = self
        return source

    def live(
        self,
        events: Sequence[Payment],
        fault: Fault | None = None,
        accept_divergence: bool = False,
        must: bool = True,
    ) -> Life:
        """One driver, until it has caught up with the input or breaks. Then it is closed, as the runner does; or is just dead."""
        self._fault, self._met, self.dead, self._life = fault, 0, False, Life()
        job = self.job(events)
        host = self.host(self.disk, new_attempt=self.token)
        driver = Driver(
            job.graph(),
            job.settings,
            Store(self.disk, self.root, job.name),
            host,
            self.clock,
            self.token,
            listener=self,
            processes=self.processes,
            accept_divergence=accept_divergence,
        )
        try:
            self._life.started = driver.start()
            self.uid = driver.at.uid
            waited = 0
            while driver.run_epoch() is not None or (driver.unsettled() and waited < SETTLING):
                self.clock.sleep(0.1)
                self.taken.clear()
                waited += driver.unsettled()
        except (Crash, StreamworkError, OSError) as error:
            self._life.error = error
            self.broken += 1
            self.in_doubt |= self.open_now()
        self._life.refusals = dict(driver.refusals)
        if fault is not None and must:
            assert self._met >= fault.nth, f"{fault} was never met"
        if fault is not None and fault.dead:
            self._bury()
        else:
            with suppress(Exception, Crash):
                driver.close()
            host.close()
            self._bury()
        self._fault, self.dead = None, False
        self.processes.restart()
        return self._life

    def _bury(self) -> None:
        """Nobody closes anything; the system takes back what the process had open."""
        for sink in self.opened:
            sink.close()
        self.opened.clear()
        lock._forget_in_child()

    def token(self) -> str:
        return f"{next(self._tokens):08x}"

    # ---- looking, and breaking ------------------------------------------------------------------------------------

    @property
    def checkpoints(self) -> list[Path]:
        """The completed manifests, oldest first."""
        found = [path for path in self.home.glob("checkpoints/*.json") if path.name.count(".") == 1]
        return sorted(found, key=lambda path: (json.loads(path.read_bytes())["fence"], path.name))

    @property
    def plans(self) -> dict[int, dict[str, Any]]:
        found = {}
        for path in sorted(self.home.glob("checkpoints/*.plan.json")):
            with suppress(ValueError):
                found[int(path.name[:12])] = json.loads(path.read_bytes())
        return found

    def open_now(self) -> set[int]:
        """The places in the input that are in epochs which are planned, and not completed."""
        completed = [int(path.name[:12]) for path in self.home.glob("checkpoints/*.json") if path.name.count(".") == 1]
        newest = max(completed, default=0)
        slices = [
            range(plan["from"].get("payments/0", 0), plan["to"].get("payments/0", 0))
            for epoch, plan in self.plans.items()
            if epoch > newest
        ]
        return {place for one in slices for place in one}

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
        return self.targets[name].keep_copy()

    def rows(self, name: str) -> list[Row]:
        return self.targets[name].rows()

    def ledger(self, name: str) -> tuple[dict[str, int], str]:
        """(position, hash of the manifest) that a sink remembers."""
        return self.targets[name].ledger()

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
