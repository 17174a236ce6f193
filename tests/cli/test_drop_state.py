"""Records that gain fields, components that are removed, and that each advice of an error about state works as typed."""

from __future__ import annotations

import contextlib
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

from commands import call_in
from waiting import wait_for

PROGRAM = Path(sys.executable).parent / "streamwork"
REPO = Path(__file__).parents[2]
JOB = """
import msgspec
from streamwork import Event, Job, JsonLines, KeyedOperator, Record, SqliteSink

class Payment(Event):
    card: str
    amount: int

class Usage(Event):
    card: str
    total: int
    note: str

class Totals(Record):
{fields}

class Tried(Record):
    seen: int = 0

class PerCard(KeyedOperator[Payment, Totals, Usage]):
    def apply(self, event, state, collector):
        state.total += event.amount
        collector.emit(Usage(event.card, state.total, repr(state)))

class Trying(KeyedOperator[Payment, Tried, Usage]):
    def apply(self, event, state, collector):
        state.seen += 1

job = Job("usage", parallelism={parallelism}, checkpoint_every=0)
payments = job.source(JsonLines("payments.jsonl", Payment, max_events=5), id="payments")
payments.apply(PerCard(), key="card", id="per-card").sink(SqliteSink("usage.db", "usage", key="card"), id="usage")
{tried}
"""
TRIED = 'payments.apply(Trying(), key="card", id="tried").print()'


