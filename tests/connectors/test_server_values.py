"""The extremes of every type in PostgreSQL and Redis: what they cannot hold is set aside, and nothing stops the job."""

from pathlib import Path
from typing import Any

import psycopg
import pytest

from sample import run_job
from streamwork import Job, ListSource, PostgresSink, RedisSink
from streamwork.delivery import DeadLetters
from streamwork.world import RealDisk
from value_jobs import KINDS, TYPES


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.proves("the extremes of every type, to PostgreSQL and Redis")
def test_servers(name: str, tmp_path: Path, postgres: Any, redis_server: Any) -> None:
    made, good = TYPES[name], KINDS[name].good
    for _ in range(2):  # the second start finds everything there
        job = Job(f"values-{name}", checkpoint_every=0)
        stream = job.source(
            ListSource([made.event(n, v) for n, v in enumerate(good)], made.event, max_events=3), id="in"
        )
        table = f"values_{name.lower()}"
        stream.sink(PostgresSink(postgres.dsn, table, key="n"), id="postgres", on_error="dead-letter")
        stream.sink(RedisSink(redis_server.url, key="n", prefix=table), id="redis", on_error="dead-letter")
        run_job(job, tmp_path / "root")
    letters = list(DeadLetters(RealDisk(), tmp_path / "root" / f"values-{name}").all())
    refused = [letter for letter in letters if letter.component == "postgres"]
    # PostgreSQL has no NUL in text; every other extreme arrives.
    assert [letter.component for letter in letters] == ["postgres"] * len(refused)
    assert len(refused) == sum("\0" in value for value in good if isinstance(value, str))
    with psycopg.connect(postgres.dsn) as database:
        (count,) = database.execute(f"SELECT count(*) FROM {table}").fetchone() or (0,)  # type: ignore[arg-type]
    assert count == len(good) - len(refused)
