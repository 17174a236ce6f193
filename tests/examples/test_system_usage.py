"""The system usage job: its numbers, outages of the store, recovery with a look-up that is not deterministic, semantics, a move."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crashes import Crash, CrashAt
from sample import run_job
from streamwork import EventLog, Job, JobFailed, Refused
from streamwork.components.schema import arrow_schema
from streamwork.epoch import Manifest, Phase
from type_checkers import Checker, mypy, pyright
from usage_example import (
    FOLDER,
    TABLE,
    WRITERS,
    Decisions,
    LookUp,
    Scene,
    StoreUnavailable,
    Transaction,
    compare,
    move,
    transaction,
    truth,
    verdict,
)
from usage_example import build as build_job
from waiting import wait_for

Numbers = tuple[int, int, int]


class World:
    """A scene, and the files of the job."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.scene = Scene(folder)
        self.database = folder / "usage.db"

    def build(self, sink: str = "upsert", max_events: int = 50, **settings: Any) -> Job:
        settings = {"checkpoint_every": 0, **settings}
        return build_job(
            self.scene.log, self.scene.decisions, WRITERS[sink](self.database), max_events=max_events, **settings
        )

    def run(self, job: Job | None = None, root: str = "root", **options: Any) -> Any:
        return run_job(job or self.build(), self.folder / root, **options)

    def rows(self, columns: str = "transactions, fraudulent, unknown") -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.database)) as db:
            return db.execute(f"SELECT {columns} FROM {TABLE} ORDER BY rowid").fetchall()

    def recomputed(self) -> Numbers:
        """The numbers by a plain program over the log and the store."""
        with closing(sqlite3.connect(self.scene.decisions)) as db:
            verdicts = dict(db.execute('SELECT "transaction", fraud FROM decisions').fetchall())
        with EventLog(self.scene.log, Transaction) as log:
            events = log.pull(max_events=1_000_000)
        found = [verdicts.get(event.id) for event in events if event.id and event.amount >= 0]
        return len(found), found.count(1), found.count(None)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def changed(event: Transaction, **fields: Any) -> Transaction:
    made: Transaction = msgspec.structs.replace(event, **fields)
    return made


# ---- numbers --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("look_up", ["batches", "events"])
def test_the_numbers_are_those_of_a_plain_program(world: World, look_up: str) -> None:
    """In two runs, at parallelism 2, with invalid transactions between."""
    world.scene.add(range(120))
    world.run(world.build(look_up=look_up, parallelism=2))
    assert world.rows() == [truth(120)]
    with EventLog(world.scene.log, Transaction) as log:
        log.append([changed(transaction(500), amount=-1.0), changed(transaction(501), id="")])
    world.scene.add(range(120, 200))
    world.run(world.build(look_up=look_up, parallelism=2))
    assert world.rows() == [world.recomputed()] == [truth(200)]


def test_no_verdict_is_not_no_fraud(world: World) -> None:
    """A verdict that arrives later does not change what was counted."""
    world.scene.append(range(20))
    world.scene.judge(range(10))
    world.run(world.build("append"))
    counted = dict(world.rows('"transaction", verdict'))
    names = {True: "fraud", False: "no fraud"}
    assert counted == {f"t{n}": names[n % 7 == 0] if n < 10 else "unknown" for n in range(20)}
    world.scene.judge(range(20))
    world.run(world.build("append"))
    assert world.rows()[-1] == (20, 2, 10)


def test_an_invalid_transaction_is_neither_looked_up_nor_counted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[str] = []
    find = Decisions.find

    def noting(self: Decisions, transactions: Sequence[str]) -> dict[str, bool]:
        looked_up.extend(asked := list(transactions))
        return find(self, asked)

    monkeypatch.setattr(Decisions, "find", noting)
    world.scene.judge(range(3))
    with EventLog(world.scene.log, Transaction) as log:
        log.append([transaction(0), changed(transaction(1), amount=-5.0), changed(transaction(2), id="")])
    world.run()
    assert looked_up == ["t0"]
    assert world.rows() == [(1, 1, 0)]