class World:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.given = 0

    def write(self, fields: str = "total: int = 0", tried: str = "", parallelism: int = 1) -> None:
        code = JOB.format(fields=f"    {fields}".replace("\n", "\n    "), tried=tried, parallelism=parallelism)
        (self.folder / "job.py").write_text(code)

    def give(self, count: int) -> None:
        with (self.folder / "payments.jsonl").open("a") as file:
            for number in range(self.given, self.given + count):
                file.write(f'{{"card": "c{number % 4}", "amount": {number}}}\n')
        self.given += count

    def run(self, *options: str, code: int = 0) -> str:
        """In this process."""
        ended, said = self.tried("--no-restart", *options)
        assert ended == code, said
        return said

    def tried(self, *options: str) -> tuple[int, str]:
        command = ["run", "job.py", "--mode", "local", "--until-caught-up", *options]
        code, out, errors = call_in(self.folder, *command)
        return code, out + errors

    def totals(self) -> dict[str, int]:
        with sqlite3.connect(self.folder / "usage.db") as db:
            return dict(db.execute("SELECT card, total FROM usage").fetchall())

    def expected(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for number in range(self.given):
            found[f"c{number % 4}"] = found.get(f"c{number % 4}", 0) + number
        return found

    def view(self, component: str = "per-card") -> list[tuple[Any, ...]]:
        """Where the job runs meanwhile, a file may be pruned between two looks: then the script is executed again."""
        while True:
            with contextlib.suppress(duckdb.IOException):
                return self._view(component)

    def _view(self, component: str) -> list[tuple[Any, ...]]:
        with duckdb.connect() as db:
            db.execute((self.folder / ".streamwork" / "usage" / "views.sql").read_text())
            return db.sql(f'FROM "{component}" ORDER BY ALL').fetchall()

    def files(self, component: str) -> list[Path]:
        return list((self.folder / ".streamwork" / "usage" / "state" / component).rglob("*.parquet"))


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.write()
    made.give(30)
    return made


NEW = 'tag: str = "new"\ntotal: int = 0\nmore: list[int] = msgspec.field(default_factory=lambda: [1, 2])'
NEW += "\nmaybe: int | None = 7\nnone: str | None = None"


@pytest.mark.usefixtures("prompt_snapshots")
@pytest.mark.slow(parallelism=3)
@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_field_with_a_default_is_added(world: World, parallelism: int) -> None:
    world.write(parallelism=parallelism)
    world.run()
    world.write(NEW, parallelism=parallelism)
    world.run()
    expected = [(card, "new", total, [1, 2], 7, None) for card, total in sorted(world.expected().items())]
    assert world.view() == expected, "before anything is written with the new record"
    world.give(2)  # of two cards: their rows have the new columns, those of the others do not
    world.run()
    expected = [(card, "new", total, [1, 2], 7, None) for card, total in sorted(world.expected().items())]
    assert world.totals() == world.expected()
    assert world.view() == expected
    world.give(200)  # snapshots are made of a mixed chain
    world.run()
    assert world.totals() == world.expected()
    assert world.view() == [(card, "new", total, [1, 2], 7, None) for card, total in sorted(world.expected().items())]
    assert any(path.name.endswith(".snapshot.parquet") for path in world.files("per-card"))


@pytest.mark.slow
def test_a_null_is_no_default(world: World) -> None:
    """Of an optional field with a default, a value that is None stays None."""
    world.run()
    world.write(NEW)
    code = (world.folder / "job.py").read_text()
    (world.folder / "job.py").write_text(code.replace("state.total +=", "state.maybe = None\n        state.total +="))
    world.give(2)  # for c2 and c3
    world.run()
    assert {row[0]: row[4] for row in world.view()} == {"c0": 7, "c1": 7, "c2": None, "c3": None}


def test_a_component_that_was_tried_is_removed(world: World) -> None:
    world.write(tried=TRIED)
    world.run()
    assert world.files("tried")
    world.write()
    world.give(10)
    said = world.run(code=3)
    assert "SW-STATE-ORPHAN" in said
    said = world.run(*advised(said))
    assert "the state of tried in checkpoint" in said and "dropped" in said
    assert world.totals() == world.expected()
    world.give(100)
    world.run()
    assert world.totals() == world.expected()
    assert not world.files("tried"), "retention removes its files"
    assert "tried" not in (world.folder / ".streamwork" / "usage" / "views.sql").read_text()
    world.write(tried=TRIED)  # it may come back, and begins anew
    world.give(4)
    world.run()
    assert world.view("tried") == [("c0", 1), ("c1", 1), ("c2", 1), ("c3", 1)]


@pytest.mark.slow
def test_it_stays_dropped_before_the_first_checkpoint_without_it(world: World) -> None:
    world.write(tried=TRIED)
    world.run()
    world.write()
    world.run("--drop-state", "tried")  # there is no input: no checkpoint is made
    world.give(5)
    world.run()
    assert world.totals() == world.expected()


@pytest.mark.slow
@pytest.mark.proves("a fall back past --drop-state")
def test_a_fall_back_past_the_drop(world: World) -> None:
    world.write(tried=TRIED)
    world.run()
    world.write()
    world.run("--drop-state", "tried")
    world.give(5)
    world.run()
    checkpoints = world.folder / ".streamwork" / "usage" / "checkpoints"
    newest = max(int(path.name.partition(".")[0]) for path in checkpoints.glob("*.prepared.json"))
    for path in checkpoints.glob(f"{newest:012d}.*json"):
        if "plan" not in path.name:
            path.write_text("damaged")
    said = world.run()
    assert "fell back" in said
    world.give(5)
    world.run()
    assert world.totals() == world.expected()


def advised(said: str) -> list[str]:
    """The options that an error's action names."""
    (options,) = set(re.findall(r"--drop-state \S+?(?=[.,;]?(?:\s|$))", said))
    return shlex.split(options)


@pytest.mark.slow(code="SW-STATE-ORPHAN")
@pytest.mark.parametrize(
    ("code", "change"),
    [
        ("SW-STATE-SCHEMA", {"fields": "total: int = 0\nother: float = 0.0"}),
        ("SW-STATE-ORPHAN", {"tried": ""}),
    ],
)
def test_each_advice_about_state_works_as_typed(world: World, code: str, change: dict[str, object]) -> None:
    first: dict[str, object] = {"fields": "total: int = 0\nother: int = 0", "tried": TRIED}
    world.write(**first)  # type: ignore[arg-type]
    world.run()
    world.write(**(first | change))  # type: ignore[arg-type]
    world.give(4)
    options: list[str] = []
    for _ in range(3):  # one for each component that is refused
        ended, said = world.tried(*options)
        if ended == 0:
            break
        assert ended == 3 and code in said, said
        options += advised(said)
    assert ended == 0, said
    world.give(4)
    world.run()  # without the option


@pytest.mark.slow
def test_a_schema_can_be_changed_back(world: World) -> None:
    world.write("total: int = 0\nother: int = 0")
    world.run()
    world.write("total: int = 0\nother: float = 0.0")
    assert "SW-STATE-SCHEMA" in world.run(code=3)
    world.write("total: int = 0\nother: int = 0")
    world.give(4)
    world.run()
    assert world.totals() == world.expected()


@pytest.mark.slow(name=["payments", "usage"])
@pytest.mark.parametrize("name", ["nobody", "payments", "usage"])
def test_an_id_without_state_is_refused(world: World, name: str) -> None:
    assert "SW-STATE-UNKNOWN" in world.run("--drop-state", name, code=3), "a new job has none at all"
    world.run()
    said = world.run("--drop-state", name, code=3)
    assert "SW-STATE-UNKNOWN" in said and "there is state of per-card" in said
    assert world.view() == [(card, total) for card, total in sorted(world.expected().items())]


@pytest.mark.slow
def test_dev_drops_once(world: World) -> None:
    """Also where the first version of the file cannot start, and a later one of several fails."""
    world.write("other: int = 0\ntotal: int = 0")
    world.run()
    world.write("total: int = 0")
    good = (world.folder / "job.py").read_text()
    (world.folder / "job.py").write_text(good + "\nraise ValueError('not yet')\n")
    command = [PROGRAM, "dev", "job.py", "--drop-state", "per-card"]
    log = world.folder / "dev.log"
    with log.open("w") as output:
        dev = subprocess.Popen(command, cwd=world.folder, stdout=output, stderr=subprocess.STDOUT)
        try:
            wait_for(lambda: "waiting for job.py" in log.read_text(), dev, log)
            (world.folder / "job.py").write_text(good)
            wait_for(lambda: "is dropped" in log.read_text(), dev, log)
            world.give(4)
            wait_for(lambda: sum(row[1] for row in world.view()) == 30 + 31 + 32 + 33, dev, log)  # type: ignore[arg-type]
            (world.folder / "job.py").write_text(good + "\n# saved again\n")
            wait_for(lambda: log.read_text().count("resumed at checkpoint") >= 2, dev, log)
        finally:
            dev.send_signal(signal.SIGINT)
            dev.wait()
    assert log.read_text().count("is dropped") == 1
    assert sum(row[1] for row in world.view()) == 30 + 31 + 32 + 33  # type: ignore[arg-type]


def test_docs_state_page_runs(tmp_path: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (REPO / "docs" / "state.md").read_text(), re.DOTALL)
    (tmp_path / "example.py").write_text(block)
    answer = subprocess.run([sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
