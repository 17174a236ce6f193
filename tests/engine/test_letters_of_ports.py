"""Dead letters of an operator with several ports: a replay gives each event to the port, and the instance, that it came to."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sample import run_job
from streamwork import Event, Job, ListSource, NoState, SqliteSink, TableOperator
from streamwork.delivery import DeadLetters, Inbox
from streamwork.world import RealDisk


class Left(Event):
    user: str
    number: int


class Right(Event):
    buyer: str
    price: float


class Seen(Event):
    user: str
    what: str


class Merging(TableOperator[Left, NoState, Seen]):
    ports = {"right": Right}

    def __init__(self, fails: bool) -> None:
        self.fails = fails

    def apply_rows(self, rows: Any, state: Any, tables: Any, collector: Any) -> None:
        names = ("user", "number") if rows.port == "main" else ("buyer", "price")
        users, values = (rows.batch[name].to_pylist() for name in names)
        if self.fails and any(value == 3 for value in values):
            raise ValueError("a three")
        batch = pa.record_batch({"user": users, "what": [f"{rows.port} {value:g}" for value in values]})
        collector.emit_batch(batch, rows=range(len(users)))


def merging_job(folder: Path, fails: bool, parallelism: int) -> Job:
    job = Job("merging", checkpoint_every=0, parallelism=parallelism)
    left = job.source(ListSource([Left(f"u{n}", n) for n in range(6)], Left, max_events=4), id="left")
    right = job.source(ListSource([Right(f"u{n}", float(n)) for n in range(6)], Right, max_events=4), id="right")
    left.apply(Merging(fails), key="user", id="m", on_error="dead-letter", others={"right": (right, "buyer")}).sink(
        SqliteSink(folder / "out.db", "t"), id="out"
    )
    return job


def seen(folder: Path) -> set[str]:
    with closing(sqlite3.connect(folder / "out.db")) as db:
        return {what for (what,) in db.execute("SELECT what FROM t")}


@pytest.mark.parametrize("parallelism", [1, 2])
def test_letters_come_back_to_their_port(tmp_path: Path, parallelism: int) -> None:
    run_job(merging_job(tmp_path, True, parallelism), tmp_path / "root", "local")
    everything = {f"{port} {n}" for port in ("main", "right") for n in range(6)}
    assert seen(tmp_path) == everything - {"main 3", "right 3"}
    folder = tmp_path / "root" / "merging"
    letters = DeadLetters(RealDisk(), folder).all()
    assert sorted((one.component, one.to) for one in letters) == [("m", "m"), ("m", "m:right")]
    Inbox(RealDisk(), folder).put(letters)
    run_job(merging_job(tmp_path, False, parallelism), tmp_path / "root", "local")
    assert seen(tmp_path) == everything
