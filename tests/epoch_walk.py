"""Random walks: two drivers on one job, stopped and resumed between any two durable effects, with crashes, damage and losses.

The real driver, store, recovery and local host run on a simulated disk; each driver in a greenlet of its own. Wherever one of
them is about to change a file or to talk to a sink, the walk decides who goes on, and whether something bad happens first:

    kill     a driver is gone, as by kill -9: nothing that it has begun is finished or undone
    arrive   another driver starts, while the one before it is stopped or still at work
    power    the machine is gone: both drivers, and whatever was not synced
    damage   a file below checkpoints/, state/ or outputs/ is flipped, cut or removed
    lose     a sink loses its last commit, as when it is restored from a copy
    replay   a person replays every dead letter that there is
    relent   the sinks take rows from now on that they refused before

What flows is varied, too (`Kind`): sources with offsets and polled ones, events and rows that become dead letters, events that are
acknowledged. The drivers take turns in any order, rarely or at every step.

When the budget is spent, one last driver runs undisturbed. Then everything must be right: see `check`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

import greenlet
import pyarrow as pa
import pyarrow.parquet as pq

from sample import Payment, Seen, Sums, expected_journal, payments
from streamwork import (
    Job,
    KeyedOperator,
    ListSource,
    Record,
    Refused,
    Source,
    SqliteSink,
    StatefulSource,
    StreamworkError,
)
from streamwork.components import LedgerEntry, LedgerRow, RowsRejected
from streamwork.components.commit_rule import Verdict, judge
from streamwork.delivery import DeadLetters, Inbox, Letter
from streamwork.delivery.text import from_text
from streamwork.engine import EndKnown
from streamwork.epoch import Driver, Store
from streamwork.epoch.recovery.verify import problems
from streamwork.epoch.state_view import state_view
from streamwork.hosts.local import LocalHost
from streamwork.job import Graph
from streamwork.testing.clock import VirtualClock
from streamwork.testing.disk import SimulatedDisk
from streamwork.testing.memory import MemorySink, Table
from streamwork.testing.script import Script
from streamwork.world import ProcessId

ROOT = Path("/walk")
LOST_THE_JOB = {"SW-SINK-FENCED", "SW-DRIVER-FENCED"}
MOST_STEPS = 50_000
MOST_DRIVERS = 25


class Killed(KeyboardInterrupt):  # all that passes through an operator's step as it is
    """kill -9."""


class Kind(Enum):
    """What flows, and what is promised."""

    PLAIN = "exactly-once, a source with offsets"
    LETTERS = "exactly-once; events that fail, rows that sinks refuse"
    POLLED = "exactly-once, a polled source that is replayable; events that fail"
    REPORTED = "exactly-once, a source with offsets; each driver reads it by plan or by report"
    ACKNOWLEDGING = "at-least-once by acknowledging, a polled source that gives nothing twice; events that fail"


@dataclass(frozen=True)
class Chaos:
    """How often what happens at most."""

    events: int = 9
    kills: int = 2
    arrivals: int = 2
    power: int = 1
    damages: int = 1
    losses: int = 1
    replays: int = 0
    relents: int = 0
    kind: Kind = Kind.PLAIN
    random: bool = False  # the operator is not deterministic
    retain: int = 2


@dataclass
class Walked:
    """How a walk ended."""

    refused: str = ""
    story: list[str] = field(default_factory=list)
    spent: Counter[str] = field(default_factory=Counter)


class Nonces(KeyedOperator[Payment, Sums, Seen]):
    """Sums random numbers: only the attempt that counted can tell what they were."""

    deterministic = False
    rng = random.Random()

    def apply(self, event: Payment, state: Sums, collector: Any) -> None:
        check_amount(event)
        state.number += 1
        state.total += self.rng.randrange(1, 10**9)
        collector.emit(Seen(event.card, state.number, state.total))


class Summing(KeyedOperator[Payment, Sums, Seen]):
    def apply(self, event: Payment, state: Sums, collector: Any) -> None:
        check_amount(event)
        state.number += 1
        state.total += event.amount
        collector.emit(Seen(event.card, state.number, state.total))


class Echoing(Summing):
    """Each row tells the event that it was made from: no other has its amount."""

    def apply(self, event: Payment, state: Sums, collector: Any) -> None:
        check_amount(event)
        state.number += 1
        state.total += event.amount
        collector.emit(Seen(event.card, state.number, event.amount))


def check_amount(event: Payment) -> None:
    if event.amount < 0:
        raise ValueError("an amount below zero")


def replace_amount(event: Payment, amount: int) -> Payment:
    return Payment(event.card, amount)


class At(Record):
    offset: int = 0


class Counting(StatefulSource[Payment, At]):
    """Its state alone decides what comes next."""

    replayable = True
    walk: Walk

    def setup_instance(self, instance: int, state: At | None) -> None:
        self._at = At() if state is None else state

    def get_events(self, collector: Any) -> None:
        for event in self.walk.events[self._at.offset :][:1]:
            self._at.offset += 1
            collector.emit(event)

    def get_state(self) -> At:
        return self._at


class Queue(Source[Payment]):
    """What it gave is gone."""

    walk: Walk

    def get_events(self, collector: Any) -> None:
        if self.walk.queue:
            collector.emit(self.walk.queue.pop(0))


class _Inbox(Inbox):
    def _locked(self) -> Any:
        return nullcontext()


class Walk:
    def __init__(self, seed: int, chaos: Chaos, use_ledger: bool = True) -> None:
        self.rng = random.Random(seed)
        self.chaos = chaos
        self.left = Counter(
            kill=self.rng.randint(0, chaos.kills),
            arrive=self.rng.randint(0, chaos.arrivals),
            power=self.rng.randint(0, chaos.power),
            damage=self.rng.randint(0, chaos.damages),
            lose=self.rng.randint(0, chaos.losses),
            replay=self.rng.randint(0, chaos.replays),
            relent=self.rng.randint(0, chaos.relents),
        )
        self.switch = self.rng.choice([0.02, 0.02, 0.1, 0.5])  # how often another driver goes on
        self.walked = Walked()
        self.clock = VirtualClock()
        self.disk = _Disk(self)
        self.actors: list[_Actor] = []
        self.tables = {"left": _Table(), "right": _Table()}
        self.picky = chaos.kind is Kind.LETTERS
        self.kept: set[int] = set()  # amounts of the events that were durable in the inbox
        self.events = payments(chaos.events, cards=3)
        if chaos.kind is not Kind.PLAIN:
            self.events = [replace_amount(event, -i) if i % 4 == 1 else event for i, event in enumerate(self.events)]
        self.queue = list(self.events)
        self._use_ledger = use_ledger
        self._paused: _Actor | None = None
        self._disturbed = False  # something has happened since the last driver arrived
        Nonces.rng = random.Random(seed)

    # ---- the walk -------------------------------------------------------------------------------------------------

    def run(self) -> Walked:
        for _ in range(MOST_STEPS):
            alive = [actor for actor in self.actors if actor.alive]
            if not alive:
                if self.walked.refused or (self.actors and self.actors[-1].settled and not self._disturbed):
                    return self.walked
                assert len(self.actors) < MOST_DRIVERS, "driver after driver gives up"
                self._arrive()
                continue
            if self.rng.random() < 0.03 and self._misfortune():
                continue
            self._choose(alive).go_on()
        raise AssertionError("the walk never ends")

    def _choose(self, alive: list[_Actor]) -> _Actor:
        """Mostly one of the two goes on alone, as a stopped driver does not take part until it is resumed."""
        if len(alive) == 1:
            return alive[0]
        if self._paused not in alive or self.rng.random() < self.switch:
            self._paused = self.rng.choice(alive)
        return next(actor for actor in alive if actor is not self._paused)

    def _misfortune(self) -> bool:
        name = self.rng.choice(sorted(+self.left)) if +self.left else None
        if name is None or not getattr(self, f"_{name}")():
            return False
        self.left[name] -= 1
        self._disturbed = True
        self.walked.spent[name] += 1
        return True

    def _arrive(self) -> bool:
        if sum(actor.alive for actor in self.actors) >= 2:
            return False
        self.actors.append(_Actor(self, len(self.actors) + 1))
        self._disturbed = False
        self.tell(f"driver {len(self.actors)} arrives")
        return True

    def _kill(self) -> bool:
        actor = self.rng.choice([actor for actor in self.actors if actor.alive])
        actor.kill()
        self.tell(f"driver {actor.number} is killed")
        return True

    def _power(self) -> bool:
        for actor in self.actors:
            actor.kill()
        self.disk.crash()
        self.tell("the machine is gone")
        return True

    def _damage(self) -> bool:
        folder = ROOT / "walk" / self.rng.choice(["checkpoints", "state", "outputs"])
        if not self.disk.exists(ROOT):
            return False
        paths = [path for path in self.disk.paths() if path.is_relative_to(folder)]
        if not paths:
            return False
        path = self.rng.choice(sorted(paths))
        how = self.rng.choice(["flip", "cut", "remove"])
        self.disk.damage(path, how, self.rng)
        self.tell(f"{how} {path.relative_to(ROOT)}")
        return True

    def _lose(self) -> bool:
        name = self.rng.choice(sorted(self.tables))
        if not self.tables[name].lose():
            return False
        self.tell(f"sink {name} loses its last commit")
        return True

    def _replay(self) -> bool:
        folder = ROOT / "walk"
        inbox = _Inbox(self.disk, folder)
        known = inbox.replayed()
        found = [letter for letter in DeadLetters(self.disk, folder).all() if letter.id not in known]
        if not found:
            return False
        inbox.put(found)
        self.tell(f"{', '.join(letter.id for letter in found)} replayed")
        return True

    def _relent(self) -> bool:
        self.picky = False
        self.tell("the sinks take every row")
        return True

    def tell(self, line: str) -> None:
        self.walked.story.append(line)

    # ---- the job --------------------------------------------------------------------------------------------------

    def graph(self) -> Graph:
        kind, options = self.chaos.kind, self._options()
        job = Job("walk", **options)
        operator: Any = Nonces() if self.chaos.random else Echoing() if options else Summing()
        source: Any = ListSource([], Payment)
        if kind in (Kind.POLLED, Kind.ACKNOWLEDGING):
            source = (Counting if kind is Kind.POLLED else Queue)()
            source.walk, source.max_events = self, self.rng.randint(1, 3)
        lettered: Any = {} if kind is Kind.PLAIN else {"on_error": "dead-letter"}
        seen = job.source(source, id="in").apply(operator, key="card", id="sums", **lettered)
        for name in self.tables:
            seen.sink(SqliteSink("/nowhere/out.db", name), id=name, **lettered)
        graph = job.graph()
        parts: dict[str, Any] = {name: _Sink(self, table, self._use_ledger) for name, table in self.tables.items()}
        if kind in (Kind.PLAIN, Kind.LETTERS, Kind.REPORTED):
            parts["in"] = Script(
                Payment, self.events, 1, self.rng.randint(1, 3), _never, self.clock.sleep, self.clock.sleep
            )
        nodes = tuple(replace(node, component=parts.get(node.id, node.component)) for node in graph.nodes)
        return replace(graph, nodes=nodes)

    def settings(self) -> Any:
        return Job("walk", retain=self.chaos.retain, **self._options()).settings

    def _options(self) -> dict[str, Any]:
        if self.chaos.kind is not Kind.ACKNOWLEDGING:
            return {}
        return {"semantics": "at-least-once", "tracking": "acknowledge", "retry_after": 0.05, "max_attempts": 2}

    def __deepcopy__(self, memo: Any) -> Walk:
        return self  # sources are copied, and keep it


def _never() -> None:
    raise AssertionError("this script has no crash in it")


class _Actor:
    """One driver, in a greenlet of its own."""

    def __init__(self, walk: Walk, number: int) -> None:
        self.number = number
        self.settled = False
        self.dead = False
        self._walk = walk
        self._greenlet = greenlet.greenlet(self._drive)

    @property
    def alive(self) -> bool:
        return not self.dead and not self._greenlet.dead

    def go_on(self) -> None:
        self._greenlet.switch()

    def kill(self) -> None:
        if self.alive:
            self.dead = True
            if self._greenlet:  # it has begun
                self._greenlet.throw(Killed)

    def _drive(self) -> None:
        walk = self._walk
        graph = walk.graph()
        store = Store(walk.disk, ROOT, "walk")
        by_report = walk.chaos.kind is Kind.REPORTED and walk.rng.random() < 0.7
        host = LocalHost(
            walk.disk,
            None,
            lambda: f"{walk.rng.randrange(2**32):08x}",
            ends_known=EndKnown.BY_REPORT if by_report else EndKnown.BY_PLAN,
        )
        driver = Driver(
            graph,
            walk.settings(),
            store,
            host,
            walk.clock,
            lambda: f"{walk.rng.randrange(2**64):016x}",
            depth=(depth := walk.rng.randint(1, 2)),
            overlap=depth == 1 and walk.rng.random() < 0.5,
            processes=_Processes(walk, self.number),
            take_over=True,
        )
        try:
            started = driver.start()
            walk.tell(f"driver {self.number} builds on {started.resumed_at}: " + "; ".join(started.story))
            while driver.run_epoch() is not None or driver.unsettled():
                walk.clock.sleep(0.1)
            self.settled = True
            walk.tell(f"driver {self.number} is done at checkpoint {driver.at.epoch}")
        except Killed:
            return
        except StreamworkError as error:
            walk.tell(f"driver {self.number} stops: {error.code} {error.cause}")
            alone = not walk._disturbed and not any(a.alive for a in walk.actors if a is not self)
            if not alone or error.code in LOST_THE_JOB:
                return
            assert isinstance(error, Refused) and not hasattr(driver, "at"), (
                "a driver stops in the middle, for no reason"
            )
            walk.walked.refused = f"{error.code} {error.cause}"

    def pause(self) -> None:
        """The moment before a durable effect."""
        if self.dead:
            raise Killed
        if greenlet.getcurrent() is self._greenlet:
            self._greenlet.parent.switch()
            if self.dead:
                raise Killed


class _Processes:
    def __init__(self, walk: Walk, number: int) -> None:
        self._walk, self._number = walk, number

    def me(self) -> ProcessId:
        return ProcessId("walk", self._number, 0.0)

    def gone(self, process: ProcessId) -> bool:
        return not self._walk.actors[process.pid - 1].alive


class _Disk(SimulatedDisk):
    """Lets the walk decide before each step."""

    def __init__(self, walk: Walk) -> None:
        super().__init__(seed=walk.rng.randrange(2**31))
        self._walk = walk

    def _step(self, what: str, effect: Any, atomic: bool = False) -> None:
        _pause(self._walk)
        super()._step(what, effect, atomic)

    def create(self, path: Path, data: bytes) -> None:
        super().create(path, data)
        if path.parent == ROOT / "walk" / "inbox" / "in":  # from here on it must not get lost
            events = pq.read_table(pa.BufferReader(data)).column("event").to_pylist()
            self._walk.kept |= {from_text(Payment, event).amount for event in events}

    def paths(self) -> list[Path]:
        folder = self._names[ROOT]
        return [p for p, file in self._names.items() if file is not folder and not p.name.startswith(".tmp")]

    def damage(self, path: Path, how: str, rng: random.Random) -> None:
        file = self._names[path]
        if how == "flip" and len(file.content):
            file.flip(rng.randrange(len(file.content)), 1 << rng.randrange(8))
        elif how == "cut" and len(file.content):
            del file.content[rng.randrange(len(file.content)) :]
            file.sync()
        else:
            self._names.pop(path)
            self._durable.pop(path, None)


class _Table(Table):
    """A table that can lose its last commit, but for the fence that is registered in it."""

    def __init__(self) -> None:
        super().__init__()
        self.before: tuple[list[Any], LedgerRow | None] | None = None

    def lose(self) -> bool:
        if self.before is None or self.ledger is None:
            return False
        rows, row = self.before
        self.rows, self.before = rows, None
        self.ledger = LedgerRow(self.ledger.fence, row.position if row else None, row.manifest_sha256 if row else "")
        return True


class _Sink(MemorySink):
    """Each call is one step, which happens at once or not at all."""

    def __init__(self, walk: Walk, table: _Table, use_ledger: bool) -> None:
        super().__init__(table, use_ledger)
        self._walk = walk

    def register(self, uid: str, sink_id: str, fence: int) -> None:
        _pause(self._walk)
        super().register(uid, sink_id, fence)

    def ledger(self, uid: str, sink_id: str) -> LedgerRow | None:
        _pause(self._walk)
        return super().ledger(uid, sink_id)

    def write(self, batch: pa.RecordBatch) -> None:
        _pause(self._walk)
        super().write(batch)

    def rejects(self, rows: Sequence[pa.RecordBatch]) -> str:
        found = [row for batch in rows for row in batch.to_pylist()]
        return "refused" if self._walk.picky and any(refused(row["card"], row["number"]) for row in found) else ""

    def commit(self, entry: LedgerEntry, staged: Iterator[pa.RecordBatch]) -> None:
        _pause(self._walk)
        table: Any = self._table
        before = (list(table.rows), table.ledger)
        batches = list(staged)
        applies = table.ledger is not None and judge(table.ledger, entry) is Verdict.APPLY
        if applies and (why := self.rejects(batches)):
            raise RowsRejected(why)
        super().commit(entry, iter(batches))
        if table.ledger is not None and before[1] is not None and table.ledger.position != before[1].position:
            table.before = before


def _pause(walk: Walk) -> None:
    current = greenlet.getcurrent()
    for actor in walk.actors:
        if actor._greenlet is current:
            actor.pause()


# ---- what must hold -------------------------------------------------------------------------------------------------


def check(walk: Walk) -> None:
    """Exactly once, state = fold, ledgers at the newest checkpoint, nothing damaged that is kept; or a refusal that may be."""
    if walk.walked.refused:
        _check_refusal(walk)
        return
    if walk.chaos.kind is Kind.ACKNOWLEDGING:
        _check_at_least_once(walk)
        return
    graph, store = walk.graph(), Store(walk.disk, ROOT, "walk")
    newest = max((s.manifest for s in store.stored() if s.manifest is not None), key=lambda m: m.age)
    state = _state(graph, store, newest)
    for name, table in walk.tables.items():
        _check_rows(walk, name, table.rows, state)
        assert table.ledger is not None
        assert table.ledger.position == newest.positions, f"{name}: {table.ledger} instead of {newest.positions}"
        assert table.ledger.manifest_sha256 == newest.sha256, f"{name}: the ledger names another manifest"
    assert newest.positions["in/0"] == len(walk.events)
    if not walk.walked.spent["damage"]:
        assert not problems(store, newest)


def _open_letters(walk: Walk, component: str) -> list[Letter]:
    """Those that were not replayed: a replayed one that fails again is another letter."""
    folder = ROOT / "walk"
    replayed = Inbox(walk.disk, folder).replayed()
    return [letter for letter in DeadLetters(walk.disk, folder).all(component) if letter.id not in replayed]


def _check_at_least_once(walk: Walk) -> None:
    """Whatever was in the inbox once is in every sink, or a dead letter."""
    lettered = {from_text(Payment, letter.event).amount for letter in _open_letters(walk, "sums")}
    for name, table in walk.tables.items():
        assert walk.kept <= {row.total for row in table.rows} | lettered, f"{name}: lost {walk.kept - lettered}"
    assert all(amount < 0 for amount in lettered)


def refused(card: str, number: int) -> bool:
    """What a picky sink does not take."""
    return (len(card) + ord(card[-1]) + number) % 3 == 0


def _check_rows(walk: Walk, name: str, rows: list[Any], state: dict[str, tuple[int, int]]) -> None:
    found = [(row.card, row.number, row.total) for row in rows]
    given_up = Counter(from_text(Payment, letter.event).amount for letter in _open_letters(walk, "sums"))
    assert given_up == Counter(e.amount for e in walk.events if e.amount < 0), f"letters of sums: {given_up}"
    left_out = [from_text(Seen, letter.event) for letter in _open_letters(walk, name)]
    found += [(row.card, row.number, row.total) for row in left_out]
    wanted = expected_journal([event for event in walk.events if event.amount >= 0])
    if walk.chaos.random:  # the totals are anybody's guess, but rows and state must tell one story
        assert Counter((c, n) for c, n, _ in found) == Counter((c, n) for c, n, _ in wanted), f"{name}: {found}"
        last = {card: (number, total) for card, number, total in sorted(found)}
        assert last == state, f"{name}: rows end with {last}, state is {state}"
        return
    assert Counter(found) == Counter(wanted), f"{name}: {Counter(found) - Counter(wanted)} too many"
    assert state == {card: (number, total) for card, number, total in wanted}


def _state(graph: Graph, store: Store, manifest: Any) -> dict[str, tuple[int, int]]:
    records: dict[str, Any] = dict(state_view(graph, store, manifest, "sums", walk_groups()).records())
    return {card: (record.number, record.total) for card, record in records.items()}


def walk_groups() -> int:
    return Job("walk").settings.groups


def _check_refusal(walk: Walk) -> None:
    """A refusal is right only if more went wrong than the protocol promises to bear; and never with wrong rows."""
    spent = walk.walked.spent
    code = walk.walked.refused.partition(" ")[0]
    diverges = (walk.chaos.random or walk.chaos.kind is Kind.POLLED) and spent["damage"] and code == "SW-STATE-DIVERGES"
    assert diverges or spent["damage"] + spent["lose"] >= 2, walk.walked.refused
    assert code in {"SW-CHECKPOINT-NONE", "SW-SINK-LEDGER", "SW-STATE-DIVERGES", "SW-LETTERS-DAMAGED"}, (
        walk.walked.refused
    )
    for name, table in walk.tables.items():
        numbers = Counter((row.card, row.number) for row in table.rows)
        assert max(numbers.values(), default=1) == 1, f"{name}: a row is there twice"
