"""Passwords of sinks that write from Spark's workers are in nothing that Spark keeps in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from real_servers import PostgresServer
from sample import Doubling, Payment, payments, run_job
from servers import postgres  # noqa: F401  (a fixture)
from streamwork import Job, ListSource, PostgresSink
from streamwork.connectors.address import Address

SECRET = "s3cret-of-a-test"


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What is broadcast: Spark writes it to a file, which is how Python workers read it."""
    from pyspark import SparkContext

    found: list[bytes] = []
    whole = SparkContext.broadcast

    def broadcast(self: Any, value: Any) -> Any:
        found.append(value)
        return whole(self, value)

    monkeypatch.setattr(SparkContext, "broadcast", broadcast)
    return found


def written(server: PostgresServer, folder: Path, table: str) -> int:
    """Rows in the table after a run on Spark; the server takes any password."""
    job = Job("secret", checkpoint_every=0, semantics="at-least-once")
    source = job.source(ListSource(payments(20), Payment, max_events=10), id="payments")
    sink: Any = PostgresSink(f"{server.dsn}&password={SECRET}", table)
    source.apply(Doubling(), id="doubling").sink(sink, id="out")
    run_job(job, folder, "microbatch")
    with psycopg.connect(server.dsn) as db:
        (count,) = db.execute(f"SELECT count(*) FROM {table}").fetchone() or (0,)
    return int(count)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.proves("a password in an address", "addresses that are sent without secrets")
def test_workers_take_a_password_from_the_owners_file(
    tmp_path: Path,
    spark: Any,
    postgres: PostgresServer,  # noqa: F811
    sent: list[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert written(postgres, tmp_path / "root", "guarded") == len([p for p in payments(20) if p.amount])
    assert sent and not any(SECRET.encode() in value for value in sent)
    texts = [path.read_bytes() for path in (tmp_path / "root").rglob("*") if path.is_file()]
    assert not any(SECRET.encode() in text for text in texts), "the file is gone when the run ends"
    sent.clear()
    plain = lambda self: (Address, (self.whole, self.shown, self.secrets))  # noqa: E731
    monkeypatch.setattr(Address, "__reduce__", plain)
    written(postgres, tmp_path / "other", "unguarded")
    assert any(SECRET.encode() in value for value in sent), "without the file the check fails"
