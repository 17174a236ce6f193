"""Kits of sinks in which a row may remove its key, and checks of deletes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple

import msgspec
import pytest

from connectors.checks import fresh
from connectors.kits import (
    Died,
    Gate,
    Kit,
    PostgresUpsertKit,
    RedisKit,
    Rows,
    SqliteUpsertKit,
    as_rows,
    entry,
    short_locks,
    staged,
)
from sample import Seen
from streamwork import JobFailed, Refused, field
from streamwork.components import LedgerEntry
from streamwork.connectors import redis_scripts

GONE = -1
TOMBSTONES = "streamwork_tombstones:u:s"


def kept(events: Sequence[Seen]) -> Rows:
    """The oracle: a dict."""
    there: dict[str, Seen] = {}
    for event in events:
        if event.total == GONE:
            there.pop(event.card, None)
        else:
            there[event.card] = event
    return as_rows(list(there.values()))


class Deleting(Kit):
    """Every fourth row removes its card."""

    options = {"delete": field("total") == GONE}

    def given(self, events: list[Seen]) -> list[Seen]:
        return [msgspec.structs.replace(e, total=GONE) if e.number % 4 == 0 else e for e in events]

    def expected(self, events: list[Seen]) -> Rows:
        return kept(events)


class SqliteDeletingKit(Deleting, SqliteUpsertKit): ...


class PostgresDeletingKit(Deleting, PostgresUpsertKit): ...


class RedisDeletingKit(Deleting, RedisKit):
    def tombstones(self) -> dict[bytes, bytes]:
        return self.client.hgetall(TOMBSTONES)


DELETING: dict[str, type[Kit]] = {
    "sqlite-delete": SqliteDeletingKit,
    "postgres-delete": PostgresDeletingKit,
    "redis-delete": RedisDeletingKit,
}


class Epoch(NamedTuple):
    """What a driver does next: it may be another one, and may offer what it has committed once more."""

    rows: list[tuple[int, bool]]  # card, whether it goes
    taken_over: bool
    again: bool


def as_in_a_dict(kit: Kit, epochs: Sequence[Epoch]) -> None:
    """Any upserts and deletes, cut into any epochs: after each of them readers see what a dict has."""
    try:
        numbers, there, position, fence = itertools.count(1), list[Seen](), 0, 1
        sink = kit.driver(fence)
        for number, epoch in enumerate(epochs, start=1):
            if epoch.taken_over:
                fence += 1
                sink = kit.driver(fence)
            events = [Seen(f"c{card}", next(numbers), GONE if gone else 7) for card, gone in epoch.rows]
            offer = entry(number, position, position + 1, fence)
            for _ in range(1 + epoch.again):
                sink.commit(offer, staged(events, 3))
            position, there = position + 1, there + events
            assert kit.rows() == kept(there), f"after epoch {number}"
    finally:
        kit.close()


# ---- writes that arrive late ---------------------------------------------------------------------------------------------


def stopped_with_a_write_under_way(kit: RedisKit) -> tuple[list[Any], list[Any]]:
    """A driver stops in the middle of checkpoint 1. What it sent last, card c1, is still on its way."""
    sink = kit.driver(1)
    call, sent = sink._call, []

    def sending(script: str, keys: list[Any], values: list[Any]) -> Any:
        if script == redis_scripts.KEYS:
            sent.append((keys, values))
            raise Died
        return call(script, keys, values)

    sink._call = sending
    with suppress(Died):
        sink.commit(entry(1, 0, 2), staged([Seen("c1", 1, 10)]))
    return sent[0]


def late_write_at_every_step(like: Kit, fence: int) -> int:
    """Another driver goes on, and deletes c1. The write of the one that stopped arrives before each of its operations in turn,
    or when it is done. Gives the number of operations.
    """
    for steps in range(1000):
        kit = fresh(type(like), like, like.folder)
        assert isinstance(kit, RedisDeletingKit)
        try:
            late = stopped_with_a_write_under_way(kit)
            arrive = _arriving(kit, late)
            heir = kit.driver(fence)
            gate = Gate(steps, at=arrive)
            kit.gate(heir, gate)
            second = [Seen("c1", 3, 30), Seen("c2", 5, 50), Seen("c1", 8, GONE)]
            third = [Seen("c0", 9, 90)]
            heir.commit(entry(2, 0, 8, fence=fence), staged(second))
            heir.commit(entry(3, 8, 9, fence=fence), staged(third))
            if not gate.reached:
                arrive()
            assert kit.rows() == kept(second + third), f"a key that was deleted is back, from operation {steps}"
            assert kit.tombstones() == {}, f"a tombstone is left, from operation {steps}"
        finally:
            kit.close()
        if not gate.reached:
            return steps
    raise AssertionError("a commit never ends")


def _arriving(kit: RedisKit, late: tuple[list[Any], list[Any]]) -> Any:
    return lambda: kit.client.register_script(redis_scripts.KEYS)(keys=late[0], args=late[1])


class Network:
    """Between drivers and Redis. What was sent once may arrive again, as long as it is of an epoch before the one at hand."""

    def __init__(self, kit: RedisKit, random: Random) -> None:
        self._kit, self._random = kit, random
        self._sent: list[tuple[int, list[Any], list[Any]]] = []
        self._dies_at = -1

    def commit(self, sink: Any, offered: LedgerEntry, events: list[Seen], dies_at: int = -1) -> None:
        """Offer an epoch. If the driver dies at an operation of it, nobody knows whether Redis has got that one."""
        call, self._dies_at = type(sink)._call, dies_at

        def sending(script: str, keys: list[Any], values: list[Any]) -> Any:
            if self._random.random() < 0.6:
                self.late(offered.epoch)
            if script == redis_scripts.KEYS:
                self._sent.append((offered.epoch, keys, values))
            self._dies_at -= 1
            if self._dies_at == -1:
                if self._random.random() < 0.5:
                    call(sink, script, keys, values)
                raise Died
            return call(sink, script, keys, values)

        sink._call = sending
        with suppress(Died):
            sink.commit(offered, staged(events, 3))

    def late(self, before: int) -> None:
        if old := [one for one in self._sent if one[0] < before]:
            _, keys, values = self._random.choice(old[-3:])
            self._kit.client.register_script(redis_scripts.KEYS)(keys=keys, args=values)


def any_late_writes(kit: Kit, seed: int) -> None:
    """Drivers that die anywhere and are followed by others, or by themselves; the next one offers the epoch again, or a longer one
    under a new number. All the time older writes arrive. After every commit readers see what a dict has.
    """
    assert isinstance(kit, RedisDeletingKit)
    kit.client.flushall()
    random = Random(seed)
    network = Network(kit, random)
    there: list[Seen] = []
    fence = number = position = 1
    events: list[Seen] = []
    for _ in range(8):
        if random.random() < 0.6 or not events:
            number += 1
            events = events + [Seen(f"c{random.randrange(3)}", number, random.choice([GONE, 7])) for _ in range(3)]
        sink = kit.driver(fence)
        offered = entry(number, position - 1, position + number, fence, first=position == 1)
        network.commit(sink, offered, events, random.choice([-1, *range(5)]))
        if sink.ledger("u", "s").manifest_sha256 == offered.manifest_sha256:
            there, events, position = there + events, [], position + number + 1
            network.late(number + 1)
            assert kit.rows() == kept(there), f"seed {seed}: a key that was deleted is back, or another value"
            assert kit.tombstones() == {}, f"seed {seed}: a tombstone is left"
        fence += random.random() < 0.5
        sink.close()
        kit._made.remove(sink)


def stopped_driver_resumes(like: Kit, monkeypatch: pytest.MonkeyPatch) -> int:
    """A driver stops at each operation of a commit in turn, while another one does that checkpoint, and the next, which deletes
    what it wrote; then the first one goes on.
    """
    short_locks(monkeypatch)
    for steps in range(1000):
        kit = fresh(type(like), like, like.folder / f"resumes-{steps}")
        kit.folder.mkdir(exist_ok=True)
        written = [Seen("c1", 1, 10), Seen("c2", 2, 20)]
        deleted = [Seen("c1", 3, GONE), Seen("c3", 5, 50), Seen("c2", 6, GONE)]
        try:
            old, done = kit.driver(1), []

            def take_over(kit: Kit = kit, done: list[Any] = done, a: Any = written, b: Any = deleted) -> None:
                try:
                    heir = kit.driver(2)
                except JobFailed:  # a lock of the older one is in the way
                    return
                heir.commit(entry(1, 0, 2, fence=2), staged(a))
                heir.commit(entry(2, 2, 6, fence=2), staged(b))
                done.append(heir)

            gate = Gate(steps, at=take_over)
            kit.gate(old, gate)
            try:
                old.commit(entry(1, 0, 2), staged(written))
            except Refused as refused:
                assert refused.code in ("SW-SINK-FENCED", "SW-SINK-LEDGER"), refused
            kit.bury(old)
            if not done:
                take_over()
            assert kit.rows() == kept(written + deleted), f"a key that was deleted is back, from operation {steps}"
        finally:
            kit.close()
        if not gate.reached:
            return steps
    raise AssertionError("a commit never ends")