def test_transactions_have_the_fields_of_fraud_detection() -> None:
    theirs = pytest.importorskip("fraud.transaction", reason="there is no fraud detection yet").Transaction
    assert arrow_schema(Transaction) == arrow_schema(theirs)


# ---- outages --------------------------------------------------------------------------------------------------------------


class Outage:
    """A watcher under which the store fails from one checkpoint on, until a transaction was retried a few times."""

    def __init__(self, store: Path, kind: str, checkpoint: int = 2) -> None:
        self._store, self._kind, self._checkpoint = store, kind, checkpoint
        self._elsewhere = store.with_suffix(".elsewhere")
        self.failed = threading.Event()
        self.ended: threading.Thread | None = None

    def on_phase(self, phase: Phase, epoch: int, manifest: Manifest | None) -> None:
        if phase is Phase.COMPLETE and epoch == self._checkpoint:
            begun = threading.Event()
            self.ended = threading.Thread(target=self._fail, args=(begun,))
            self.ended.start()
            begun.wait()

    def _fail(self, begun: threading.Event) -> None:
        if self._kind == "locked":
            with closing(sqlite3.connect(self._store, isolation_level=None)) as db:
                db.execute("BEGIN EXCLUSIVE")
                begun.set()
                self.failed.wait(60)
            return
        self._store.rename(self._elsewhere)
        if self._kind == "damaged":
            self._store.write_bytes(b"no database" * 1_000)
        begun.set()
        self.failed.wait(60)
        self._elsewhere.replace(self._store)

    def on_starting(self, *_: Any) -> None: ...
    def on_started(self, *_: Any) -> None: ...
    def on_note(self, line: str) -> None: ...
    def on_end(self, *_: Any) -> None: ...
    def close(self) -> None: ...


@pytest.fixture
def outage(world: World, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Outage]:
    """An outage that ends after three failed look-ups."""

    def begin(kind: str) -> Outage:
        watcher, failures, find = Outage(world.scene.decisions, kind), [], Decisions.find

        def counting(self: Decisions, transactions: Sequence[str]) -> dict[str, bool]:
            try:
                return find(self, transactions)
            except StoreUnavailable as error:
                failures.append(error)
                if len(failures) == 3:
                    watcher.failed.set()
                raise

        monkeypatch.setattr(Decisions, "find", counting)
        return watcher

    return begin


@pytest.mark.parametrize("semantics", ["exactly-once", "at-most-once"])
@pytest.mark.parametrize("kind", ["missing", "locked", "damaged"])
def test_an_outage_of_the_store_delays_the_job_and_costs_nothing(
    world: World, outage: Callable[[str], Outage], kind: str, semantics: str
) -> None:
    world.scene.add(range(300))
    watcher = outage(kind)
    outcome = world.run(world.build("append", semantics=semantics), watcher=watcher)
    assert watcher.ended is not None
    watcher.ended.join()
    assert (outcome.restarts, outcome.dropped, outcome.events) == (0, 0, 300)
    assert outcome.retried >= 3
    assert world.rows()[-1] == world.recomputed() == truth(300)
    assert len(world.rows()) == 300


def test_control_without_a_retry_the_outage_stops_the_job(
    world: World, outage: Callable[[str], Outage], monkeypatch: pytest.MonkeyPatch
) -> None:
    world.scene.add(range(300))
    watcher = outage("missing")
    with pytest.raises(JobFailed, match="StoreUnavailable"):
        world.run(watcher=watcher, on_error={"look-up": "fail"})
    watcher.failed.set()
    assert watcher.ended is not None
    watcher.ended.join()
    assert world.rows()[0][0] < 300
    world.run()
    assert world.rows() == [truth(300)], "the next start continues"


@pytest.mark.slow
def test_a_stop_during_an_outage_ends_well_and_loses_nothing(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "data")
    scene.add(range(100))
    place = move.first_place(tmp_path)
    elsewhere = scene.decisions.rename(scene.decisions.with_suffix(".elsewhere"))
    with place.running() as process:
        output = place.folder / "output.txt"
        wait_for(lambda: "retries an event" in output.read_text(), process, output)
        process.terminate()
        assert process.wait(120) == 0
    assert place.numbers() == (0, 0, 0)
    elsewhere.rename(scene.decisions)
    with place.running("--until-caught-up") as process:
        assert process.wait(120) == 0
    assert place.numbers() == truth(100)


