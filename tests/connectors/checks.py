"""Checks that the contract suite makes of the sinks, and the negative controls of sinks that lack a guard."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st

from connectors.kits import Died, Gate, Kit, PostgresKit, RedisKit, SqliteKit, batch, entry, seen, short_locks, staged
from sample import Seen
from streamwork import JobFailed, Refused
from streamwork.components import PreviewLabel


def story(kit: Kit) -> tuple[list[Seen], list[Seen], list[Seen]]:
    """What three epochs bring."""
    first, second, third = map(kit.given, (seen(1, 2), seen(3, 4, 5, 6, 7, 8), seen(9, 10)))
    return first, second, third


def fresh(kind: type[Kit], like: Kit, folder: Path) -> Kit:
    """Another, empty target of the same kind."""
    return kind(folder, getattr(like, "_server", None))


def idempotent(kit: Kit) -> None:
    first, second, _ = story(kit)
    sink = kit.driver()
    for _ in range(3):
        sink.commit(entry(1, 0, 2), staged(first))
    sink.commit(entry(2, 2, 8), staged(second))
    for _ in range(2):
        sink.commit(entry(1, 0, 2), staged(first))  # a driver that catches up
    assert kit.rows() == kit.expected(first + second)
    assert sink.ledger("u", "s").position == {"a/0": 8}


def death_at_every_step(kind: type[Kit], like: Kit, done: bool) -> int:
    """A driver dies at each operation of its second commit in turn; the next one offers the same again. Gives their number."""
    for steps in range(1000):
        kit = fresh(kind, like, like.folder / f"death-{steps}")
        kit.folder.mkdir(exist_ok=True)
        first, second, third = story(kit)
        try:
            sink = kit.driver(1)
            sink.commit(entry(1, 0, 2), staged(first))
            gate = Gate(steps, done)
            kit.gate(sink, gate)
            with suppress(Died):
                sink.commit(entry(2, 2, 8), staged(second))
            kit.bury(sink)
            heir = kit.driver(2)
            row = heir.ledger("u", "s")
            if not isinstance(kit, RedisKit):  # transactional: rows and ledger agree at any time
                there = {"m1": first, "m2": first + second}[row.manifest_sha256]
                assert kit.rows() == kit.expected(there), f"rows and ledger disagree after {steps} operations"
            heir.commit(entry(2, 2, 8, fence=2), staged(second))
            heir.commit(entry(3, 8, 10, fence=2), staged(third))
            assert kit.rows() == kit.expected(first + second + third), f"after {steps} operations"
            assert heir.ledger("u", "s").position == {"a/0": 10}
        finally:
            kit.close()
        if not gate.reached:
            return steps
    raise AssertionError("a commit never ends")


def zombie_at_every_step(kind: type[Kit], like: Kit, monkeypatch: pytest.MonkeyPatch, only_registers: bool) -> int:
    """A newer driver takes over at each operation of a commit in turn, and perhaps goes on; then the older one wakes up."""
    short_locks(monkeypatch)
    for steps in range(1000):
        kit = fresh(kind, like, like.folder / f"zombie-{only_registers}-{steps}")
        kit.folder.mkdir(exist_ok=True)
        first, second, third = story(kit)
        try:
            old = kit.driver(1)
            old.commit(entry(1, 0, 2), staged(first))
            heirs: list[Any] = []

            def take_over(kit: Kit = kit, heirs: list[Any] = heirs, second: Any = second, third: Any = third) -> None:
                try:
                    heir = kit.driver(2)
                except (JobFailed, Refused) as error:  # a lock of the older one is in the way: later
                    assert error.code in ("SW-SINK-FAILED", "SW-LOG-LOCKED"), error
                    return
                found = heir.ledger("u", "s").manifest_sha256
                if not only_registers:
                    heir.commit(entry(2, 2, 8, fence=2), staged(second))
                    heir.commit(entry(3, 8, 10, fence=2), staged(third))
                heirs.append((heir, found, kit.rows()))

            gate = Gate(steps, at=take_over)
            kit.gate(old, gate)
            try:
                old.commit(entry(2, 2, 8), staged(second))
                assert not heirs or heirs[0][1] == "m2", "it was not turned away, though the newer one came first"
            except Refused as refused:
                assert refused.code in ("SW-SINK-FENCED", "SW-SINK-LEDGER", "SW-LOG-LOCKED"), refused
            if heirs:
                heir, _, then = heirs[0]
                assert kit.rows() == then, f"changed by a driver that was taken over, at operation {steps}"
            else:
                kit.bury(old)
                heir = kit.driver(2)
            if only_registers or not heirs:
                heir.commit(entry(2, 2, 8, fence=2), staged(second))
                heir.commit(entry(3, 8, 10, fence=2), staged(third))
            assert kit.rows() == kit.expected(first + second + third), f"at operation {steps}"
            row = heir.ledger("u", "s")
            assert (row.fence, row.position, row.manifest_sha256) == (2, {"a/0": 10}, "m3")
        finally:
            kit.close()
        if not gate.reached:
            return steps
    raise AssertionError("a commit never ends")


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["next", "next", "again", "other hash", "stale", "gap", "random", "empty", "take over", "zombie"]
        ),
        st.integers(1, 3),
    ),
    max_size=12,
)
"""Offers for `as_in_the_model`."""


def as_in_the_model(kit: Kit, steps: list[tuple[str, int]]) -> None:
    """Offers in any order. The model is a list of events, a position, a hash and a fence."""
    try:
        fence, position, sha, there, past = 1, 0, "", [], []
        old, sink = None, kit.driver(1)
        for epoch, (what, size) in enumerate(steps, start=1):
            events = kit.given(seen(*range(position + 1, position + 1 + size)))
            offer = entry(epoch, position, position + size, fence, parent_sha256=sha, first=not sha)
            if what == "take over":
                old, fence = sink, fence + 1
                sink = kit.driver(fence)
            elif what == "zombie":
                if old is not None:
                    with pytest.raises(Refused, match="SW-SINK-FENCED"):
                        old.commit(msgspec.structs.replace(offer, fence=fence - 1), staged(events))
            elif what == "gap":
                with pytest.raises(Refused, match="SW-SINK-LEDGER"):
                    sink.commit(entry(epoch, position + 1, position + 9, fence, first=False), staged(events))
            elif what == "random" and sha:
                strange = msgspec.structs.replace(offer, deterministic=False, parent_sha256="strange")
                with pytest.raises(Refused, match="SW-SINK-LEDGER"):
                    sink.commit(strange, staged(events))
            elif what == "again" and past:
                sink.commit(msgspec.structs.replace(past[-1][0], fence=fence), staged(past[-1][1]))
            elif what == "other hash" and past:
                offer = msgspec.structs.replace(past[-1][0], fence=fence, epoch=epoch, manifest_sha256=f"x{epoch}")
                sink.commit(msgspec.structs.replace(offer, first=False), staged(past[-1][1]))
                sha, past[-1] = offer.manifest_sha256, (offer, past[-1][1])
            elif what == "stale" and len(past) > 1:
                sink.commit(
                    msgspec.structs.replace(past[0][0], fence=fence, epoch=epoch, first=False), staged(past[0][1])
                )
            elif what in ("next", "empty"):
                events = events if what == "next" else []
                sink.commit(offer, staged(events))
                position, sha, there = position + size, offer.manifest_sha256, there + events
                past.append((offer, events))
            row = sink.ledger("u", "s")
            assert (row.fence, row.manifest_sha256, row.position or {}) == (
                fence,
                sha,
                {"a/0": position} if position else {},
            )
            assert kit.rows() == kit.expected(there)
    finally:
        kit.close()


def make_refusing(kit: Kit) -> None:
    """A target that refuses `Seen("c9", -1, ...)`."""
    key = ", PRIMARY KEY (card)" if kit.keyed else ""
    if isinstance(kit, SqliteKit):
        kit.execute(f"CREATE TABLE seen (card TEXT, number INTEGER CHECK (number > 0), total INTEGER{key})")
    elif isinstance(kit, PostgresKit):
        kit.execute(f"CREATE TABLE seen (card text, number bigint CHECK (number > 0), total bigint{key})")
    elif isinstance(kit, RedisKit):
        kit.client.set("seen:c9", "somebody else's")


def previews_of_older_fences(kit: Any) -> None:
    old = kit.driver(1)
    old.preview(PreviewLabel("u", "s", 1, 1), batch(seen(1)))
    new = kit.driver(2)
    new.preview(PreviewLabel("u", "s", 2, 2), batch([Seen("c2", 5, 0)]))
    with pytest.raises(Refused, match="SW-SINK-FENCED"):
        old.preview(PreviewLabel("u", "s", 1, 3), batch(seen(3)))
    # one that had read the ledger just before the newer driver registered
    insert = "INSERT INTO seen__preview (__uid, __sink, __fence, __epoch, card, number, total) VALUES "
    kit.execute(insert + "('u', 's', 1, 3, 'c0', 3, 30)")
    assert kit.query("SELECT card, number, __epoch FROM seen__dirty") == [("c2", 5, 2)]
