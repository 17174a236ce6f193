"""RedisSink beyond the contract: names and formats, a server that goes away, secrets."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from connectors.kits import RedisKit, batch, entry, seen, staged
from real_servers import RedisServer
from sample import Seen
from streamwork import Event, JobFailed, RedisSink, Refused, WrongUse
from streamwork.connectors import redis as connector

kits = pytest.mark.parametrize("kit", ["redis"], indirect=True)


class Pair(Event):
    left: str
    right: bytes
    note: str | None


def pairs(kit: RedisKit) -> Any:
    sink: Any = RedisSink(kit._server.url, key=("left", "right"), prefix="pairs")
    sink.open(Pair)
    return sink


@kits
def test_the_layout_that_is_documented(kit: RedisKit) -> None:
    sink = kit.driver(3)
    sink.commit(entry(1, 0, 2, fence=3), staged([Seen("c1", 1, 10)]))
    assert kit.client.hgetall("seen:c1") == {
        b"card": b"c1", b"number": b"1", b"total": b"10", b"__fence": b"3", b"__epoch": b"1",
    }  # fmt: skip
    assert kit.client.hgetall("streamwork_ledger:u:s") == {
        b"fence": b"3", b"position": b'{"a/0":2}', b"manifest_sha256": b"m1", b"mark": b"", b"floor": b"3:1",
    }  # fmt: skip
    assert kit.client.hgetall("streamwork_owners") == {b"seen": b'["u","s"]'}


@kits
def test_names_of_several_fields_do_not_run_into_each_other(kit: RedisKit) -> None:
    sink = pairs(kit)
    given = [Pair("a:b", b"c", None), Pair("a", b"b:c", None), Pair("a%3Ab", b"c", None), Pair("", b"\xff\x00", None)]
    sink.write(batch(given))
    names = {b"pairs:a%3Ab:c", b"pairs:a:b%3Ac", b"pairs:a%253Ab:c", b"pairs::\xff\x00"}
    assert set(kit.client.scan_iter("pairs:*")) == names
    sink.close()


@kits
def test_a_field_that_becomes_none_goes_away(kit: RedisKit) -> None:
    sink = pairs(kit)
    sink.register("u", "p", 1)
    sink.commit(entry(1, 0, 1, sink="p"), staged([Pair("a", b"b", "there")]))
    assert kit.client.hget("pairs:a:b", "note") == b"there"
    sink.commit(entry(2, 1, 2, sink="p"), staged([Pair("a", b"b", None)]))
    assert kit.client.hget("pairs:a:b", "note") is None
    sink.close()


@kits
@pytest.mark.parametrize("other", ["seen:eu", "se", "seen"])
def test_prefixes_that_overlap_are_refused(kit: RedisKit, other: str) -> None:
    kit.driver()
    sink: Any = RedisSink(kit._server.url, key="card", prefix=other)
    sink.open(Seen)
    if other == "se":
        sink.register("u", "t", 1)  # se:... is no name of seen
    else:
        with pytest.raises(Refused, match="SW-SINK-OWNED"):
            sink.register("u", "t", 1)
    sink.close()


@kits
def test_a_lost_answer_is_asked_for_again(kit: RedisKit) -> None:
    """Every script, called twice, has the effect of once."""
    sink = kit.driver()
    call = sink._call
    sink._call = lambda *given: (call(*given), call(*given))[1]
    sink.commit(entry(1, 0, 2), staged(seen(1, 2)))
    sink.commit(entry(2, 0, 2, manifest_sha256="other", first=False), staged(seen(1, 2)))  # adopted
    assert sink.ledger("u", "s").manifest_sha256 == "other"
    sink.commit(entry(3, 2, 3), staged(seen(3)))
    assert kit.rows() == kit.expected(seen(1, 2, 3))


@pytest.fixture
def own_server(redis_server: RedisServer) -> Iterator[RedisServer]:
    with RedisServer.started(durable=True) as server:
        yield server


def test_a_server_killed_in_mid_commit_has_what_it_acknowledged(own_server: RedisServer) -> None:
    sink: Any = RedisSink(own_server.url, key="card", prefix="seen")
    sink.open(Seen)
    sink.register("u", "s", 1)
    events = seen(*range(1, 30_001), cards=30_000)

    def killing() -> Iterator[Any]:
        yield batch(events[:10_000])
        own_server.restart(kill=True)  # scripts are forgotten, too
        yield batch(events[10_000:])

    sink.commit(entry(1, 0, 2), killing())
    client = redis.Redis.from_url(own_server.url)
    assert client.dbsize() == 30_002
    own_server.restart(kill=True)
    assert sink.ledger("u", "s").position == {"a/0": 2} and client.dbsize() == 30_002
    client.close()
    sink.close()


def test_a_server_that_stays_away(own_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connector, "RETRIES", 1)
    sink: Any = RedisSink(own_server.url, key="card", prefix="seen")
    sink.open(Seen)
    sink.register("u", "s", 1)
    own_server.kill()
    with pytest.raises(JobFailed, match="SW-SINK-FAILED"):
        sink.commit(entry(1, 0, 2), staged(seen(1)))
    sink.close()


@pytest.mark.parametrize("url", ["redis://someone:s3cr%40t@127.0.0.1:1/0", "redis://127.0.0.1:1/0?password=s3cr%40t"])
def test_the_password_is_shown_nowhere(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connector, "RETRIES", 1)
    sink: Any = RedisSink(url, key="card", prefix="seen")
    shown = [repr(sink), repr(vars(sink))]
    with pytest.raises(JobFailed, match="SW-SINK-FAILED") as failed:
        sink.open(Seen)
    shown += [str(failed.value), *traceback.format_exception(failed.value)]
    assert not [text for text in shown if "s3cr%40t" in text or "s3cr@t" in text]
    assert "127.0.0.1" in shown[0]


@pytest.mark.parametrize("url", ["http://x", "s3cr@t", "redis://[s3cr@t"])
def test_an_address_that_is_not_understood(url: str) -> None:
    with pytest.raises(WrongUse, match="SW-SINK-ADDRESS") as error:
        RedisSink(url, key="card", prefix="seen")
    assert "s3cr@t" not in str(error.value)


@pytest.mark.parametrize("prefix", ["", "streamwork_ledger"])
def test_a_prefix_that_cannot_be_one(prefix: str) -> None:
    with pytest.raises(WrongUse, match="SW-SINK-PREFIX"):
        RedisSink("redis://x", key="card", prefix=prefix)


@kits
def test_a_key_that_may_be_none(kit: RedisKit) -> None:
    sink: Any = RedisSink(kit._server.url, key="note", prefix="pairs")
    with pytest.raises(WrongUse, match="SW-KEY-TYPE"):
        sink.open(Pair)
