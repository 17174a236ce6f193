"""Rows that a server refuses for what they are: with `on_error="dead-letter"` the job goes on without them."""

from __future__ import annotations

import random
import string
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from connectors.kits import PostgresUpsertKit, RedisKit, batch, entry, seen, staged
from sample import Seen
from streamwork import Event, Job, JobFailed, ListSource, PostgresSink, RedisSink, Refused
from streamwork.components import RowsRejected
from streamwork.connectors import postgres, redis

upsert = pytest.mark.parametrize("kit", ["postgres-upsert"], indirect=True)
on_redis = pytest.mark.parametrize("kit", ["redis"], indirect=True)
LONG = "".join(random.Random(1).choices(string.ascii_letters, k=20_000))  # does not compress: too long for an index


class At(Event):
    at: datetime
    number: int


def second(number: float) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number)


def run(kit: Any, sink: Any, events: list[Any], on_error: str = "dead-letter") -> Any:
    job = Job("poison", checkpoint_every=0)
    job.source(ListSource(events, max_events=5), id="in").sink(sink, id="out", on_error=on_error)
    return job.run(mode="local", root=kit.folder / "root", until_caught_up=True, restart=False)


def key_too_long(kit: PostgresUpsertKit) -> None:
    events = [*seen(1, 2), Seen(LONG, 3, 3), *seen(4, 5), Seen(LONG + "x", 6, 6)]
    outcome = run(kit, PostgresSink(kit.dsn, "seen", key="card"), events)
    assert kit.rows() == kit.expected([e for e in events if len(e.card) < 10])
    assert outcome.dead_letters == 2


@upsert
@pytest.mark.proves("a key too long for an index")
def test_a_key_that_is_too_long_for_an_index(kit: PostgresUpsertKit) -> None:
    key_too_long(kit)


@upsert
@pytest.mark.proves("keys that are equal in a coarser column")
def test_keys_that_are_the_same_in_a_coarser_column(kit: PostgresUpsertKit) -> None:
    kit.execute("CREATE TABLE seen (at timestamptz(0) PRIMARY KEY, number bigint)")
    events = [At(second(1), 1), At(second(2.1), 2), At(second(2.2), 3), At(second(3), 4), At(second(4), 5)]
    outcome = run(kit, PostgresSink(kit.dsn, "seen", key="at"), events)
    assert outcome.dead_letters == 1
    assert sorted(kit.query("SELECT number FROM seen")) == [(1,), (2,), (4,), (5,)]


@upsert
@pytest.mark.parametrize("state", ["P0001", "45000", "23514", "22000"])
def test_a_trigger_that_refuses_with_a_code_of_its_own(kit: PostgresUpsertKit, state: str) -> None:
    kit.execute("CREATE TABLE seen (card text PRIMARY KEY, number bigint, total bigint)")
    kit.execute(
        "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.number = 3 THEN RAISE EXCEPTION 'not 3' "
        f"USING ERRCODE = '{state}'; END IF; RETURN NEW; END $$"
    )
    kit.execute("CREATE TRIGGER no BEFORE INSERT ON seen FOR EACH ROW EXECUTE FUNCTION no()")
    events = [Seen(f"c{n}", n, n) for n in range(1, 6)]
    outcome = run(kit, PostgresSink(kit.dsn, "seen", key="card"), events)
    assert (outcome.dead_letters, [row[1] for row in kit.rows()]) == (1, [1, 2, 4, 5])


@upsert
def test_a_database_that_fails_is_no_row_s_fault(kit: PostgresUpsertKit) -> None:
    kit.execute("CREATE TABLE seen (card text PRIMARY KEY, number bigint, total bigint)")
    kit.execute(
        "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "RAISE EXCEPTION 'no room' USING ERRCODE = '53100'; END $$"
    )
    kit.execute("CREATE TRIGGER no BEFORE INSERT ON seen FOR EACH ROW EXECUTE FUNCTION no()")
    with pytest.raises(JobFailed, match="SW-SINK-FAILED.*no room"):
        run(kit, PostgresSink(kit.dsn, "seen", key="card"), seen(1, 2))
    assert kit.rows() == []


@upsert
@pytest.mark.proves("the codes of PostgreSQL for rejected rows")
def test_without_the_codes_the_job_stops(kit: PostgresUpsertKit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "_ROW_STATES", ("22", "23", "P0"))
    with pytest.raises(JobFailed, match="SW-SINK-FAILED.*index row"):
        key_too_long(kit)


# ---- Redis: the size of a request ----------------------------------------------------------------------------------------

MIB = 1 << 20


class Note(Event):
    card: str
    text: str


@pytest.fixture
def narrow(kit: RedisKit, monkeypatch: pytest.MonkeyPatch) -> Iterator[RedisKit]:
    """A server that takes arguments of 1 MiB at most, where the default is 512 MiB."""
    monkeypatch.setattr(redis, "CHUNK", 500)  # the kit has made it 1
    before = kit.client.config_get("proto-max-bulk-len")["proto-max-bulk-len"]
    kit.client.config_set("proto-max-bulk-len", MIB)
    yield kit
    kit.client.config_set("proto-max-bulk-len", before)


def many_large_rows(kit: RedisKit) -> None:
    notes = [Note(f"n{n}", f"{n}" * 3_000) for n in range(500)]
    sink = kit.driver(event=Note)
    sink.commit(entry(1, 0, 500), staged(notes, 100))
    sink.write(batch(notes))
    assert {row["card"].decode(): row["text"].decode() for row in kit.hashes()} == {n.card: n.text for n in notes}


@on_redis
@pytest.mark.proves("many large rows for Redis")
def test_chunks_are_cut_by_bytes_as_well(kit: RedisKit, narrow: RedisKit) -> None:
    many_large_rows(narrow)


@on_redis
@pytest.mark.proves("requests to Redis that are bounded in bytes")
def test_chunks_that_count_keys_alone_break_the_connection(
    kit: RedisKit, narrow: RedisKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RedisSink, "_largest", lambda self: 1 << 40)
    monkeypatch.setattr(redis, "CHUNK_BYTES", 1 << 40)
    monkeypatch.setattr(redis, "RETRIES", 1)
    with pytest.raises(JobFailed, match="SW-SINK-FAILED"):
        many_large_rows(narrow)


@on_redis
def test_a_row_that_is_larger_than_a_request_is_refused(kit: RedisKit, narrow: RedisKit) -> None:
    notes = [
        Note("a", "x"),
        Note("large", "x" * MIB),
        Note("c", "x"),
        Note("y" * MIB, ""),
        Note("near", "z" * (MIB - 999)),
    ]
    sink = RedisSink(narrow._server.url, key="card", prefix="seen")
    with pytest.raises(RowsRejected, match="bytes"):
        sink.open(Note)
        sink.write(batch(notes))
    assert run(narrow, sink, notes).dead_letters == 2
    assert sorted(row["card"] for row in narrow.hashes()) == [b"a", b"c", b"near"]


@on_redis
def test_another_prefix_is_another_target(kit: RedisKit) -> None:
    kit.driver().commit(entry(1, 0, 1), staged(seen(1)))
    sink: Any = RedisSink(kit._server.url, key="card", prefix="elsewhere")
    kit._made.append(sink)
    sink.open(Seen)
    with pytest.raises(Refused, match="SW-SINK-MOVED.*seen"):
        sink.register("u", "s", 2)
    assert kit.client.hgetall("streamwork_owners") == {b"seen": b'["u","s"]'}
