"""Every job in examples/ runs, resumes, and gives the results that it should."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

import duckdb
import msgspec
import psycopg
import pytest

from commands import call_in
from real_servers import PostgresServer
from servers import postgres  # noqa: F401  (a fixture)
from streamwork import EventLog
from streamwork.cli.demo import write_transactions
from streamwork.testing import Result, explore

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the examples: nothing is written beside the real ones."""
    return shutil.copytree(
        EXAMPLES, tmp_path / "jobs", ignore=shutil.ignore_patterns("*.db", ".streamwork", "out.json", "data")
    )


def run(folder: Path, name: str, **environment: str) -> None:
    code, out, errors = call_in(folder, "run", f"{name}.py", "--mode", "local", "--until-caught-up", **environment)
    assert code == 0, out + errors


def run_in_two_parts(folder: Path, name: str, source: str) -> None:
    """The first half of the input, then all of it: the second run resumes."""
    lines = (folder / source).read_text().splitlines(keepends=True)
    for part in (lines[: len(lines) // 2], lines):
        (folder / source).write_text("".join(part))
        run(folder, name)


def rows(database: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(database)) as db:
        return db.execute(query).fetchall()


def test_card_usage(folder: Path) -> None:
    write_transactions(folder / "transactions.jsonl", 200, cards=7)
    run_in_two_parts(folder, "card_usage", "transactions.jsonl")
    wanted: dict[str, int] = {}
    for line in (folder / "transactions.jsonl").read_text().splitlines():
        card = json.loads(line)["card"]
        wanted[card] = wanted.get(card, 0) + 1
    assert dict(rows(folder / "usage.db", "SELECT card, transactions FROM usage")) == wanted


def test_inactivity_alert(folder: Path) -> None:
    """The press is silent from 8:00 to 8:20. The oven never is: 8:12 to 8:21 is nine minutes."""
    run_in_two_parts(folder, "inactivity_alert", "heartbeats.jsonl")
    assert rows(folder / "alerts.db", "SELECT machine, since FROM silent") == [("press", "2026-03-01T08:00:00+00:00")]


def test_deduplicate(folder: Path) -> None:
    run_in_two_parts(folder, "deduplicate", "orders.jsonl")
    assert rows(folder / "orders.db", "SELECT id FROM orders ORDER BY id") == [("o1",), ("o2",), ("o3",)]


def test_sensor_alerts(folder: Path) -> None:
    run_in_two_parts(folder, "sensor_alerts", "readings.jsonl")
    found = rows(folder / "sensors.db", "SELECT sensor, celsius, why FROM alerts ORDER BY sensor")
    assert found == [("s1", 55.0, "jump"), ("s2", 91.5, "hot")]


def test_custom_sink(folder: Path) -> None:
    run_in_two_parts(folder, "custom_sink", "readings.jsonl")
    wanted = [json.loads(line) for line in (folder / "readings.jsonl").read_text().splitlines()]
    assert json.loads((folder / "out.json").read_text())["rows"] == wanted


def test_enrichment(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "prices.db")) as db:
        db.executescript("CREATE TABLE prices(product, cents); INSERT INTO prices VALUES ('tea', 250), ('cake', 300)")
    run_in_two_parts(folder, "enrichment", "sales.jsonl")
    assert rows(folder / "priced.db", "SELECT id, cents FROM priced ORDER BY id") == [("s1", 500), ("s3", 900)]
    code, listing, _ = call_in(folder, "dead-letters", "list", "enrichment.py")
    assert code == 0 and "1" in listing and "add-price" in listing


@contextmanager
def api(orders: list[dict[str, Any]]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            after = int(parse_qs(urlparse(self.path).query)["after"][0])
            body = json.dumps([order for order in orders if order["number"] > after][:3]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_poll_api(folder: Path) -> None:
    orders = [{"number": number, "item": f"item-{number}"} for number in range(1, 8)]
    with api(orders) as address:
        run(folder, "poll_api", ORDERS_API=address)
        orders.append({"number": 9, "item": "item-9"})
        run(folder, "poll_api", ORDERS_API=address)
        run(folder, "poll_api", ORDERS_API=address)
    found = rows(folder / "polled.db", "SELECT number, item FROM orders ORDER BY number")
    assert found == [(order["number"], order["item"]) for order in orders]


def test_emission(folder: Path) -> None:
    """An as-of join in DuckDB finds the same temperatures and limits. The last vehicle waits for a later temperature."""
    run_in_two_parts(folder, "emission", "vehicles.jsonl")
    read = {name: f"read_json('{folder}/{name}.jsonl')" for name in ("vehicles", "temperatures", "zones")}
    joined = duckdb.sql(
        f"""SELECT plate, strftime(w.at, '%H:%M:%S'), grams * (1 + (20 - coalesce(celsius, 20)) / 100), "limit" FROM (
            SELECT v.*, celsius FROM {read["vehicles"]} v
            ASOF LEFT JOIN {read["temperatures"]} t ON t.zone = v.zone AND t.at <= v.at
        ) w ASOF LEFT JOIN {read["zones"]} z ON z.zone = w.zone AND z.at <= w.at
        WHERE w.at < (SELECT max(r.at) FROM {read["temperatures"]} r) ORDER BY w.at"""
    ).fetchall()
    found = rows(
        folder / "emissions.db", "SELECT plate, substr(at, 12, 8), grams, above_limit FROM emissions ORDER BY at"
    )
    assert len(found) == 9
    assert found == [(plate, at, g := round(grams, 1), limit and g > limit) for plate, at, grams, limit in joined]


def test_trending(folder: Path) -> None:
    """The three most used hashtags of every hour that has ended; equal numbers are ranked by the hashtag."""
    run_in_two_parts(folder, "trending", "posts.jsonl")
    wanted = duckdb.sql(
        f"""WITH uses AS (
            SELECT "at", unnest(list_distinct(regexp_extract_all(text, '#\\w+'))) AS hashtag
            FROM read_json('{folder}/posts.jsonl')
        ), windows AS (
            SELECT unnest(generate_series(TIMESTAMP '2026-03-01 09:00', max("at"), INTERVAL 10 MINUTE)) AS ended FROM uses
        ), counted AS (
            SELECT ended, hashtag, count(*) AS used FROM windows JOIN uses
            ON "at" < ended AND "at" >= ended - INTERVAL 1 HOUR GROUP BY ALL
        )
        SELECT strftime(ended, '%H:%M'), row_number() OVER (PARTITION BY ended ORDER BY used DESC, hashtag) AS rank, hashtag, used
        FROM counted QUALIFY rank <= 3 ORDER BY ended, rank"""
    ).fetchall()
    found = "SELECT substr(window_end, 12, 5), rank, hashtag, uses FROM trends ORDER BY window_end, rank"
    assert rows(folder / "trends.db", found) == wanted
    assert len(wanted) == 54


HOLD = """
CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NEW; END $$;
CREATE TRIGGER hold BEFORE UPDATE ON streamwork_ledger FOR EACH ROW
    WHEN (OLD.position IS DISTINCT FROM NEW.position) EXECUTE FUNCTION hold();
SELECT pg_advisory_lock(7);
"""
"""Lets every commit wait behind its rows, until the lock is released."""
HELD = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
SPLIT = """
class SplitLedger(PostgresSink[Purchase]):
    def commit(self, entry, staged):
        with self._transaction() as db:
            verdict = settle(self._row(db, entry.uid, entry.sink), entry)
            if verdict is Verdict.APPLY:
                self._write(db, staged)
        with self._transaction() as db:
            self._advance(db, entry, entry.end if verdict is Verdict.APPLY else None)


job = """


class Import:
    """The job import_purchases, with a schema of its own in the database."""

    def __init__(self, folder: Path, server: PostgresServer, schema: str) -> None:
        self._folder = folder
        self._dsn = f"{server.dsn}&options=-csearch_path%3D{schema}"
        with psycopg.connect(server.dsn) as db:
            db.execute(f"CREATE SCHEMA {schema}")
        module = runpy.run_path(str(folder / "import_purchases.py"), run_name="import_purchases")
        create, append, _ = re.findall(r"streamwork (.*)", module["__doc__"])
        assert append == "log append purchases.log < purchases.jsonl"
        assert call_in(folder, *create.split())[0] == 0
        self.event = module["Purchase"]

    def run(self) -> None:
        run(self._folder, "import_purchases", POSTGRES=self._dsn)

    def append(self, purchases: list[Any]) -> None:
        with EventLog(self._folder / "purchases.log", self.event) as log:
            log.append(purchases)

    def kill_in_a_commit(self) -> None:
        """Kill (-9) the job when it has written rows and is about to advance its ledger row."""
        command = [sys.executable, "-m", "streamwork", "run", "import_purchases.py", "--mode", "local"]
        environment = {**os.environ, "POSTGRES": self._dsn}
        with psycopg.connect(self._dsn, autocommit=True) as db:
            db.execute(HOLD)
            with subprocess.Popen(command, cwd=self._folder, env=environment) as job:
                while db.execute(HELD).fetchone() == (0,):
                    assert job.poll() is None, "the job has ended"
                    time.sleep(0.02)
                job.send_signal(signal.SIGKILL)
            db.execute("SELECT pg_advisory_unlock(7); DROP TRIGGER hold ON streamwork_ledger; DROP FUNCTION hold")

    def table(self) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._dsn) as db:
            return db.execute("SELECT id, customer, amount, at FROM purchases ORDER BY id").fetchall()


def import_and_kill(job: Import) -> tuple[list[Any], list[Any]]:
    """(the rows that the table should have, those that it has), after a run, a kill, and two runs more."""
    first = events(job.event, "purchases.jsonl")
    more = [job.event(f"p{9 - n}", f"c{n}", Decimal(n), first[0].at + timedelta(hours=n)) for n in range(4)]
    job.append(first)
    job.run()
    assert job.table() == [msgspec.structs.astuple(event) for event in first]
    job.append(more)
    job.kill_in_a_commit()
    job.run()
    job.run()
    return sorted(msgspec.structs.astuple(event) for event in [*first, *more]), job.table()


def test_import_purchases(folder: Path, postgres: PostgresServer) -> None:  # noqa: F811  (the fixture)
    """No row is lost or doubled."""
    wanted, found = import_and_kill(Import(folder, postgres, "import_whole"))
    assert found == wanted


@pytest.mark.slow
def test_control_with_the_ledger_in_another_transaction_rows_are_doubled(
    folder: Path,
    postgres: PostgresServer,  # noqa: F811  (the fixture)
) -> None:
    path = folder / "import_purchases.py"
    text = path.read_text().replace("import Digits, ", "import Digits, Verdict, settle, ").replace("job = ", SPLIT, 1)
    path.write_text(text.replace("PostgresSink(ADDRESS", "SplitLedger(ADDRESS"))
    wanted, found = import_and_kill(Import(folder, postgres, "import_split"))
    assert len(found) > len(wanted) and set(found) == set(wanted)


@pytest.mark.parametrize(
    ("name", "sources"),
    [
        ("inactivity_alert", {"heartbeats": ("Heartbeat", "heartbeats.jsonl")}),
        ("deduplicate", {"orders": ("Order", "orders.jsonl")}),
        ("sensor_alerts", {"readings": ("Reading", "readings.jsonl")}),
        pytest.param(
            "emission",
            {
                "vehicles": ("Vehicle", "vehicles.jsonl"),
                "temperature-readings": ("Temperature", "temperatures.jsonl"),
                "zone-limits": ("Zone", "zones.jsonl"),
            },
            marks=pytest.mark.slow,
        ),
    ],
)
def test_no_schedule_or_crash_changes_the_results(name: str, sources: dict[str, tuple[str, str]]) -> None:
    names = runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name=name)
    inputs = {source: events(names[event], file) for source, (event, file) in sources.items()}
    assert explore(names["job"], inputs, seeds=10).resumes


def events(event: type[Any], file: str) -> list[Any]:
    decode: Callable[[str], Any] = msgspec.json.Decoder(event).decode
    return [decode(line) for line in (EXAMPLES / file).read_text().splitlines()]


@pytest.mark.slow
def test_a_crash_of_trending_may_lose_posts_but_counts_none_twice() -> None:
    names = runpy.run_path(str(EXAMPLES / "trending.py"), run_name="trending")
    posts = events(names["Post"], "posts.jsonl")
    used: Counter[tuple[datetime, str]] = Counter()
    for use in (use for post in posts for use in names["hashtags"](post)):
        end = use.at - (use.at - datetime.min.replace(tzinfo=UTC)) % timedelta(minutes=10)
        used.update((end + timedelta(minutes=10 * number), use.hashtag) for number in range(1, 7))
    lost: list[int] = []

    def none_twice(plain: Result, result: Result) -> None:
        newest = {(row.window_end, row.hashtag): row.uses for row in result.outputs["trends"]}
        assert all(uses <= used[window] for window, uses in newest.items())
        lost.append(sum(used[window] - uses for window, uses in newest.items()))

    assert explore(names["job"], {"posts": posts}, seeds=3, check=none_twice).resumes
    assert lost.count(0) >= 3 and any(lost), "without a crash nothing is lost; some crash loses posts"


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(("name", "table"), [("emission", "emissions"), ("trending", "trends")])
def test_windows_and_joins_on_spark_give_the_results_of_local(
    folder: Path, tmp_path: Path, name: str, table: str
) -> None:
    on_spark = shutil.copytree(folder, tmp_path / "spark")
    run(folder, name)
    command = [sys.executable, "-m", "streamwork", "run", f"{name}.py", "--until-caught-up", "--master", "local[2]"]
    answer = subprocess.run(command, cwd=on_spark, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    wanted, found = (
        sorted(rows(one / f"{table}.db", f"SELECT * FROM {table}"), key=repr) for one in (folder, on_spark)
    )
    assert found == wanted and len(found) > 5


def test_every_example_is_short_listed_and_tested() -> None:
    files = {path.stem for path in EXAMPLES.glob("*.py")}
    listed = set(re.findall(r"^\| \[(\w+)\.py\]", (EXAMPLES / "README.md").read_text(), re.MULTILINE))
    tested = set(re.findall(r"^def test_(\w+)\(folder", Path(__file__).read_text(), re.MULTILINE))
    assert files == listed == tested
    assert len(files) >= 5
    folders = {path.parent.name for path in EXAMPLES.glob("*/job.py")}
    assert folders == set(re.findall(r"\]\((\w+)/README\.md\)", (EXAMPLES / "README.md").read_text()))
    tests = [path.read_text() for path in (Path(__file__).parent / "examples").glob("test_*.py")]
    for name in folders:
        assert any(name in text for text in tests), f"tests/examples has no test of {name}"
    for path in EXAMPLES.glob("*.py"):
        assert len(path.read_text().splitlines()) <= 80, path.name
