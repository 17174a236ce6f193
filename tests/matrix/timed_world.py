"""Worlds with windows and a join where rows are written at once, and what must hold of their results.

A row of the journal is one event in one result: which result, a number, the event's id. Of a window it is each event that the
window has; of a pair, the event that has completed it. Late events have rows, too. So an event without a row has vanished.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb

from matrix.oracles import check_counts, check_nothing_left_over, dropped
from matrix.promises import PROMISES
from matrix.targets import Row
from matrix.watched import WatchedSource
from matrix.world import RETAIN, SLICE, World
from sample import Payment, Seen, Sums
from streamwork import Event, Fixed, Job, KeyedOperator, collect_of

START = datetime(2026, 1, 1, tzinfo=UTC)
SIZE = 4
"""Seconds of a window, and the bound of the join."""
OPERATORS = ("window", "each event", "join")


class Timed(Payment):
    at: datetime


class Ids(Event):
    card: str
    window_start: datetime
    ids: list[int]


class Running(Event):
    card: str
    window_start: datetime
    ids: list[int]
    amount: int


class Pair(Event):
    amount: int
    even_amount: int


def timed(count: int) -> list[Timed]:
    """A second each; some events are behind, some so far that they are late."""
    behind = [3 * (i % 5 == 4) + 9 * (i % 11 == 10) for i in range(count)]
    return [Timed(f"card-{i % 3}", i, START + timedelta(seconds=i - seconds)) for i, seconds in enumerate(behind)]


EVENTS = timed(8 * SLICE)


def second(at: datetime) -> int:
    return round((at - START).total_seconds())


# ---- the job -------------------------------------------------------------------------------------------------------


def of_window(result: Ids) -> list[Seen]:
    return [Seen(_name(result.card, second(result.window_start)), len(result.ids), one) for one in result.ids]


def of_event(result: Running) -> Seen:
    return Seen(_name(result.card, second(result.window_start)), len(result.ids), result.amount)


def of_late(event: Any) -> Seen:
    return Seen("late", 0, event.amount)


def of_pair(pair: Pair) -> Seen:
    return Seen(f"pair {pair.amount}, {pair.even_amount}", 0, max(pair.amount, pair.even_amount))


def is_odd(event: Timed) -> bool:
    return event.amount % 2 == 1


def is_even(event: Timed) -> bool:
    return event.amount % 2 == 0


class Ringing(KeyedOperator[Timed, Sums, Seen]):
    """Sets a timer for each event; its rows are numbered."""

    def apply(self, event: Timed, state: Sums, collector: Any) -> None:
        collector.set_timer(event.at + timedelta(seconds=SIZE))

    def on_timer(self, key: str, at: datetime, state: Sums, collector: Any) -> None:
        state.number += 1
        collector.emit(Seen(key, state.number, second(at)))


class TimedWorld(World):
    """A world whose operator is one of `OPERATORS`, or "timers", behind an exchange, and whose sink is the journal."""

    def __init__(self, folder: Path, promise: str, operator: str) -> None:
        semantics, tracking = PROMISES[promise]
        super().__init__(folder, ("journal",), operator, semantics, tracking)

    def job(self, events: Sequence[Any]) -> Job:
        job = Job(
            "matrix",
            semantics=self.semantics,
            tracking=self.tracking,  # type: ignore[arg-type]
            checkpoint_every=0,
            retain=RETAIN,
            retry_after=0,
            parallelism=2,
        )
        source: Any = WatchedSource(events, Timed, max_events=self.slice)
        source.world = self
        given = job.source(source, id="payments", time="at")
        made: Any
        if self.operator == "join":
            odd, even = given.filter(is_odd, id="odd"), given.filter(is_even, id="even")
            made = odd.join(even, key="card", within=SIZE, to=Pair, id="sums")
            rows = made.map(of_pair, to=Seen, id="rows")
            rows = rows.union(made.channel("late-right").map(of_late, to=Seen, id="late-even"))
        elif self.operator == "timers":
            rows = given.apply(Ringing(), key="card", id="sums")
            rows.sink(self.targets["journal"].sink(), id="journal")
            return job
        elif self.operator == "window":
            made = given.window(Fixed(SIZE), key="card", id="sums").aggregate(Ids, ids=collect_of("amount"))
            rows = made.flat_map(of_window, to=Seen, id="rows")
        else:
            windows = given.window(Fixed(SIZE), key="card", emit="event", id="sums")
            made = windows.aggregate(Running, ids=collect_of("amount"))
            rows = made.map(of_event, to=Seen, id="rows")
        rows = rows.union(made.channel("late").map(of_late, to=Seen, id="late"))
        rows.sink(self.targets["journal"].sink(), id="journal")
        return job

    def windows(self) -> dict[str, list[int]]:
        """The open windows in the newest checkpoint, as DuckDB finds them: window -> the ids of its events."""
        with duckdb.connect() as db:
            db.execute((self.home / "views.sql").read_text())
            found = db.sql('SELECT card, epoch_us(window_start), ids FROM "sums"').fetchall()
        begin = round(START.timestamp())
        return {_name(card, at // 1_000_000 - begin): ids for card, at, ids in found}


# ---- the oracle ----------------------------------------------------------------------------------------------------


class Expected:
    """What a job over these events writes and keeps: a plain program, one event after the other."""

    def __init__(self, operator: str, events: Sequence[Timed]) -> None:
        self.rows: list[Row] = []
        self.open: dict[str, list[int]] = {}
        self._ends: dict[str, int] = {}
        self._kept: list[Timed] = []
        latest = -1
        for event in events:
            (self._join if operator == "join" else self._put)(event, latest, operator == "each event")
            latest = max(latest, second(event.at))
            for name in [name for name, end in self._ends.items() if end <= latest]:
                del self._ends[name]
                ids = self.open.pop(name)
                self.rows += [(name, len(ids), one) for one in ids] if operator == "window" else []

    def _put(self, event: Timed, latest: int, at_once: bool) -> None:
        start = second(event.at) // SIZE * SIZE
        if start + SIZE <= latest:
            self.rows.append(("late", 0, event.amount))
            return
        name = _name(event.card, start)
        self.open.setdefault(name, []).append(event.amount)
        self._ends[name] = start + SIZE
        if at_once:
            self.rows.append((name, len(self.open[name]), event.amount))

    def _join(self, event: Timed, latest: int, _: bool) -> None:
        if second(event.at) + SIZE <= latest:
            self.rows.append(("late", 0, event.amount))
            return
        for other in self._kept:
            near = abs(second(event.at) - second(other.at)) <= SIZE
            if near and event.card == other.card and (event.amount + other.amount) % 2:
                odd, even = sorted((event.amount, other.amount), key=lambda one: one % 2 == 0)
                self.rows.append((f"pair {odd}, {even}", 0, max(odd, even)))
        self._kept.append(event)


def _name(card: str, start: int) -> str:
    return f"{card} from {start}"


# ---- what must hold ------------------------------------------------------------------------------------------------


def check_timed(world: TimedWorld, at_no_cost: bool) -> int:
    """What the semantics of a world promise, at rest, after all of `EVENTS`; how many rows a failure has cost, or repeated."""
    doubt = set() if at_no_cost else world.in_doubt
    found, whole = world.rows("journal"), Expected(world.operator, EVENTS)
    if world.semantics == "at-most-once":
        kept = Expected(world.operator, [event for event in EVENTS if event.amount not in doubt])
        cost = _check_at_most_once(world, found, whole, kept, doubt)
        check_counts(world, len(EVENTS) - len(doubt))
    else:
        kept = whole
        cost = _check_at_least_once(world, found, whole, doubt)
        check_counts(world, len(EVENTS))
    if world.operator != "join":
        assert world.windows() == kept.open, "STATE: the open windows are not those of what was not left out"
    check_nothing_left_over(world)
    return cost


def _check_at_least_once(world: TimedWorld, found: Sequence[Row], whole: Expected, doubt: Collection[int]) -> int:
    assert set(found) <= set(whole.rows), f"AT-LEAST-ONCE: {set(found) - set(whole.rows)} is wrong"
    missing = set(whole.rows) - set(found)
    assert not missing, f"AT-LEAST-ONCE: {sorted(missing)} is missing"
    repeated = {row for row in found if found.count(row) > 1}
    may = _written_by(world.operator, doubt)
    assert repeated <= may, f"AT-LEAST-ONCE: {sorted(repeated - may)} came again, and was not open"
    return len(repeated)


def _check_at_most_once(
    world: TimedWorld, found: Sequence[Row], whole: Expected, kept: Expected, doubt: Collection[int]
) -> int:
    """Each row is one of the job over the whole input, or of the job over what was not left out."""
    twice = {row for row in found if found.count(row) > 1}
    assert not twice, f"AT-MOST-ONCE: twice {sorted(twice)}"
    if world.operator != "join":
        ids = [row[2] for row in found]
        again = {one for one in ids if ids.count(one) > 1}
        assert not again, f"AT-MOST-ONCE: {sorted(again)} is in two results"
        unseen = {event.amount for event in EVENTS} - set(ids) - {one for some in kept.open.values() for one in some}
        lost = unseen - set(doubt)
        due = {row[2] for row in _written_by(world.operator, doubt)}
        assert lost <= due, f"AT-MOST-ONCE: {sorted(lost - due)} is missing"
        assert not lost or dropped(world), f"AT-MOST-ONCE: {sorted(lost)} is missing, and was not counted"
        return len(unseen)
    may = set(kept.rows) | _written_by("join", doubt)
    assert set(found) <= may, f"AT-MOST-ONCE: {sorted(set(found) - may)} is wrong"
    missing = set(kept.rows) - set(found)
    assert not missing, f"AT-MOST-ONCE: {sorted(missing)} is missing"
    return len(set(whole.rows) - set(found))


def _written_by(operator: str, doubt: Collection[int]) -> set[Row]:
    """What epochs that were open may have written."""
    if not doubt:
        return set()
    before, after = Expected(operator, EVENTS[: min(doubt)]), Expected(operator, EVENTS[: max(doubt) + 1])
    return set(after.rows) - set(before.rows)
