"""The result table of the fraud detection example: decisions are readable at once, and readers never block the writer."""

from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from fraud.decision import Decision
from fraud.result_table import Results, ResultTable

from streamwork.components.columns import to_batches

NOW = datetime(2026, 3, 1, 8, 0, 0, 1234, tzinfo=UTC)


def decision(number: int, fraud: bool = False) -> Decision:
    return Decision(f"t{number}", "c1", fraud, 0.75, {"count": 0.5, "proximity": 0.25}, NOW)


def write(table: ResultTable, *decisions: Decision) -> None:
    for batch in to_batches(Decision, list(decisions), "test"):
        table.write(batch)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[ResultTable]:
    table = pickle.loads(pickle.dumps(ResultTable(tmp_path / "new" / "decisions.db")))  # as it comes to a worker
    table.open(Decision)
    yield table
    table.close()


def test_decisions_are_readable_at_once_and_once(table: ResultTable) -> None:
    write(table, decision(0))
    with closing(Results(table.path)) as results:
        assert results.new() == [], "it starts behind what is there"
        write(table, decision(1), decision(2, fraud=True))
        assert results.new() == [decision(1), decision(2, fraud=True)]
        assert results.new() == []
        write(table, decision(3))
        assert results.new() == [decision(3)]
        assert results.find("t2") == decision(2, fraud=True) and results.find("t9") is None


def test_the_first_decision_stands(table: ResultTable) -> None:
    with closing(Results(table.path)) as results:
        write(table, decision(1))
        write(table, decision(1, fraud=True), decision(2))
        assert results.new() == [decision(1), decision(2)] and results.find("t1") == decision(1)


def test_a_reader_does_not_block_the_writer_nor_the_writer_a_reader(table: ResultTable) -> None:
    with closing(Results(table.path)) as results, closing(sqlite3.connect(table.path, timeout=0)) as slow:
        slow.execute("BEGIN")
        assert slow.execute("SELECT count(*) FROM decisions").fetchone() == (0,)
        write(table, *map(decision, range(100)))
        assert len(results.new()) == 100
        assert slow.execute("SELECT count(*) FROM decisions").fetchone() == (0,), "it is still in its transaction"


def test_without_the_write_ahead_log_a_reader_would_block_the_writer(tmp_path: Path) -> None:
    """The control."""
    path = tmp_path / "plain.db"
    with closing(sqlite3.connect(path, timeout=0)) as writer, closing(sqlite3.connect(path, timeout=0)) as reader:
        writer.executescript("CREATE TABLE decisions (id); INSERT INTO decisions VALUES (1)")
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM decisions").fetchone()
        writer.execute("INSERT INTO decisions VALUES (2)")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            writer.commit()


def test_a_write_does_not_sync_and_a_power_failure_does_not_damage_the_file(table: ResultTable) -> None:
    with closing(Results(table.path)) as results:
        assert results._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert results._db.execute("PRAGMA synchronous").fetchone() == (1,), "NORMAL: not OFF, which may damage it"
        assert results._db.execute("PRAGMA wal_autocheckpoint").fetchone() == (0,), "a write never copies the log"


def test_closing_twice_and_opening_again(table: ResultTable) -> None:
    table.close()
    table.close()
    table.open(Decision)
    table.open(Decision)
    write(table, decision(1))
