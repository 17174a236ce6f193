"""Rows that a table refuses for good: the job stops before them, or goes on without them and keeps them as dead letters."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matrix.faults import Fault, damage
from matrix.oracles import check, check_closed, check_ledgers, check_nothing_left_over, check_state, fold
from matrix.points import POINTS, Point
from matrix.world import EVENTS, MORE, SLICE, World
from sample import Payment
from streamwork import Event
from streamwork.components.columns import to_structs
from streamwork.delivery import DeadLetters
from streamwork.engine import EndKnown
from streamwork.epoch import sinks as driver_side
from streamwork.epoch.effects import Effects
from streamwork.epoch.rejected import sift
from streamwork.hosts.local import LocalHost
from streamwork.world import Disk, RealDisk
from tiers import quick_every

Row = tuple[str, int, int]
PICKY = "CHECK (total % 5 <> 3)"
KEY = ", PRIMARY KEY (card)"


pytestmark = pytest.mark.usefixtures("short_chains")


def refused(row: Row) -> bool:
    """What PICKY says."""
    return row[2] % 5 == 3


def picky_world(folder: Path, on_error: str, sinks: Sequence[str] = ("journal", "log"), rule: str = PICKY) -> World:
    """A world whose table was made by somebody with rules."""
    world = World(folder, sinks)
    world.refused = on_error
    for name in set(sinks) - {"log"}:
        key = KEY if name == "latest" else ""
        _run_sql(world, f"CREATE TABLE {name} (card TEXT, number INTEGER, total INTEGER, {rule}{key})")
    return world


def _run_sql(world: World, *statements: str) -> None:
    with closing(sqlite3.connect(world.database)) as db, db:
        for statement in statements:
            db.execute(statement)


def letters(world: World, sink: str = "journal") -> list[Row]:
    """The rows in the dead letters of a sink, each of which says where it comes from and why."""
    found = []
    for path in sorted(world.home.glob("dead-letters/*/*.parquet")):
        for letter in pq.read_table(path).to_pylist():
            assert letter["component"] == path.parent.name == sink
            assert path.name == f"{letter['epoch']:012d}.refused.parquet"
            assert "constraint failed" in letter["error"]
            event = json.loads(letter["event"])
            found.append((event["card"], event["number"], event["total"]))
    return found


def check_without(world: World, events: Sequence[Payment], kept_letters: bool) -> None:
    """The log has every row, the table those that it takes, the dead letters the others."""
    rows, state = fold(events)
    bad = [row for row in rows if refused(row)]
    assert len(bad) > 3
    assert Counter(world.rows("log")) == Counter(rows), "ECHO log"
    assert Counter(world.rows("journal")) == Counter(rows) - Counter(bad), "ECHO journal"
    assert Counter(letters(world)) == Counter(bad if kept_letters else []), "DEAD LETTERS"
    check_state(world, state)
    check_ledgers(world)
    check_closed(world, len(events))
    check_nothing_left_over(world)


def bad_epochs(events: Sequence[Payment]) -> list[int]:
    return sorted({place // SLICE + 1 for place, row in enumerate(fold(events)[0]) if refused(row)})


# ---- fail -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sinks", [("journal",), ("journal", "log")], ids=" + ".join)
def test_a_refused_row_stops_the_job_and_nothing_of_its_epoch_is_in_the_table(
    folder: Path, sinks: tuple[str, ...]
) -> None:
    world = picky_world(folder, "fail", sinks)
    good = fold(EVENTS[: (bad_epochs(EVENTS)[0] - 1) * SLICE])[0]
    for _ in range(3):
        assert world.live(EVENTS).code == "SW-SINK-REJECTED"
        assert all(Counter(world.rows(name)) == Counter(good) for name in sinks)
        assert not letters(world)
    _run_sql(world, *RELAXED)
    world.live(MORE).survived()
    check(world, MORE)


def test_a_job_that_stopped_at_a_row_may_go_on_without_it(folder: Path) -> None:
    world = picky_world(folder, "fail")
    assert world.live(EVENTS).code == "SW-SINK-REJECTED"
    world.refused = "dead-letter"
    world.live(MORE).survived()
    check_without(world, MORE, kept_letters=True)


# ---- dead letters, and rows that are dropped ------------------------------------------------------------------------


@pytest.mark.parametrize("point", quick_every(4, POINTS), ids=lambda point: point.name)
def test_exactly_the_refused_rows_are_dead_letters_wherever_the_job_breaks(folder: Path, point: Point) -> None:
    world = picky_world(folder, "dead-letter")
    world.live(EVENTS, list(point.faults())[-1])
    world.live(EVENTS).survived()
    check_without(world, EVENTS, kept_letters=True)


@pytest.mark.parametrize("at", ["told plan *", "told prepare *", "rows written to journal", "told commit *"])
def test_exactly_the_refused_rows_are_dropped(folder: Path, at: str) -> None:
    world = picky_world(folder, "drop")
    world.live(EVENTS, Fault(at, 4, dead=True))
    world.live(MORE).survived()
    check_without(world, MORE, kept_letters=False)


LETTER_FAULTS = [
    Fault("before replace outputs/*-refused.json", dead=True),
    Fault("after replace outputs/*-refused.json", dead=True),
    Fault("after replace outputs/*-refused.copy.json", dead=True),
    Fault("before replace outputs/*-refused.json", error=OSError),
    Fault("before replace dead-letters/*", dead=True),
    Fault("after replace dead-letters/*", dead=True),
    Fault("before replace dead-letters/*", error=OSError),
]


@pytest.mark.parametrize("nth", quick_every(3, [1, 2, 3]))
@pytest.mark.parametrize("fault", LETTER_FAULTS, ids=lambda fault: f"{fault.at}-{fault.dead}")
def test_dead_letters_are_written_once_also_if_that_is_where_it_breaks(folder: Path, fault: Fault, nth: int) -> None:
    world = picky_world(folder, "dead-letter")
    world.live(EVENTS, replace(fault, nth=nth))
    world.live(MORE).survived()
    check_without(world, MORE, kept_letters=True)


@pytest.mark.parametrize("by", [1, 2])
def test_a_table_that_is_behind_refuses_the_same_rows_again(folder: Path, by: int) -> None:
    world, kept = picky_world(folder, "dead-letter"), []

    def on_line(line: str) -> None:
        if line == f"told prune {8 - by}":
            kept.append(world.keep_copy("journal"))

    world.on_line = on_line
    world.live(EVENTS).survived()
    kept[0]()
    world.live(MORE).survived()
    check_without(world, MORE, kept_letters=True)


def test_an_epoch_that_is_computed_again_keeps_its_dead_letters_once(folder: Path) -> None:
    """Its letters were recorded, then its staged output was lost before the table had it: another epoch takes its place."""
    world = picky_world(folder, "dead-letter")
    world.live(EVENTS, Fault("after replace outputs/journal/*-refused.copy.json", 2, dead=True))
    record = sorted(world.home.glob("outputs/journal/*-refused.json"))[-1]
    damage(sorted(world.home.glob(f"outputs/journal/{record.name[:12]}-*.arrow"))[0], "flipped")
    world.live(MORE).survived()
    check_without(world, MORE, kept_letters=True)


class ByReport(LocalHost):
    def __init__(self, disk: Disk, **options: Any) -> None:
        super().__init__(disk, ends_known=EndKnown.BY_REPORT, **options)


@pytest.mark.parametrize("host", [LocalHost, ByReport])
@pytest.mark.parametrize("has", [False, True])
@pytest.mark.proves("refused rows recorded, and the prepared manifest lost before or after the commit")
def test_refused_rows_are_dead_letters_once_also_if_the_manifest_is_lost(
    folder: Path, has: bool, host: type[LocalHost]
) -> None:
    """The prepared manifest of an epoch with such rows is damaged before the table has that epoch, or after."""
    world = picky_world(folder, "dead-letter", ("journal",))
    world.host = host
    epoch = bad_epochs(EVENTS)[1]
    at = f"told commit {epoch}" if has else f"after replace outputs/journal/{epoch:012d}-*-refused.copy.json"
    world.live(EVENTS, Fault(at, dead=True))
    assert int(world.checkpoints[-1].name[:12]) == epoch - 1, "the last one that is completed"
    damage(world.home / f"checkpoints/{epoch:012d}.prepared.json", "flipped")
    world.live(MORE).survived()
    rows = Counter(fold(MORE)[0])
    bad = Counter({row: count for row, count in rows.items() if refused(row)})
    assert Counter(letters(world)) == bad and Counter(world.rows("journal")) == rows - bad


@pytest.mark.parametrize("has", [False, True])
@pytest.mark.proves("refused rows published by the position of the sink")
def test_if_the_position_of_the_table_does_not_decide_the_checker_notices(
    folder: Path, has: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control: the opposite is taken for true."""
    monkeypatch.setattr(Effects, "_has", lambda *_: not has)
    with pytest.raises(AssertionError):
        test_refused_rows_are_dead_letters_once_also_if_the_manifest_is_lost(folder, has, ByReport)


