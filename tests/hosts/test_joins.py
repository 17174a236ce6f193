"""Joins on every host: what DuckDB gives, fused and behind an exchange, over a change of host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from operators.join_jobs import expected_as_of, expected_within, found, random_rows, two_streams, with_table, written
from operators.join_oracle import Click, Oracle, Purchase, Row
from sample import run_job
from streamwork import EventLog, LogSource
from streamwork.components import Key
from streamwork.components.keys import instance_of
from streamwork.job import Job, Layout

PARTITIONS = 2
KEYS = ("a", "bb", "ccc", "d", "e", None)


def logs(folder: Path, rows: list[Row], key: str | None, size: int) -> Any:
    """The rows in two logs, partitioned by this key, that a checkpoint reads `size` events of."""
    for side, kind in (("left", Click), ("right", Purchase)):
        with EventLog.create(folder / side, kind, key=key, partitions=PARTITIONS, exist_ok=True) as log:
            log.append([row.event for row in rows if row.input == side])
    return tuple(
        LogSource(folder / side, kind, max_events=size) for side, kind in (("left", Click), ("right", Purchase))
    )


def in_partitions(rows: list[Row]) -> list[Row]:
    """The rows with the partitions of a log by key."""
    groups = Key.of(Click, "user").groups([row.key for row in rows])
    return [row._replace(partition=instance_of(group, PARTITIONS)) for row, group in zip(rows, groups, strict=True)]


def exchanges(job: Job) -> int:
    return sum(
        edge.exchange for edge in Layout.of(job.graph(), 256).edges if edge.to_id in ("attribution", "priced", "quotes")
    )


@pytest.mark.parametrize("kind", ["streams", pytest.param("table", marks=pytest.mark.slow)])
def test_joins_do_not_depend_on_the_host(tmp_path: Path, mode: str, kind: str, duck: Any) -> None:
    rows = in_partitions(random_rows(7, 160, 1, KEYS, 6))
    sources = logs(tmp_path, rows, "user", 25)
    (out := tmp_path / "out").mkdir()
    if kind == "streams":
        job = two_streams("full", 3, 2, 2, sources, out)
        expected = expected_within(Oracle(duck, rows, PARTITIONS, fused=True), "full", 3, 2)
    else:
        job = with_table("full", 4, 1, 2, sources, out)
        expected = expected_as_of(Oracle(duck, rows, PARTITIONS, fused=True), "full", 4, 1)
    assert exchanges(job) == 0  # both logs are partitioned by the key
    run_job(job, tmp_path / "root", mode)
    assert expected["joined"] and expected["late"]
    assert found(written(job, out), "right" if kind == "streams" else "quotes") == expected


@pytest.mark.parametrize("kind", ["streams", "table"])
@pytest.mark.slow(mode="microbatch")
def test_joins_behind_an_exchange(tmp_path: Path, mode: str, kind: str, duck: Any) -> None:
    """Three instances behind logs of two partitions."""
    rows = in_partitions(random_rows(8, 160, 1, KEYS, 6))
    sources = logs(tmp_path, rows, "user", 25)
    (out := tmp_path / "out").mkdir()
    if kind == "streams":
        job = two_streams("right", 3, 2, 3, sources, out)
        expected = expected_within(Oracle(duck, rows, PARTITIONS), "right", 3, 2)
    else:
        job = with_table("inner", 4, 1, 3, sources, out)
        expected = expected_as_of(Oracle(duck, rows, PARTITIONS), "inner", 4, 1)
    assert exchanges(job) == 2
    run_job(job, tmp_path / "root", mode)
    assert found(written(job, out), "right" if kind == "streams" else "quotes") == expected


@pytest.mark.spark
@pytest.mark.slow
def test_hosts_take_over_from_each_other(tmp_path: Path, spark: Any, duck: Any) -> None:
    rows = in_partitions(random_rows(9, 180, 1, KEYS, 6))
    (out := tmp_path / "out").mkdir()
    for start, mode in ((0, "local"), (60, "microbatch"), (120, "local")):
        sources = logs(tmp_path, rows[start : start + 60], "user", 1000)
        job = two_streams("full", 3, 0, 2, sources, out)
        run_job(job, tmp_path / "root", mode)
    expected = expected_within(Oracle(duck, rows, PARTITIONS, fused=True), "full", 3, 0)
    assert found(written(job, out), "right") == expected