# ---- recovery -------------------------------------------------------------------------------------------------------------


class Fickle:
    """A store whose verdicts are of the life of the driver that looks them up."""

    def __init__(self) -> None:
        self.life = 1
        self.asked: list[tuple[int, str]] = []

    def find(self, transactions: Sequence[str]) -> dict[str, bool]:
        asked = list(transactions)
        self.asked += [(self.life, id) for id in asked]
        return dict.fromkeys(asked, self.life > 1)


@pytest.fixture
def fickle(monkeypatch: pytest.MonkeyPatch) -> Fickle:
    store = Fickle()
    monkeypatch.setattr(Decisions, "find", lambda self, transactions: store.find(transactions))
    return store


PREPARED = [Phase.PREPARE, Phase.COMMIT, Phase.COMPLETE]
"""The phases of an epoch after which it counts."""


@pytest.mark.parametrize("phase", [Phase.PLAN, Phase.COMPUTE, Phase.REPORT, *PREPARED], ids=lambda phase: phase.value)
def test_what_was_prepared_is_not_looked_up_again(world: World, fickle: Fickle, phase: Phase) -> None:
    """The verdicts change at the crash. Rows and state agree: the rows of a prepared epoch have the verdicts of its first life."""
    world.scene.append(range(200))
    with pytest.raises(Crash):
        world.run(world.build("append"), watcher=CrashAt(2, phase))
    prepared = 150 if phase in PREPARED else 100
    first = [id for life, id in fickle.asked if life == 1]
    fickle.life = 2
    world.run(world.build("append"))
    again = [id for life, id in fickle.asked if life == 2 and id in first]
    rows = world.rows('verdict, "transaction", transactions, fraudulent')
    assert [row[2] for row in rows] == list(range(1, 201)) and len({row[1] for row in rows}) == 200
    old = sum(row[0] == "no fraud" for row in rows)
    assert [row[0] for row in rows] == ["no fraud"] * old + ["fraud"] * (200 - old)
    assert [row[3] for row in rows] == [0] * old + list(range(1, 201 - old)), (
        "the numbers in the rows are those of the verdicts"
    )
    assert old >= prepared, "a prepared epoch was computed again"
    assert not set(again) & {row[1] for row in rows[:old]}, "what counts was looked up once"
    if phase in (Phase.COMPUTE, Phase.REPORT):
        assert again, "what was not prepared is looked up again, or nothing was tested"


def test_falling_back_is_refused_because_verdicts_may_differ(world: World, fickle: Fickle) -> None:
    world.scene.append(range(200))
    world.run(world.build("append"))
    damage_the_newest_checkpoint(world.folder / "root")
    fickle.life = 2
    before = world.rows("*")
    with pytest.raises(Refused, match="(?s)SW-STATE-DIVERGES.*look-up is not deterministic"):
        world.run(world.build("append"))
    world.run(world.build("append"), accept_divergence=True)
    again = len([id for life, id in fickle.asked if life == 2])
    assert again and world.rows("*") == before, "it was computed again, and not written again"
    world.scene.append(range(200, 210))
    world.run(world.build("append"))
    (*_, (transactions, fraudulent, _)) = world.rows()
    assert (transactions, len(world.rows())) == (210, 210)
    assert fraudulent == again + 10, "the state has other verdicts than the rows: the divergence that was accepted"


def test_control_a_look_up_that_claims_to_be_deterministic_diverges_silently(
    world: World, fickle: Fickle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LookUp, "deterministic", True)
    world.scene.append(range(200))
    world.run(world.build("append"))
    damage_the_newest_checkpoint(world.folder / "root")
    fickle.life = 2
    world.scene.append(range(200, 210))
    world.run(world.build("append"))
    verdicts = [name for (name,) in world.rows("verdict")]
    assert world.rows()[-1][1] > verdicts.count("fraud")