RELAXED = [
    "ALTER TABLE journal RENAME TO old",
    "CREATE TABLE journal (card TEXT, number INTEGER, total INTEGER)",
    "INSERT INTO journal SELECT * FROM old ORDER BY rowid",
    "DROP TABLE old",
]


@pytest.mark.proves("rows rejected, and accepted before their checkpoint completes")
def test_a_record_of_refused_rows_that_the_table_takes_later_does_not_count(folder: Path) -> None:
    """The rows were recorded and not committed; the next driver commits all of them, and dies before it is ready."""
    world = picky_world(folder, "dead-letter")
    world.live(EVENTS, Fault("after replace outputs/journal/*-refused.copy.json", dead=True))
    _run_sql(world, *RELAXED)
    world.live(MORE, Fault("before create fences/2.start.json", dead=True))
    world.live(MORE).survived()
    check(world, MORE)
    assert not letters(world)


@pytest.mark.proves("a record of each commit")
def test_without_a_record_of_each_offer_the_checker_notices(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = DeadLetters.stage_refused
    monkeypatch.setattr(DeadLetters, "stage_refused", lambda self, *to: stage(self, *to) if to[-1] else None)
    with pytest.raises(AssertionError):
        test_a_record_of_refused_rows_that_the_table_takes_later_does_not_count(folder)


@pytest.mark.parametrize(
    "at", [*(f"told {step} 3" for step in ("prepare", "commit")), "before create checkpoints/*3.json"]
)
def test_letters_cannot_be_replayed_before_their_checkpoint_is_completed(folder: Path, at: str) -> None:
    world = picky_world(folder, "dead-letter")
    world.live(EVENTS, Fault(at, dead=True))
    completed = {int(path.name[:12]) for path in world.checkpoints}
    assert {letter.epoch for letter in DeadLetters(RealDisk(), world.home).all()} <= completed
    world.live(MORE).survived()
    check_without(world, MORE, kept_letters=True)


def test_the_count_of_dead_letters_is_told(folder: Path) -> None:
    for on_error in ("dead-letter", "drop"):
        world = picky_world(folder / on_error, on_error)
        told = world.live(EVENTS).survived().refusals
        count = sum(map(refused, fold(EVENTS)[0]))
        dropped = on_error == "drop"
        assert told == {"dropped": count if dropped else 0, "dead_letters": 0 if dropped else count}


def test_a_row_is_refused_only_because_of_another(folder: Path) -> None:
    """Whichever of two equal rows comes first is taken; the other one is a dead letter."""
    world = picky_world(folder, "dead-letter", rule="UNIQUE (total)")
    world.live(EVENTS, Fault("told commit *", 7, dead=True))
    world.live(MORE).survived()
    rows, taken, others = fold(MORE)[0], world.rows("journal"), letters(world)
    assert Counter(taken) + Counter(others) == Counter(rows)
    totals = [total for _, _, total in taken]
    assert others and len(set(totals)) == len(totals)
    assert {total for _, _, total in others} <= set(totals)


def test_a_keyed_table_shows_the_last_row_that_it_takes(folder: Path) -> None:
    world = picky_world(folder, "dead-letter", ("latest",))
    world.live(EVENTS, Fault("told prepare *", 5, dead=True))
    world.live(MORE).survived()
    rows = fold(MORE)[0]
    assert {row[0]: row for row in world.rows("latest")} == {row[0]: row for row in rows if not refused(row)}
    assert set(letters(world, "latest")) <= {row for row in rows if refused(row)}
    check_ledgers(world)


# ---- negative controls ----------------------------------------------------------------------------------------------


def test_with_a_sift_that_gives_up_too_much_the_checker_notices(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def whole_pieces(rows: Sequence[pa.RecordBatch], rejects: Callable[..., str], kind: type[Event]) -> Any:
        good = [batch for batch in rows if not rejects([batch])]
        return good, [(row, "bad") for batch in rows if rejects([batch]) for row in to_structs(kind, batch)]

    monkeypatch.setattr(driver_side, "sift", whole_pieces)
    world = picky_world(folder, "dead-letter")
    world.live(MORE).survived()
    with pytest.raises(AssertionError, match="ECHO journal"):
        check_without(world, MORE, kept_letters=True)


def test_without_dead_letters_the_checker_notices(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeadLetters, "publish_refused", lambda *_: None)
    world = picky_world(folder, "dead-letter")
    world.live(MORE).survived()
    with pytest.raises(AssertionError, match="DEAD LETTERS"):
        check_without(world, MORE, kept_letters=True)


# ---- sift -----------------------------------------------------------------------------------------------------------


class Value(Event):
    value: int


BATCHES = st.lists(st.lists(st.integers(0, 15), max_size=20), max_size=5)


def as_batches(values: list[list[int]]) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_pydict({"value": pa.array(some, pa.int64())}) for some in values]


def flat(batches: Sequence[pa.RecordBatch]) -> list[int]:
    return [value for batch in batches for value in batch.column(0).to_pylist()]


class Picky:
    """A table with two rules, which counts how often it is asked."""

    def __init__(self, bad: set[int], unique: bool) -> None:
        self.bad, self.unique, self.asked = bad, unique, 0

    def __call__(self, rows: Sequence[pa.RecordBatch]) -> str:
        self.asked += 1
        values = flat(rows)
        if odd := self.bad & set(values):
            return f"bad: {min(odd)}"
        return "twice" if self.unique and len(set(values)) < len(values) else ""

    def one_by_one(self, values: list[int]) -> tuple[list[int], list[int]]:
        """The model: each row is tried after those that were taken."""
        taken: list[int] = []
        others: list[int] = []
        for value in values:
            (others if value in self.bad or (self.unique and value in taken) else taken).append(value)
        return taken, others


@settings(max_examples=200, deadline=None)
@given(values=BATCHES, bad=st.sets(st.integers(0, 15), max_size=4), unique=st.booleans())
def test_sift_takes_what_one_by_one_would_take(values: list[list[int]], bad: set[int], unique: bool) -> None:
    table = Picky(bad, unique)
    accepted, others = sift(as_batches(values), table, Value)
    everything = [value for some in values for value in some]
    assert (flat(accepted), [row.value for row, _ in others]) == table.one_by_one(everything)
    assert all(why for _, why in others)


@given(size=st.integers(1, 3000), place=st.integers(0, 2999))
def test_sift_finds_one_bad_row_among_many_without_asking_often(size: int, place: int) -> None:
    table = Picky({place % size}, unique=False)
    _, others = sift(as_batches([list(range(size))]), table, Value)
    assert [row.value for row, _ in others] == [place % size]
    assert table.asked <= 2 * size.bit_length() + 1
