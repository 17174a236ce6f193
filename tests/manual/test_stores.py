"""The contract of stores for state by hand, with every store."""

from __future__ import annotations

import itertools
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from servers import postgres, redis_server  # noqa: F401  (fixtures)
from streamwork import JobFailed, Refused
from streamwork.manual import ManualStore, MemoryStore, PostgresStore, RedisStore, SqliteStore
from streamwork.manual.store import Stored

OFFSETS = {"payments/0": 2**62, "payments/ü": 0}
NUMBERS = itertools.count()


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], ManualStore]]:
    """Each call gives another connection to the same store, which is empty at first."""
    memory, name, made = MemoryStore(), f"job-{next(NUMBERS)}", list[ManualStore]()

    def new() -> ManualStore:
        match request.param:
            case "memory":
                made.append(memory)
            case "sqlite":
                made.append(SqliteStore(tmp_path / "state.db", name))
            case "postgres":
                made.append(PostgresStore(request.getfixturevalue("postgres").dsn, name))
            case _:
                made.append(RedisStore(request.getfixturevalue("redis_server").url, name))
        return made[-1]

    yield new
    for store in made:
        store.close()


def test_what_is_saved_is_there_for_the_next(connect: Any) -> None:
    seat, saved = connect().begin("per-card", 1, 3)
    assert (seat.fence, saved.offsets, saved.records) == (1, {}, {})
    store = connect()
    seat, _ = store.begin("per-card", 1, 3)
    store.save(seat, OFFSETS, {b"": b"empty", b"c\x00\xff": b"\x00\xff", b"gone": b"1", b"never": None})
    store.save(seat, OFFSETS, {b"gone": None, b"": b"changed"})
    again, saved = connect().begin("per-card", 1, 3)
    assert again.fence == 3
    assert saved.offsets == OFFSETS and saved.records == {b"": b"changed", b"c\x00\xff": b"\x00\xff"}
    _, other = connect().begin("per-card", 2, 3)
    assert other.offsets == {} and other.records == {}
    assert connect().all() == [Stored("per-card", 1, 3, 3, OFFSETS), Stored("per-card", 2, 3, 1, {})]


def test_a_seat_that_was_taken_stores_nothing(connect: Any) -> None:
    old, new = connect(), connect()
    older, _ = old.begin("per-card", 0, 1)
    old.save(older, {"payments/0": 1}, {b"a": b"1"})
    newer, _ = new.begin("per-card", 0, 1)
    with pytest.raises(Refused, match=r"per-card\[0\] was started again elsewhere"):
        old.save(older, {"payments/0": 9}, {b"a": b"9", b"b": b"9"})
    new.save(newer, {"payments/0": 2}, {})
    _, saved = connect().begin("per-card", 0, 1)
    assert saved.offsets == {"payments/0": 2} and saved.records == {b"a": b"1"}


def test_another_number_of_instances_takes_no_seat(connect: Any) -> None:
    store = connect()
    seat, _ = store.begin("per-card", 0, 2)
    with pytest.raises(Refused, match="as 2 instances, and has 3 now"):
        connect().begin("per-card", 0, 3)
    store.save(seat, {}, {})  # it is still that of the first one


def test_of_many_that_begin_at_once_only_the_last_stores(connect: Any) -> None:
    """Also the first time, when tables are created."""
    seats, lock = [], threading.Lock()

    def begin(store: ManualStore) -> None:
        seat, _ = store.begin("per-card", 0, 1)
        with lock:
            seats.append((seat, store))

    threads = [threading.Thread(target=begin, args=(connect(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seat.fence for seat, _ in seats) == [1, 2, 3, 4]
    stored = 0
    for seat, store in seats:
        try:
            store.save(seat, {}, {})
            stored += 1
        except Refused:
            assert seat.fence < 4
    assert stored == 1


def test_a_store_is_sent_without_its_connection(connect: Any) -> None:
    store = connect()
    store.begin("per-card", 0, 1)
    sent = (
        store if isinstance(store, MemoryStore) else pickle.loads(pickle.dumps(store))
    )  # that one stays in its process
    seat, _ = sent.begin("per-card", 0, 1)
    assert seat.fence == 2
    sent.close()


SERVERS = [
    lambda port: PostgresStore(f"postgresql://u:secret@127.0.0.1:{port}/x"),
    lambda port: RedisStore(f"redis://:secret@127.0.0.1:{port}", "hand"),
]


@pytest.mark.parametrize("make", SERVERS, ids=["postgres", "redis"])
def test_a_server_that_is_not_there_is_an_error_without_secrets(make: Any) -> None:
    with pytest.raises(JobFailed) as caught:
        make(1).begin("per-card", 0, 1)
    assert caught.value.code == "SW-MANUAL-STORE" and "secret" not in str(caught.value)