def damage_the_newest_checkpoint(root: Path) -> None:
    folder = root / "system-usage" / "checkpoints"
    newest = max(path.name.split(".")[0] for path in folder.glob("*.json"))
    for path in (folder / f"{newest}.json", folder / f"{newest}.prepared.json"):
        path.write_text("damaged")


# ---- semantics ------------------------------------------------------------------------------------------------------------

CELLS = [(semantics, sink) for semantics in compare.SEMANTICS for sink in WRITERS]


@pytest.mark.slow
@pytest.mark.parametrize(("semantics", "sink"), CELLS)
def test_each_of_the_semantics_after_kill_9_in_the_middle_of_a_write(tmp_path: Path, semantics: str, sink: str) -> None:
    """The table in the example's README has the same row."""
    cell = compare.cell(semantics, sink, tmp_path)
    assert cell.as_promised, cell
    assert compare.table([cell]).splitlines()[-1] in (FOLDER / "README.md").read_text().splitlines()
    if semantics == "exactly-once" and not cell.refused:
        assert World(tmp_path).rows()[-1] == truth(1_000)


@pytest.mark.slow
def test_after_kill_9_in_a_commit_rows_have_the_verdicts_that_were_prepared(tmp_path: Path) -> None:
    """All verdicts are turned round between the two lives of the driver."""
    world = World(tmp_path)

    def turn_round(first: Callable[[], Any]) -> Any:
        ended = first()
        if ended.returncode == -signal.SIGKILL:
            with closing(sqlite3.connect(world.scene.decisions)) as db, db:
                db.execute("UPDATE decisions SET fraud = 1 - fraud")
        return ended

    run = subprocess.run
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(subprocess, "run", lambda *given, **named: turn_round(lambda: run(*given, **named)))
        assert compare.cell("exactly-once", "append", tmp_path, events=400).as_promised
    rows = world.rows('"transaction", verdict')
    names = {True: "fraud", False: "no fraud", None: "unknown"}
    as_before = [verdict(int(id[1:])) for id, _ in rows]
    assert [name for _, name in rows[:300]] == [names[one] for one in as_before[:300]], (
        "they were prepared before the kill"
    )
    turned = [None if one is None else not one for one in as_before[300:]]
    assert [name for _, name in rows[300:]] == [names[one] for one in turned]


SPLIT = """
def append(database: Path) -> Sink[Usage]:
    return SplitLedger(database, TABLE)


class SplitLedger(SqliteSink[Usage]):
    def commit(self, entry, staged):
        from streamwork import Verdict, settle
        with self._transaction() as db:
            verdict = settle(self._row(db, entry.uid, entry.sink), entry)
        if verdict is Verdict.APPLY:
            for batch in staged:
                self.write(batch)
        with self._transaction() as db:
            self._advance(db, entry, entry.end if verdict is Verdict.APPLY else None)


class IncrementingSink"""


@pytest.mark.slow
def test_control_with_rows_and_ledger_in_two_transactions_exactly_once_repeats_rows(tmp_path: Path) -> None:
    example = shutil.copytree(FOLDER, tmp_path / "example", ignore=shutil.ignore_patterns("__pycache__"))
    writers = example / "usage" / "writers.py"
    writers.write_text(writers.read_text().replace("class IncrementingSink", SPLIT, 1))
    command = [sys.executable, "compare.py", "--semantics", "exactly-once", "--sink", "append", "--events", "400"]
    said = subprocess.run([*command, "--json"], cwd=example, capture_output=True, text=True, check=False)
    assert said.returncode == 1, said.stderr
    (cell,) = json.loads(said.stdout)["cells"]
    assert (cell["missing"], cell["repeated"]) == (0, 50)


@pytest.mark.parametrize(
    ("semantics", "sink", "missing", "repeated", "promised"),
    [
        ("at-most-once", "append", 50, 0, True),
        ("at-most-once", "append", 0, 0, False),
        ("at-most-once", "append", 50, 1, False),
        ("at-least-once", "increment", 0, 50, True),
        ("at-least-once", "increment", 0, 0, False),
        ("at-least-once", "increment", 1, 50, False),
        ("at-least-once", "upsert", 0, 0, True),
        ("exactly-once", "upsert", 0, 0, True),
        ("exactly-once", "upsert", 1, 0, False),
        ("exactly-once", "append", 0, 1, False),
        ("exactly-once", "increment", 0, 0, False),
    ],
)
def test_the_comparison_knows_what_the_semantics_promise(
    semantics: str, sink: str, missing: int, repeated: int, promised: bool
) -> None:
    assert compare.Cell(semantics, sink, 400, 400, missing, repeated).as_promised is promised


