"""Negative controls: a sink that lacks one guard must fail the very check that it passes with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from connectors import checks
from connectors.kits import SQL, Kit, RedisKit, entry, seen, staged
from streamwork.components import LedgerEntry, commit_rule
from streamwork.components.commit_rule import Verdict
from streamwork.connectors import log, parquet_sink, redis, redis_scripts, sql_sink, sql_views, sqlite
from streamwork.connectors import postgres as postgres_connector
from streamwork.connectors.parquet_sink import ParquetSink
from streamwork.log.transactions import Transactions

MODULES = (sqlite, postgres_connector, redis, parquet_sink, log)
APPENDING = ["sqlite", "postgres", "log"]


def failure(check: Callable[[], Any]) -> str:
    """What a check finds wrong; empty if nothing."""
    try:
        check()
    except (AssertionError, pytest.fail.Exception) as error:
        return str(error)
    return ""


def without(script: str, part: str, instead: str = "") -> str:
    assert part in script
    return script.replace(part, instead)


@pytest.mark.parametrize("kit", APPENDING, indirect=True)
def test_without_the_ledger_rows_come_twice(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in MODULES:
        monkeypatch.setattr(module, "settle", lambda row, entry: Verdict.APPLY)
    assert "Left contains 8 more items" in failure(lambda: checks.idempotent(kit)), "two rows, four times too often"


@pytest.mark.parametrize("kit", SQL, indirect=True)
def test_with_rows_and_ledger_in_two_transactions_they_disagree(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    def commit(self: Any, offered: LedgerEntry, rows: Iterator[Any]) -> None:
        with self._transaction() as db:
            verdict = commit_rule.settle(self._row(db, offered.uid, offered.sink), offered)
            if verdict is Verdict.APPLY:
                self._write(db, rows)
        with self._transaction() as db:
            self._advance(db, offered, offered.end if verdict is Verdict.APPLY else None)

    monkeypatch.setattr(type(kit._new()), "commit", commit)
    assert "rows and ledger disagree" in failure(lambda: checks.death_at_every_step(type(kit), kit, done=False))


def unfenced(monkeypatch: pytest.MonkeyPatch) -> None:
    real = commit_rule.judge
    monkeypatch.setattr(
        commit_rule, "judge", lambda row, offered: real(row, msgspec.structs.replace(offered, fence=row.fence))
    )
    monkeypatch.setattr(Transactions, "check_fence", staticmethod(lambda sink, row, fence: None))
    monkeypatch.setattr(ParquetSink, "_bury", lambda self, name: None)
    for name in ("KEYS", "CHANGE", "ADVANCE"):
        script = getattr(redis_scripts, name).replace(redis_scripts._FENCE, "")
        monkeypatch.setattr(redis_scripts, name, script)


@pytest.mark.parametrize(
    "kit", ["sqlite", "sqlite-upsert", "postgres", "postgres-upsert", "parquet", "redis"], indirect=True
)
def test_without_fences_a_driver_that_was_taken_over_gets_in(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    unfenced(monkeypatch)
    found = failure(lambda: checks.zombie_at_every_step(type(kit), kit, monkeypatch, only_registers=True))
    assert "it was not turned away" in found


def late_chunk(kit: RedisKit) -> None:
    """The network delivers a chunk of checkpoint 1 once more, after checkpoint 2 was committed by the same driver."""
    sink = kit.driver(1)
    sent: list[tuple[list[Any], list[Any]]] = []
    call = sink._call

    def sending(script: str, keys: list[Any], values: list[Any]) -> Any:
        if script == redis_scripts.KEYS:
            sent.append((keys, values))
        return call(script, keys, values)

    sink._call = sending
    sink.commit(entry(1, 0, 2), staged(seen(1, 2)))
    sink.commit(entry(2, 2, 5), staged(seen(4, 5)))
    call(redis_scripts.KEYS, *sent[0])
    assert kit.rows() == kit.expected(seen(1, 2, 4, 5))


@pytest.mark.parametrize("kit", ["redis"], indirect=True)
def test_a_late_chunk_changes_nothing(kit: RedisKit) -> None:
    late_chunk(kit)


@pytest.mark.parametrize("kit", ["redis"], indirect=True)
def test_without_the_comparison_of_epochs_a_late_chunk_brings_old_values_back(
    kit: RedisKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = redis_scripts.KEYS
    uncompared = without(whole, "not older(fence, epoch, f, e)", "true")
    for one_guard_left in (uncompared, without(whole, redis_scripts._FLOOR)):
        monkeypatch.setattr(redis_scripts, "KEYS", one_guard_left)
        assert failure(lambda: late_chunk(kit)) == ""
        kit.client.flushall()
    monkeypatch.setattr(redis_scripts, "KEYS", without(uncompared, redis_scripts._FLOOR))
    assert "[('c1', 1, 10), ('c2', 5, 50)]" in failure(lambda: late_chunk(kit)), "the old value is back"


def two_tries(kit: RedisKit) -> None:
    """Two tries of one driver overlap: the row may advance only for the one whose mark it has."""
    sink, other = kit.driver(1), kit.make()

    def rows() -> Iterator[Any]:
        yield from staged(seen(1, 2))
        try:
            other.commit(entry(1, 0, 2), breaking())
        except RuntimeError:
            return

    def breaking() -> Iterator[Any]:
        raise RuntimeError("the second try dies after it has begun")
        yield

    try:
        sink.commit(entry(1, 0, 2), rows())
    except Exception as error:
        assert "SW-SINK-LEDGER" in str(error)
    row = sink.ledger("u", "s")
    assert row is not None and row.position is None, "advanced although another try had begun"


@pytest.mark.parametrize("kit", ["redis"], indirect=True)
def test_the_row_advances_only_from_the_mark_of_its_own_try(kit: RedisKit, monkeypatch: pytest.MonkeyPatch) -> None:
    two_tries(kit)
    kit.client.flushall()
    monkeypatch.setattr(redis_scripts, "ADVANCE", redis_scripts.ADVANCE.replace("mark ~= ARGV[2]", "false"))
    assert "advanced although another try had begun" in failure(lambda: two_tries(kit))


@pytest.mark.parametrize("kit", ["sqlite", "postgres"], indirect=True)
def test_a_view_that_does_not_look_at_fences_shows_too_much(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    careless = sql_views._COUNTED.replace(" AND l.fence = p.__fence", "")
    monkeypatch.setattr(sql_views, "_COUNTED", careless)
    monkeypatch.setattr(sql_sink, "dirty_view", sql_views.dirty_view)
    assert "('c0', 3, 3)" in failure(lambda: checks.previews_of_older_fences(kit))
