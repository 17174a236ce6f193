"""Files that are not Streamwork's own, in any of its folders, are passed over; so are the odd things that inputs end in."""

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sample import Payment, run_job
from source_ends import end_of
from streamwork import Csv, Job, JsonLines, KeyedOperator, LogSink, LogSource, Parquet, ParquetSink, Record, SqliteSink
from streamwork.log import EventLog
from streamwork.world import EPOCH_DIGITS, number_of
from tiers import quick_every

NUMBERS = [
    "\u00b2" * 12,
    "\u0664\u0662",
    "\u0660" * 11 + "\u0669",
    "42",
    "0042",
    "0" * 13 + "42",
    "0" * 24 + "1",
    "\uff11" * 20,
]
ENDS = [
    ".json",
    ".plan.json",
    ".prepared.json",
    ".start.json",
    ".alive",
    ".parquet",
    ".arrow",
    ".index",
    ".request",
    "",
]
STRAYS = [
    ".DS_Store",
    "Thumbs.db",
    "desktop.ini",
    "._000000000001.json",
    "000000000001.json.bak",
    "000000000001 copy.json",
]
STRAYS += [
    number + end
    for number in NUMBERS
    for end in ENDS
    if number != "42" or end not in (".json", ".start.json", ".alive")
]
STRAYS += [
    f"{number}-1-abcdef12{end}" for number in NUMBERS[:3] for end in (".delta.parquet", ".arrow", "-0.arrow", "")
]
STRAYS += [f"000000000001-{number}-abcdef12.delta.parquet" for number in NUMBERS[:3]]


class Sums(Record):
    total: int = 0


class Summing(KeyedOperator[Payment, Sums, Payment]):
    def apply(self, event: Payment, state: Sums, collector: Any) -> None:
        if event.amount < 0:
            raise ValueError("an amount below zero")
        state.total += event.amount
        collector.emit(Payment(event.card, state.total))


def job(folder: Path) -> Job:
    made = Job("strays", checkpoint_every=0)
    stream = made.source(LogSource(folder / "in", Payment, max_events=3), id="in").apply(
        Summing(), key="card", id="sums", on_error="dead-letter"
    )
    stream.sink(SqliteSink(folder / "out.db", "out", key="card"), id="db")
    stream.sink(ParquetSink(folder / "parquet"), id="parquet")
    stream.sink(LogSink(folder / "out"), id="log")
    return made


def append(folder: Path, *amounts: int) -> None:
    with EventLog(folder / "in", Payment) as log:
        log.append([Payment("a", amount) for amount in amounts])


def total(folder: Path) -> int:
    with sqlite3.connect(folder / "out.db") as database:
        return int(database.execute("SELECT amount FROM out").fetchone()[0])


def scatter(folder: Path, names: list[str]) -> None:
    for place in [folder, *(path for path in folder.rglob("*") if path.is_dir())]:
        for name in names:
            if not (place / name).exists():
                (place / name).write_bytes(b"\0stray")