def test_the_comparison_counts_what_is_missing_and_repeated(world: World) -> None:
    with closing(sqlite3.connect(world.database)) as db, db:
        db.execute(f'CREATE TABLE {TABLE} ("transaction")')
        db.executemany(f"INSERT INTO {TABLE} VALUES (?)", [("t0",), ("t1",), ("t1",), ("t3",)])
    cell = compare.counted("at-least-once", "append", 4, world.database)
    assert (cell.counted, cell.missing, cell.repeated) == (4, 1, 1)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_on_spark_exactly_once_is_right_and_at_least_once_repeats(tmp_path: Path) -> None:
    """Killed in the middle of a commit, or of a write by a worker."""
    exactly = compare.cell("exactly-once", "append", tmp_path / "exactly", "microbatch", events=400)
    assert exactly.as_promised, exactly
    assert World(tmp_path / "exactly").rows()[-1] == truth(400)
    at_least = compare.cell("at-least-once", "append", tmp_path / "at-least", "microbatch", events=400)
    assert at_least.as_promised, at_least


# ---- a move ---------------------------------------------------------------------------------------------------------------


def test_a_copied_root_continues_and_the_old_one_is_refused(world: World) -> None:
    world.scene.add(range(100))
    world.run()
    shutil.copytree(world.folder / "root", world.folder / "moved")
    world.scene.add(range(100, 200))
    world.run(root="moved")
    assert world.rows() == [truth(200)]
    with pytest.raises(Refused, match="SW-ROOT-MOVED"):
        world.run(root="root")
    world.scene.add(range(200, 250))
    world.run(root="moved")
    assert world.rows() == [truth(250)]


def test_control_a_root_without_its_identity_is_another_job(world: World) -> None:
    world.scene.add(range(100))
    world.run()
    with pytest.raises(Refused, match="SW-SINK-OWNED"):
        world.run(root="new")


@pytest.mark.slow
@pytest.mark.parametrize(("kill", "database"), [(False, "moves"), (False, "stays"), (True, "moves"), (True, "stays")])
def test_the_job_moves_while_transactions_arrive(tmp_path: Path, kill: bool, database: str) -> None:
    moved = move.drill(tmp_path, kill, database)
    assert moved.exact, moved
    place = tmp_path / ("new" if database == "moves" else ".") / "usage.db"
    world = World(tmp_path / "data")
    world.database = place
    assert world.rows() == [world.recomputed()]


@pytest.mark.slow
def test_a_process_that_was_left_behind_is_fenced_off(tmp_path: Path) -> None:
    """It was suspended during the move, and resumes when the job runs elsewhere."""
    scene = Scene(tmp_path / "data")
    scene.add(range(100))
    old = move.first_place(tmp_path, "stays")
    with old.running() as left:
        old.wait(left, lambda found: found[0] >= 100)
        left.send_signal(signal.SIGSTOP)
        new = old.move(tmp_path / "new")
        scene.add(range(100, 200))
        with new.running("--take-over") as process:
            new.wait(process, lambda found: found[0] >= 200)
            left.send_signal(signal.SIGCONT)
            scene.add(range(200, 300))
            assert left.wait(120) == 3
            assert "SW-SINK-FENCED" in (old.folder / "output.txt").read_text()
            assert new.wait(process, lambda found: found[0] >= 300) == truth(300)


@pytest.mark.slow
@pytest.mark.parametrize("checker", [mypy, pyright], ids=["mypy", "pyright"])
def test_type_checkers_accept_it(tmp_path: Path, checker: Checker) -> None:
    ignored = shutil.ignore_patterns("__pycache__", ".streamwork", "*.db", "data")
    assert checker(shutil.copytree(FOLDER, tmp_path / "system_usage", ignore=ignored)) == {}
