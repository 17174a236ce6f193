"""Redis: what a delete leaves behind, and for how long, so that no write that arrives late brings a key back."""

from __future__ import annotations

import pytest

from connectors.deleting import (
    GONE,
    TOMBSTONES,
    RedisDeletingKit,
    any_late_writes,
    late_write_at_every_step,
    stopped_driver_resumes,
)
from connectors.kits import Died, Gate, Kit, entry, seen, staged
from connectors.test_sink_controls import failure, unfenced, without
from sample import Seen
from streamwork.connectors import redis_scripts

redis = pytest.mark.parametrize("kit", ["redis-delete"], indirect=True)


@redis
def test_what_a_reader_sees_of_a_key_that_was_deleted(kit: RedisDeletingKit) -> None:
    sink = kit.driver(3)
    sink.commit(entry(1, 0, 2, fence=3), staged([Seen("a", 1, 10), Seen("b", 1, 10)]))
    gate = Gate(5)  # the row, its mark, three keys
    kit.gate(sink, gate)
    with pytest.raises(Died):
        sink.commit(entry(2, 2, 5, fence=3), staged([Seen("a", 2, GONE), Seen("b", 2, 20), Seen("c", 2, GONE)]))
    kit.bury(sink)
    assert kit.client.exists("seen:a") == 0 and kit.client.hgetall("seen:a") == {}
    assert kit.tombstones() == {b"seen:a": b"3:2", b"seen:c": b"3:2"}, "it has left its stamp, elsewhere"
    heir = kit.driver(4)
    heir.commit(entry(2, 2, 5, fence=4), staged([Seen("a", 2, GONE), Seen("b", 2, 20), Seen("c", 2, GONE)]))
    assert kit.client.exists(TOMBSTONES) == 0, "until nothing older can get in"
    assert kit.client.hget("streamwork_ledger:u:s", "floor") == b"4:2"
    assert kit.rows() == [("b", 2, 20)]


@redis
def test_a_key_that_comes_again_leaves_its_tombstone(kit: RedisDeletingKit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_scripts, "ADVANCE", without(redis_scripts.ADVANCE, redis_scripts._FORGET))
    sink = kit.driver()
    sink.commit(entry(1, 0, 1), staged([Seen("a", 1, GONE)]))
    assert kit.tombstones() == {b"seen:a": b"1:1"}
    sink.commit(entry(2, 1, 2), staged([Seen("a", 2, 20)]))
    assert (kit.tombstones(), kit.rows()) == ({}, [("a", 2, 20)])


@redis
def test_a_commit_of_an_older_number_does_not_let_the_floor_sink(kit: RedisDeletingKit) -> None:
    sink = kit.driver()
    sink.commit(entry(5, 0, 2), staged(seen(1, 2)))
    sink.commit(entry(3, 2, 2), iter(()))  # as where the row is only to name another checkpoint
    row = kit.client.hgetall("streamwork_ledger:u:s")
    assert (row[b"floor"], row[b"manifest_sha256"]) == (b"1:5", b"m3")


def forget_fences(monkeypatch: pytest.MonkeyPatch) -> None:
    """The registered fence is lost, as with `appendfsync everysec` and a power cut."""
    monkeypatch.setattr(redis_scripts, "KEYS", without(redis_scripts.KEYS, redis_scripts._FENCE))


@redis
@pytest.mark.parametrize("fence", [1, 2], ids=["of the same fence", "of a lower fence"])
def test_a_write_that_arrives_late_does_not_bring_a_key_back(kit: Kit, fence: int) -> None:
    assert late_write_at_every_step(kit, fence) >= 7


@redis
def test_not_even_where_the_fence_was_lost(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    forget_fences(monkeypatch)
    assert late_write_at_every_step(kit, fence=2) >= 7


@redis
@pytest.mark.parametrize("guard", [redis_scripts._BURY, redis_scripts._FLOOR], ids=["tombstones", "the floor"])
@pytest.mark.parametrize("fence", [1, 2], ids=["of the same fence", "of a lower fence that was lost"])
def test_without_a_guard_a_late_write_brings_a_key_back(
    kit: Kit, monkeypatch: pytest.MonkeyPatch, guard: str, fence: int
) -> None:
    if fence == 2:
        forget_fences(monkeypatch)
    monkeypatch.setattr(redis_scripts, "KEYS", without(redis_scripts.KEYS, guard))
    assert "a key that was deleted is back" in failure(lambda: late_write_at_every_step(kit, fence))


def any_seed(kit: Kit, most: int = 25) -> None:
    for seed in range(most):
        any_late_writes(kit, seed)


@redis
def test_whoever_dies_and_whatever_arrives_late(kit: Kit) -> None:
    any_seed(kit)


@redis
def test_whoever_dies_and_whatever_arrives_late_where_fences_were_lost(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_fences(monkeypatch)
    any_seed(kit)


@redis
@pytest.mark.parametrize("guard", [redis_scripts._BURY, redis_scripts._FLOOR], ids=["tombstones", "the floor"])
def test_without_a_guard_some_seed_finds_it(kit: Kit, monkeypatch: pytest.MonkeyPatch, guard: str) -> None:
    monkeypatch.setattr(redis_scripts, "KEYS", without(redis_scripts.KEYS, guard))
    assert "seed" in failure(lambda: any_seed(kit, most=150))


@redis
def test_without_forgetting_tombstones_stay(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_scripts, "ADVANCE", without(redis_scripts.ADVANCE, redis_scripts._FORGET))
    assert "a tombstone is left" in failure(lambda: late_write_at_every_step(kit, fence=1))


@redis
def test_without_fences_and_stamps_a_driver_that_was_stopped_brings_keys_back(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    unfenced(monkeypatch)
    assert failure(lambda: stopped_driver_resumes(kit, monkeypatch)) == "", "floor and marks turn it away as well"
    monkeypatch.setattr(redis_scripts, "KEYS", without(redis_scripts.KEYS, redis_scripts._FLOOR))
    assert "a key that was deleted is back" in failure(lambda: stopped_driver_resumes(kit, monkeypatch))
