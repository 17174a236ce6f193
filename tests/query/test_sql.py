"""SQL over state: right answers, and nothing else. Statements that try files, networks or settings get errors."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from query.query_jobs import by_shop, fold, sales, sales_job
from query.serving_world import Served, serving
from sample import run_job
from streamwork import WrongUse
from streamwork.query.remote import RemoteState
from streamwork.query.sql.wire import SqlLimits

EVENTS = sales(range(0, 40_000, 97))
TOTALS = "SELECT shop, total FROM by_shop ORDER BY shop"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("sql")
    epoch = run_job(sales_job(EVENTS[:200], path), path / "root").checkpoint or 0
    with serving(path / "root", sql=SqlLimits(rows=1_000, bytes=1 << 20, memory=512 << 20, seconds=2.0)) as found:
        found.follow(epoch)
        yield found


@pytest.fixture
def state(served: Served) -> Iterator[RemoteState]:
    with served.connect() as found:
        yield found


def test_the_answer_is_the_fold(state: RemoteState, served: Served) -> None:
    for count, at in ((200, None), (190, "checkpoint:19")):
        found = state.sql(TOTALS, at=at)
        expected = fold(EVENTS[:count], by_shop)
        assert {row["shop"]: row["total"] for row in found.to_arrow().to_pylist()} == {
            k: v[1] for k, v in expected.items()
        }
        assert found.epoch == count // 10 and found.committed
    status, answer = served.ask("/sql", "POST", b'{"sql": "SELECT 1 AS a, 2 AS a"}')
    assert status == 200 and answer["rows"] == [[1, 2]] and [one["name"] for one in answer["columns"]] == ["a", "a"]
    joined = 'SELECT count(*) AS n FROM by_order LEFT JOIN "by-shop" USING (shop)'
    assert state.sql(joined).to_arrow().to_pylist() == [{"n": len(state["by-order"].scan())}]


HOSTILE = [
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_blob('/proc/self/environ')",
    "SELECT * FROM glob('/**')",
    "SELECT * FROM read_parquet('https://example.org/x.parquet')",
    "SELECT * FROM 's3://bucket/x.parquet'",
    "SELECT * FROM parquet_metadata('/tmp/x')",
    "SELECT * FROM sniff_csv('/etc/passwd')",
    "SELECT * FROM sys",
    "SELECT * FROM named",
    "SELECT * FROM python_map_function()",
    "SELECT * FROM query('COPY (SELECT 1) TO ''/tmp/x''')",
    "SELECT getenv('PATH')",
    "ATTACH '/tmp/x.db'",
    "COPY (SELECT 1) TO '/tmp/x.csv'",
    "COPY by_shop TO '/tmp/x.csv'",
    "CREATE TABLE t AS SELECT 1",
    "CREATE MACRO f() AS 1",
    "INSERT INTO by_shop SELECT * FROM by_shop",
    "DELETE FROM by_shop",
    "DROP VIEW by_shop",
    "INSTALL httpfs",
    "LOAD httpfs",
    "LOAD '/tmp/x.so'",
    "SET enable_external_access = true",
    "SET lock_configuration = false",
    "RESET ALL",
    "PRAGMA enable_profiling",
    "PRAGMA database_list",
    "CALL pragma_version()",
    "EXPORT DATABASE '/tmp/x'",
    "IMPORT DATABASE '/tmp/x'",
    "CREATE SECRET s (TYPE S3)",
    "CHECKPOINT",
    "BEGIN",
    "EXECUTE p",
    "PREPARE p AS SELECT 1",
    "USE memory",
    "EXPLAIN ANALYZE SELECT 1",
    "SELECT 1; SELECT 2",
    "SELECT 1; COPY (SELECT 1) TO '/tmp/x.csv'",
    "",
    ";",
    "SELEC",
    "SELECT * FROM nothing",
    "SELECT \x00",
    "SELECT '" + "(" * 100_000,
    "SELECT " + "(" * 5_000 + "1" + ")" * 5_000,
]


@pytest.mark.parametrize("sql", HOSTILE, ids=[sql[:40] for sql in HOSTILE])
def test_hostile_sql_gets_an_error_and_nothing_else(state: RemoteState, sql: str) -> None:
    with pytest.raises(WrongUse) as refused:
        state.sql(sql)
    assert refused.value.code in {"SW-QUERY-SQL", "SW-QUERY-LIMIT"}
    assert "root:" not in refused.value.cause
    assert not Path("/tmp/x.csv").exists()
    assert len(state.sql(TOTALS).to_arrow())


@pytest.mark.parametrize(
    ("sql", "cause"),
    [
        ("SELECT * FROM range(1001)", "more than 1,000 rows"),
        ("SELECT repeat('x', 4000) FROM range(900)", "more than 1,048,576 bytes"),
        (
            "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range + b.range = 3",
            "longer than 2 s|too much",
        ),
        (
            "SELECT sum(len(l)) FROM (SELECT list(range::VARCHAR || 'xxxxxxxxxxxxxxxx') AS l FROM range(100000000))",
            "memory|longer",
        ),
    ],
)
def test_results_time_and_memory_are_bounded(state: RemoteState, sql: str, cause: str) -> None:
    with pytest.raises(WrongUse, match=f"SW-QUERY-LIMIT: .*({cause})"):
        state.sql(sql)
    assert len(state.sql(TOTALS).to_arrow())


def test_the_child_can_open_nothing_and_dies_with_its_parent(tmp_path: Path) -> None:
    """What a statement could reach if DuckDB had a hole: no file, no socket."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        found = []
        try:
            from streamwork.query.sql.child import give_up

            give_up(1 << 30)
            import socket

            for attempt in (lambda: open("/etc/passwd"), lambda: open("/tmp/x", "w"), socket.socket):  # noqa: SIM115, PTH123
                try:
                    attempt()
                    found.append("opened")
                except OSError as error:
                    found.append(str(error.errno))
        finally:
            os.write(write, " ".join(found).encode())
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        assert pipe.read().split() == ["24"] * 3  # EMFILE
    os.waitpid(child, 0)


def test_a_child_that_is_killed_is_replaced(state: RemoteState, served: Served) -> None:
    import psutil

    state.sql(TOTALS)
    mine = [one for one in psutil.Process().children() if any("sql.child" in part for part in one.cmdline())]
    assert mine
    for one in mine:
        one.kill()
        one.wait()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            assert len(state.sql(TOTALS).to_arrow())
            return
        except WrongUse as error:
            assert error.code == "SW-QUERY-LIMIT"
    raise AssertionError("it was not replaced")