@pytest.mark.proves("stray files in any folder")
def test_every_folder(tmp_path: Path) -> None:
    with EventLog.create(tmp_path / "in", Payment) as log:
        log.append([Payment("a", 1), Payment("a", -1)])
    run_job(job(tmp_path), tmp_path / "root")
    root = tmp_path / "root" / "strays"
    for name in ("inbox", "control", "claims", "quarantine", "quarantine/1", "quarantine/1/checkpoints", "outputs/db"):
        (root / name).mkdir(exist_ok=True, parents=True)
    for place in (root, tmp_path / "in", tmp_path / "out"):
        scatter(place, STRAYS)
    scatter(tmp_path / "parquet", [".DS_Store", "_note", "epoch=\u0664"])
    append(tmp_path, 2, 3, 4, 5)
    run_job(job(tmp_path), tmp_path / "root")
    append(tmp_path, 6)
    run_job(job(tmp_path), tmp_path / "root")
    assert total(tmp_path) == 21
    for command in (["status"], ["checkpoints", "--verify"], ["dead-letters", "list"]):
        done = subprocess.run(
            [sys.executable, "-m", "streamwork", *command, "--root", str(tmp_path / "root"), "strays"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Traceback" not in done.stderr, command


@pytest.mark.parametrize("text", [*NUMBERS, "", "-1", "+1", " 1", "1_0", "0x1"])
def test_a_number_is_what_was_written(text: str) -> None:
    assert number_of(text, EPOCH_DIGITS) is None
    assert number_of(text) == (42 if text == "42" else None)
    assert number_of("000000000042", EPOCH_DIGITS) == 42 and number_of("0") == 0


def test_parquet_input(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    (folder / ".hidden").mkdir(parents=True)
    for name in (".DS_Store", "._a.parquet", "_tmp.parquet", "notes.txt", ".hidden/a.parquet"):
        (folder / name).write_bytes(b"\0stray")
    (folder / "folder.parquet").mkdir()
    assert Parquet(folder, Payment).partitions() == []


# ---- lines ---------------------------------------------------------------------------------------------------------------


@pytest.mark.proves("a long last line without an end")
def test_a_line_that_does_not_end_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of 200 blocks, and then one that grows by a block at each look: the work is that of reading it a few times."""
    monkeypatch.setattr("streamwork.connectors.json_lines.BLOCK", 1_000)
    read = 0
    source = JsonLines(tmp_path / "in", Payment)
    path = tmp_path / "in"
    path.write_bytes(b'{"card": "' + b"x" * 200_000)
    original = source.records

    def records(data: Any, limit: int) -> tuple[int, int]:
        nonlocal read
        read += len(data)
        return original(data, limit)

    monkeypatch.setattr(source, "records", records)
    opened = Path.open
    sizes: list[int] = []

    class Watched:
        def __init__(self, file: Any) -> None:
            self.file = file

        def read(self, size: int) -> bytes:
            found: bytes = self.file.read(size)
            sizes.append(len(found))
            return found

        def seek(self, at: int) -> None:
            self.file.seek(at)

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: Any) -> None:
            self.file.close()

    monkeypatch.setattr(Path, "open", lambda self, *a: Watched(opened(self, *a)))
    assert end_of(source, "0", 0, 10) == 0 and sum(sizes) <= 201_000 and read == 0
    for _ in range(100):
        with opened(path, "ab") as file:
            file.write(b"x" * 1_000)
        assert end_of(source, "0", 0, 10) == 0
    assert sum(sizes) <= 2 * 301_000, "each byte at most twice, however often it is asked"
    for _ in range(50):
        end_of(source, "0", 0, 10)
    assert sum(sizes) <= 3 * 301_000, "and once more when nothing is added"
    with opened(path, "ab") as file:
        file.write(b'", "amount": 1}')
    assert {end_of(source, "0", 0, 10) for _ in range(3)} == {0, path.stat().st_size}, "whole JSON counts, a look later"
    with opened(path, "ab") as file:
        file.write(b"\n")
    (piece,) = source.read("0", 0, path.stat().st_size)
    assert len(piece.events[0].card) == 300_000


@pytest.mark.parametrize("depth", [10_000, 1_000_000])
@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.proves("deeply nested lines")
def test_deeply_nested_lines(depth: int, ended: bool, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b'{"card": "a", "amount": 1}\n' + b'{"x":' * depth + (b"\n" if ended else b""))
    made = Job("nested")
    made.source(JsonLines(path, Payment, on_error="drop"), id="in").sink(SqliteSink(tmp_path / "o.db", "out"), id="out")
    run_job(made, tmp_path / "root")
    with sqlite3.connect(tmp_path / "o.db") as database:
        assert database.execute("SELECT count(*) FROM out").fetchone() == (1,)


@pytest.mark.parametrize("size", [131_072, 131_073, 900_000, 3_000_000])
@pytest.mark.proves("a CSV field above 128 KiB")
def test_a_long_csv_field(size: int, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text(f"card,amount\n{'x' * size},1\nb,2\n")
    source = Csv(tmp_path / "in.csv", Payment)
    end = end_of(source, "0", 0, 10)
    events = [event for piece in source.read("0", 0, end) for event in piece.events]
    assert [(len(event.card), event.amount) for event in events] == [(size, 1), (1, 2)]


# ---- terminals -----------------------------------------------------------------------------------------------------------

JOB = """
from streamwork import Event, Job, ListSource
class Named(Event):
    name: str
job = Job("printing")
job.source(ListSource([Named("caf\\u00e9 \\u4e2d\\u6587 \\U0001f600")]), id="in").print()
if __name__ == "__main__":
    job.run()
"""
JSON = """
from streamwork.cli.output import print_json
print_json({"name": "caf\\u00e9 \\u4e2d\\u6587 \\U0001f600"})
"""


@pytest.mark.parametrize("how", quick_every(2, ["run", "python", "json", "draw"]))
@pytest.mark.proves("a terminal without UTF-8")
def test_a_terminal_without_utf8(how: str, tmp_path: Path) -> None:
    file = tmp_path / "job.py"
    file.write_text(JOB, encoding="utf-8")
    tool = [sys.executable, "-m", "streamwork"]
    commands = {
        "run": [*tool, "run", str(file), "--mode", "local"],
        "json": [sys.executable, "-c", JSON],
        "python": [sys.executable, str(file)],
        "draw": [sys.executable, "-m", "streamwork.job", str(file)],
    }
    world = {**os.environ, "LANG": "C", "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run(commands[how], capture_output=True, env=world, check=False, cwd=tmp_path)
    assert b"Traceback" not in done.stderr and b"UnicodeEncodeError" not in done.stderr
    done.stdout.decode("ascii")
    if how == "json":
        assert json.loads(done.stdout) == {"name": "caf\u00e9 \u4e2d\u6587 \U0001f600"}, (
            "in JSON an escape is the character"
        )
    assert done.returncode == 0, done.stderr
