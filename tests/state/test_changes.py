"""What changed since it was last asked, of every kind of state: added up, it is the state; and checkpoints miss nothing of it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamwork import Event, Record
from streamwork.components import Key
from streamwork.state import InstanceState, KeyedState, StateFiles, Table
from streamwork.state.changes import changes_of
from streamwork.state.rows import RowFormat, StateKind
from streamwork.state.tail import TailName, TailWriter, encoded, frames
from streamwork.testing import SimulatedDisk
from tiers import quick_every


class Use(Event):
    card: str


class Count(Record):
    count: int = 0


def put(state: Any, key: str, value: int) -> None:
    if isinstance(state, KeyedState):
        state.warm([key])
        if key in state.records:
            state.records[key].count = value
        else:
            state.add(key, Count(value))
        state.changed.add(key)
        return
    places = state.place(keys_of(key))
    state.put("count", places, np.array([value]))


def forget(state: Any, key: str) -> None:
    if isinstance(state, KeyedState):
        state.warm([key])
        if key in state.records:
            state.forget(key)
        return
    places = state.place(keys_of(key)) if hasattr(state, "layers") else state.find(keys_of(key))
    state.forget(places[places >= 0])


def keys_of(key: str) -> pa.RecordBatch:
    return pa.record_batch({"card": pa.array([key])})


def apply(seen: dict[str, int], rows: pa.Table) -> None:
    for row in rows.to_pylist():
        if row["__deleted"]:
            seen.pop(row["card"], None)
        else:
            seen[row["card"]] = row["count"]


@pytest.mark.parametrize("hurry", [False, True])
@pytest.mark.parametrize("memory", [None, 600])
@pytest.mark.parametrize("kind", [StateKind.RECORDS, StateKind.COLUMNS, StateKind.TABLE])
@pytest.mark.parametrize("seed", quick_every(6, range(24)))
def test_changes_add_up(kind: StateKind, seed: int, memory: int | None, hurry: bool) -> None:
    rng = random.Random(seed)
    rows = RowFormat("counts", Use, Key(("card",)), Count, 16, kind=kind)
    files, chain = StateFiles(SimulatedDisk(), Path("/job")), ()
    state = rows.new_state()
    changes = changes_of(rows, state)
    plain: dict[str, int] = {}
    seen: dict[str, int] = {}
    for epoch in range(1, 12):
        for _ in range(rng.randrange(25)):
            key, what = f"card-{rng.randrange(12)}", rng.random()
            if what < 0.6:
                plain[key] = rng.randrange(1_000)
                put(state, key, plain[key])
            elif what < 0.8:
                plain.pop(key, None)
                forget(state, key)
            else:
                if (found := changes.take(epoch)) is not None:
                    apply(seen, found)
                assert seen == plain
                assert changes.take(epoch) is None
        changes.give_back()
        write = files.capture(rows, state, 0, epoch, "1-a", memory, hurry)
        seen = dict(plain)  # a reader goes on from the checkpoint
        for key in rng.sample(sorted(plain), len(plain) // 2):  # it changes before it is written
            plain[key] += 1
            put(state, key, plain[key])
        chain = write(chain)
        restored: dict[str, int] = {}
        for table in files.tables(rows, chain):
            apply(restored, table)
        assert restored == seen
        assert len(state) == len(plain)
        if (found := changes.take(epoch)) is not None:
            apply(seen, found)
        assert seen == plain


@pytest.mark.parametrize("hurry", [False, True])
@pytest.mark.parametrize("published", [False, True])
def test_a_key_that_comes_and_goes_between_two_checkpoints_leaves_no_row(published: bool, hurry: bool) -> None:
    rows = RowFormat("counts", Use, Key(("card",)), Count, 16)
    files, state = StateFiles(SimulatedDisk(), Path("/job")), KeyedState()
    changes = changes_of(rows, state)
    put(state, "old", 1)
    chain = files.save(rows, state, (), 0, 1, "1-a")
    for key in ("old", "new", "back"):
        put(state, key, 2)
    if published:
        assert changes.take(2) is not None
    for key in ("old", "new", "back"):
        forget(state, key)
    put(state, "back", 3)
    forget(state, "never")
    changes.give_back()
    chain = files.capture(rows, state, 0, 2, "1-a", None, hurry)(chain)
    written = files.tables(rows, chain)[-1].to_pylist()
    assert {(row["card"], row["__deleted"]) for row in written} == {
        ("old", True),
        ("back", False),
        *([("new", True)] if published else []),
    }
    put(state, "new", 4)
    forget(state, "new")
    assert files.capture(rows, state, 0, 3, "1-a", None, hurry)(chain) == chain, "nothing to write"


def test_the_record_of_an_instance() -> None:
    rows, state = RowFormat("counts", Use, None, Count, 16), InstanceState()
    changes = changes_of(rows, state)
    assert changes.take(1) is None
    state.record = Count(1)
    found = changes.take(1)
    assert found is not None and found.column("count").to_pylist() == [1]
    state.record = Count(1)
    assert changes.take(1) is None


def test_a_state_whose_changes_are_not_given_back_loses_them() -> None:
    """The negative control."""
    rows = RowFormat("counts", Use, Key(("card",)), Count, 16)
    files, state = StateFiles(SimulatedDisk(), Path("/job")), rows.new_state()
    put(state, "card-1", 1)
    assert changes_of(rows, state).take(1) is not None
    assert files.save(rows, state, (), 0, 1, "1-a") == ()


def test_a_frame_that_is_not_whole_ends_a_file(tmp_path: Path) -> None:
    name = TailName("per-card", 3, 41, 0)
    assert TailName.parse(str(name)) == name
    assert TailName.parse("per-card.3.41") is None and TailName.parse("per-card.3.x.0") is None
    writer, tables = TailWriter(tmp_path / str(name)), []
    for number in range(3):
        tables.append(pa.table({"card": [f"card-{number}"], "count": [number]}))
        writer.append(float(number), tables[-1])
    writer.close()
    data = (tmp_path / str(name)).read_bytes()
    assert writer.size == len(data)
    ends = [end for end, _ in frames(data)]
    assert [(one.written, one.rows) for _, one in frames(data)] == [(float(n), t) for n, t in enumerate(tables)]
    for size in range(len(data)):
        assert [end for end, _ in frames(data[:size])] == [end for end in ends if end <= size]
    for place in range(ends[0], ends[1]):
        torn = data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :]
        assert [end for end, _ in frames(torn)] == ends[:1]
    assert not list(frames(b"\0" * 64)), "a hole that was never written"
    assert encoded(0.0, tables[0]) == data[: ends[0]]


def test_a_table_keeps_its_marks_while_rows_come_and_go() -> None:
    rows = RowFormat("counts", Use, Key(("card",)), Count, 16, kind=StateKind.TABLE)
    state = rows.new_state()
    assert isinstance(state, Table)
    put(state, "a", 1)
    marks = state.set_aside()
    assert not state.is_changed
    forget(state, "a")
    assert state.is_changed, "it was added since the last checkpoint, and published"
    for number in range(40):  # the table grows
        put(state, f"b-{number}", number)
    state.put_back(marks)
    assert [batch.column("card").to_pylist() for batch in state.removed()] == [["a"]]
    assert len(state.changed()) == 40
