"""Random graphs of windows, joins, tables and keyed state over two inputs with event time, whose code changes between their
lives.

Every component with state has a sink, and one for its late events. Results that depend on where the input is cut, such as
corrections of a window, are compared by the last value of a key; all others as multisets. The last event of each partition is
far ahead: it closes every window, so that state which was lost shows in the output.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from evolving import First, More, Renamed, Split, Text, sums_of
from savepoint_lives import Rewindable, Target
from savepoint_world import JOB, World
from streamwork import (
    Event,
    Fixed,
    Job,
    KeyedOperator,
    ListSource,
    Record,
    Session,
    Sliding,
    SqliteSink,
    count,
    max_of,
    sum_of,
)
from streamwork.epoch import Store
from streamwork.epoch.savepoints import Savepoint
from streamwork.epoch.savepoints.origin import Origin
from streamwork.epoch.savepoints.restoring import Choices, Restoring
from streamwork.job import Graph
from streamwork.testing.script import Script

START = datetime(2026, 1, 1, tzinfo=UTC)
SOURCES = ("paid", "held")
EVENTS = 22  # of each source
AFTER_ALL = 3_600  # seconds; less than what an event may be ahead of the clock
WINDOWS = {
    "fixed": Fixed("10s"),
    "sliding": Sliding("10s", "5s"),
    "session": Session("3s"),
    "session-late": Session("3s"),
}
CORRECTED = {"fixed-late": Fixed("10s"), "sliding-epoch": Sliding("10s", "4s")}
KINDS = ("tally", *WINDOWS, *CORRECTED, "interval", "table")
HOWS = ("inner", "left", "right", "full")


# ---- the events, in versions ------------------------------------------------------------------------------------------------


class Paid(Event):
    card: str
    amount: int
    at: datetime


class Spent(Event):
    """`Paid`, with other names."""

    renamed_from: ClassVar = {"account": "card", "euros": "amount"}
    account: str
    euros: int
    at: datetime


class Noted(Event):
    """`Spent`, with one more field, and one that has become optional."""

    renamed_from: ClassVar = {"account": "card", "euros": "amount"}
    account: str
    euros: int | None
    at: datetime
    note: str | None = None


class Usage(Event):
    card: str
    window_start: datetime
    window_end: datetime
    payments: int
    total: int | None
    most: int | None


class UsageAgain(Event):
    renamed_from: ClassVar = {"account": "card", "purchases": "payments", "largest": "most"}
    account: str
    window_start: datetime
    window_end: datetime
    purchases: int
    total: int | None
    largest: int | None


class Tallied(Event):
    card: str
    amount: int
    at: datetime
    number: int
    total: int


class Row(Event):
    """What a sink has: of which key, and all values."""

    key: str
    values: str


VERSIONS: tuple[tuple[type[Any], type[Any], type[Record]], ...] = (
    (Paid, Usage, First),
    (Paid, Usage, More),
    (Spent, UsageAgain, Renamed),
    (Noted, UsageAgain, Text),
    (Noted, UsageAgain, Split),
)
"""Of each version: the events, the results of windows, the record of a keyed operator."""


class Tally(KeyedOperator[Any, Any, Tallied]):
    def __init__(self, event: type[Event], record: type[Record]) -> None:
        self._event, self._record = event, record

    def types(self) -> Any:
        return self._event, self._record, Tallied

    def apply(self, event: Any, state: Any, collector: Any) -> None:
        card, amount, at = three(event)
        number, total = sums_of(state)
        number, total = number + 1, total + amount
        if isinstance(state, Text):
            state.text = f"{number} {total}"
        elif isinstance(state, Split):
            state.parts = [number, total]
        else:
            state.number = number
            setattr(state, "amounts" if isinstance(state, Renamed) else "total", total)
        collector.emit(Tallied(card, amount, at, number, total))


def fields(event: Any) -> list[Any]:
    return [getattr(event, name) for name in event.__struct_fields__]


def three(event: Any) -> tuple[str, int, datetime]:
    """Of an event of any version: its card, its amount, its time."""
    card, amount, at, *_ = fields(event)
    return card, amount, at


def seconds(at: datetime | None) -> float | None:
    return None if at is None else (at - START).total_seconds()


def as_version(kind: type[Any], event: Any) -> Any:
    return kind(*three(event))


def spread(kind: type[Any], event: Any) -> Any:
    """Versions that differ have different times. Else a table would keep the one that arrives last; pairs come in any order."""
    card, amount, at = three(event)
    return kind(card, amount, at + timedelta(microseconds=amount or 0))


def of_window(event: Any) -> Paid:
    card, _, end, _, total, _ = fields(event)
    return Paid(card, total % 50, end)


def of_pair(event: Any) -> Paid:
    """Of the result of a join: the time is that of its left side, if it has one."""
    card, amount, at, right_amount, right_at = sides(event)
    return Paid(card, (amount or 0) + (right_amount or 0), at or right_at)


def sides(event: Any) -> tuple[Any, ...]:
    """The card, then amount and time of the left side, then those of the right one. A note stands behind each of them."""
    values = fields(event)
    middle = 1 + (len(values) - 1) // 2
    return values[0], *values[1:3], *values[middle : middle + 2]


def window_row(event: Any) -> Row:
    card, start, end, *rest = fields(event)
    return Row(f"{card} {seconds(start)}", repr((seconds(end), *rest)))


def pair_row(event: Any) -> Row:
    card, amount, at, right_amount, right_at = sides(event)
    return Row(card, repr((amount, seconds(at), right_amount, seconds(right_at))))


def tally_row(event: Tallied) -> Row:
    return Row(event.card, repr((event.number, event.total)))


def late_row(event: Any) -> Row:
    card, amount, at = three(event)
    return Row(card, repr((amount, seconds(at), event.late_by, event.late_reason)))


# ---- a graph ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stage:
    """A component with state, or several. It reads a source or an earlier stage; `other` is the second input of a join."""

    kind: str
    input: int  # below zero: a source
    other: int
    how: str = "inner"
    lateness: int = 0


@dataclass(frozen=True)
class Life:
    """What is changed before a start, and how many epochs it completes."""

    epochs: int
    parallelisms: tuple[int, ...]  # of the stages, in turn
    rises: int  # by how much the version does
    renames: bool
    moves: bool  # it is saved, and begins in another root
    regrets: int  # after it was saved, epochs that are rolled back with their output
    events: int  # of a partition in an epoch


@dataclass(frozen=True)
class Plan:
    """A graph and its input."""

    stages: tuple[Stage, ...]
    partitions: int
    seed: int

    def is_corrected(self, number: int) -> bool:
        """Does the stage emit some windows again?"""
        stage = self.stages[number]
        if stage.kind in CORRECTED:
            return True
        return stage.kind in ("fixed", "sliding") and stage.lateness > 0


def inputs(plan: Plan, source: int) -> list[Paid]:
    """Out of order, each card in one partition, the last event of each partition far ahead."""
    rng = random.Random(f"{plan.seed} {source}")
    found, now = list[Paid](), 0
    for number in range(EVENTS * plan.partitions // 2):
        now += rng.choice([0, 0, 1, 1, 2, 5]) if number % plan.partitions == 0 else 0
        behind = rng.choice([0, 0, 0, rng.randint(0, 8)])
        card = f"card-{number % plan.partitions}-{rng.randrange(3)}"
        found.append(Paid(card, rng.randrange(50), START + timedelta(seconds=max(0, now - behind))))
    rest = -len(found) % plan.partitions
    found += [Paid(f"card-{len(found) % plan.partitions + n}-0", 1, found[-1].at) for n in range(rest)]
    ends = START + timedelta(seconds=AFTER_ALL)
    return found + [Paid(f"card-{number}-0", 0, ends) for number in range(plan.partitions)]


class Timed(World):
    """The machine, and the job of a plan in its present version."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan.seed)
        self.plan = plan
        self.given = [inputs(plan, source) for source in range(len(SOURCES))]
        self.targets: dict[str, Target] = {}
        self.version = self.name = self.moved = 0
        self.root, self.parallelisms, self._slices = Path("/root"), (2,), 4

    @property
    def store(self) -> Store:
        return Store(self.disk, self.root, JOB)

    @property
    def folder(self) -> Path:
        return self.root / JOB / "savepoints"

    def graph(self, parallelism: int | None = None) -> Graph:
        return Building(self).graph()

    def part(self, source: int) -> Script:
        sleep = self.clock.sleep
        return Script(Paid, self.given[source], self.plan.partitions, self._slices, lambda: False, sleep, sleep)

    # ---- lives --------------------------------------------------------------------------------------------------------------

    def live(self, lives: list[Life]) -> None:
        driver = self.run(0)
        for life in lives:
            ran = [driver.run_epoch() for _ in range(life.epochs)]
            saved = self.save(driver, f"save-{driver.fence}") if life.moves or life.regrets else None
            if saved is not None and life.regrets and any(one is not None for one in ran):
                for _ in range(life.regrets):
                    driver.run_epoch()
                self.processes.restart()
                self._restore(saved)
            self.processes.restart()
            self._change(life)
            if saved is not None and life.moves and not life.regrets:
                self.moved += 1
                self.root = self.root / "next"
                self._restore(saved)
            driver = self.run(0)
        while driver.run_epoch() is not None:
            """Read the rest."""

    def _change(self, life: Life) -> None:
        self.parallelisms = life.parallelisms
        self.version = min(self.version + life.rises, len(VERSIONS) - 1)
        self.name += life.renames
        self._slices = life.events

    def _restore(self, saved: Path) -> None:
        settings = Job(JOB, checkpoint_every=0, retain=2).settings
        origin = Origin.of_savepoint(Savepoint.open(self.disk, saved))
        choices = Choices(rewind_output=True)
        Restoring(self.graph(), settings, self.store, self.clock, self.processes, origin, choices).run()

    def results(self) -> dict[str, Any]:
        """Of each sink."""
        found: dict[str, Any] = {}
        for name, target in self.targets.items():
            rows = [(row.key, row.values) for row in target.rows]
            found[name] = dict(rows) if name.startswith("last-") else Counter(rows)
        return found


