"""Files and logs that say `bounded=True` end the job when all of their input is done."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sample import Payment
from source_ends import end_of
from streamwork import Csv, EventLog, Job, JsonLines, LogSource, OffsetSource, Parquet, SqliteSink

EXPECTED = [("a", 1), ("b", 2)]


def json_lines(folder: Path, **options: Any) -> OffsetSource[Payment]:
    (folder / "in.jsonl").write_text('{"card": "a", "amount": 1}\n{"card": "b", "amount": 2}')
    return JsonLines(folder / "in.jsonl", Payment, **options)


def csv(folder: Path, **options: Any) -> OffsetSource[Payment]:
    (folder / "in.csv").write_text("card,amount\na,1\nb,2")  # no newline at the end
    return Csv(folder / "in.csv", Payment, **options)


def parquet(folder: Path, **options: Any) -> OffsetSource[Payment]:
    pq.write_table(pa.table({"card": ["a", "b"], "amount": [1, 2]}), folder / "in.parquet")
    return Parquet(folder / "in.parquet", Payment, **options)


def log(folder: Path, **options: Any) -> OffsetSource[Payment]:
    if not (folder / "log").exists():
        made = EventLog.create(folder / "log", Payment, key="card", partitions=1)
        made.append([Payment("a", 1), Payment("b", 2)])
        made.close()
    return LogSource(folder / "log", Payment, **options)


def rows(folder: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder / "out.db")) as db:
        return db.execute("SELECT card, amount FROM out ORDER BY card").fetchall()


@pytest.mark.parametrize("make", [json_lines, csv, parquet, log])
def test_a_bounded_source_ends_the_job(tmp_path: Path, make: Callable[..., OffsetSource[Payment]]) -> None:
    assert not make(tmp_path).bounded, "by default the job waits for more"
    job = Job("bounded", checkpoint_every=0)
    job.source(make(tmp_path, bounded=True), id="in").sink(SqliteSink(tmp_path / "out.db", "out"), id="out")
    job.run(mode="local", root=tmp_path / "root")  # without until_caught_up
    assert rows(tmp_path) == EXPECTED


def test_the_last_line_of_a_complete_file_is_not_waited_for(tmp_path: Path) -> None:
    """Half a line at the end is a bad line if the file is complete, and a line to wait for if it is not."""
    file = tmp_path / "in.jsonl"
    file.write_text('{"card": "a", "amount": 1}\n{"card": "b", "am')
    growing, complete = JsonLines(file, Payment), JsonLines(file, Payment, bounded=True, on_error="drop")
    assert end_of(growing, "0", 0, 10) < file.stat().st_size == end_of(complete, "0", 0, 10)
    pieces = list(complete.read("0", 0, end_of(complete, "0", 0, 10)))
    assert [event for piece in pieces for event in piece.events] == [Payment("a", 1)]
    assert sum(piece.dropped for piece in pieces) == 1