class Building:
    """One graph of a world."""

    def __init__(self, world: Timed) -> None:
        self._world = world
        self._event, self._usage, self._record = VERSIONS[world.version]
        self._job = Job(JOB, checkpoint_every=0, parallelism=world.parallelisms[0])
        self._parts: dict[str, Any] = {}
        self._streams: dict[int, Any] = {}

    def graph(self) -> Graph:
        for number, name in enumerate(SOURCES):
            named = self._named(name)
            read = self._job.source(ListSource([], Paid), time="at", **named)
            self._parts[named["id"]] = self._world.part(number)
            self._streams[number - len(SOURCES)] = read
        for number, stage in enumerate(self._world.plan.stages):
            self._add(number, stage)
        graph = self._job.graph()
        return replace(
            graph, nodes=tuple(replace(n, component=self._parts.get(n.id, n.component)) for n in graph.nodes)
        )

    def _named(self, role: str) -> dict[str, Any]:
        now = self._world.name
        return {"id": f"{role}-v{now}", "renamed_from": [f"{role}-v{number}" for number in reversed(range(now))]}

    def _add(self, number: int, stage: Stage) -> None:
        wides, role = self._world.parallelisms, f"{stage.kind}-{number}"
        wide = wides[number % len(wides)]
        given = self._versioned(f"{role}-in", stage.input)
        key = "card" if self._event is Paid else "account"
        amount = "amount" if self._event is Paid else "euros"
        late: list[Any] = []
        gives: Callable[[Any], Any]
        if stage.kind == "tally":
            made = given.apply(Tally(self._event, self._record), key=key, parallelism=wide, **self._named(role))
            self._sink(f"last-{role}", made, tally_row)
            gives = partial(as_version, Paid)
        elif stage.kind in WINDOWS or stage.kind in CORRECTED:
            made = self._window(given, number, key, amount, wide, role)
            late, gives = [made.channel("late")], of_window
        else:
            made, late = self._join(given, self._versioned(f"{role}-with", stage.other), number, key, wide, role)
            self._sink(f"all-{role}", made, pair_row)
            gives = of_pair
        for place, stream in enumerate(late):
            self._sink(f"late-{place}-{role}", stream, late_row)
        self._streams[number] = made.map(gives, to=Paid, id=f"{role}-out")

    def _versioned(self, id: str, number: int) -> Any:
        """The stream of a source or stage, as events of this version."""
        return self._streams[number].map(partial(as_version, self._event), to=self._event, id=id)

    def _window(self, given: Any, number: int, key: str, amount: str, wide: int, role: str) -> Any:
        plan = self._world.plan
        kind = plan.stages[number].kind
        lateness = plan.stages[number].lateness + (2 if kind.endswith("-late") else 0)
        emit: Any = "epoch" if kind.endswith("-epoch") else "close"
        window = {**WINDOWS, **CORRECTED}[kind]
        named = self._named(role)
        windowed = given.window(window, key=key, time="at", emit=emit, lateness=lateness, **named)
        names = ("payments", "most") if self._usage is Usage else ("purchases", "largest")
        aggregates: dict[str, Any] = {names[0]: count(), "total": sum_of(amount), names[1]: max_of(amount)}
        made = windowed.aggregate(self._usage, parallelism=wide, **aggregates)
        self._sink(f"{'last' if plan.is_corrected(number) else 'all'}-{role}", made, window_row)
        return made

    def _join(self, given: Any, other: Any, number: int, key: str, wide: int, role: str) -> tuple[Any, list[Any]]:
        stage = self._world.plan.stages[number]
        lateness = stage.lateness
        options: dict[str, Any] = {"key": key, "time": "at", "how": stage.how, "parallelism": wide, **self._named(role)}
        if stage.kind == "interval":
            made = given.join(other, within="4s", lateness=lateness, **options)
            return made, [made.channel("late"), made.channel("late-right")]
        named = self._named(f"{role}-versions")
        history = lateness + 6
        other = other.map(partial(spread, self._event), to=self._event, id=f"{role}-spread")
        table = other.table(key=key, time="at", history=history, lateness=lateness, parallelism=wide, **named)
        made = given.join(table, **options)
        return made, [made.channel("late"), table.late]

    def _sink(self, role: str, stream: Any, row: Callable[[Any], Row]) -> None:
        named = self._named(role)
        target = self._world.targets.setdefault(role, Target())
        rows = stream.map(row, to=Row, id=f"{role}-row")
        rows.sink(SqliteSink("/nowhere/out.db", role.replace("-", "_")), **named)
        self._parts[named["id"]] = Rewindable(target)


def run_to_the_end(plan: Plan, lives: list[Life]) -> dict[str, Any]:
    world = Timed(plan)
    world.live(lives)
    return world.results()


def check(plan: Plan, lives: list[Life]) -> None:
    """The results of these lives are those of a run that never stopped."""
    whole, stopped = run_to_the_end(plan, []), run_to_the_end(plan, lives)
    assert stopped == whole
