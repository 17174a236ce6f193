"""Tables in files: the state is the same after a restart, from any chain of deltas and snapshots, and open to other readers."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from streamwork import Record
from streamwork.components import Key
from streamwork.components.columns import python_values
from streamwork.components.keys import canonical
from streamwork.components.schema import fields_of
from streamwork.components.table_operator import TableOperator
from streamwork.errors import JobFailed, WrongUse
from streamwork.job.node import Input, Node, NodeKind, Port
from streamwork.state import FileChain, StateCache, StateFiles, StateView, Table, compaction
from streamwork.state.rows import RowFormat, StateKind
from streamwork.testing import SimulatedDisk
from table_pair import KEYS, PUT, STARTS, VALUES, Kept, Keyed, Pair, Start

OWNER = ("uid", "windows", 0)


class Life(Pair):
    """One instance's table through many epochs and restarts, beside a dict."""

    def __init__(self, key: tuple[str, ...], sub_key: type[Record] | None, seed: int) -> None:
        super().__init__(key, sub_key)
        self.format = RowFormat("windows", Keyed, Key(key), Kept, 256, sub_key, kind=StateKind.TABLE)
        self.files = StateFiles(SimulatedDisk(), Path("/job"))
        self.rng = random.Random(seed)
        self.cache = StateCache()
        self.chain: FileChain = ()
        self.starts = STARTS if sub_key else [()]

    def run(self, epochs: int) -> None:
        for epoch in range(1, epochs + 1):
            for _ in range(self.rng.randint(0, 4)):
                keys = [self._key() for _ in range(self.rng.randint(1, 6))]
                self.place(keys)
                name = self.rng.choice(list(PUT))
                self.put(name, keys, PUT[name])
                self.forget([self._key() for _ in range(self.rng.randint(0, 4))])
            changed = self.table.is_changed
            before, self.chain = self.chain, self.files.save(self.format, self.table, self.chain, 0, epoch, "1-a")
            assert (self.chain != before) == changed
            if self.rng.random() < 0.3 and compaction.deltas_since(self.chain):
                snapshot = compaction.compact(self.files, self.chain, self.format, f"1-{epoch}")
                self.chain = compaction.with_snapshot(self.chain, snapshot)
            self._restart()
            self.check()
        self.check_view()

    def _key(self) -> tuple[Any, ...]:
        return (*(self.rng.choice(VALUES[name]) for name in self.key), *self.rng.choice(self.starts))

    def _restart(self) -> None:
        """Now and then: another worker, whose cache is some epochs old or empty."""
        chance = self.rng.random()
        if chance < 0.2:
            self.table = self._loaded()
        elif chance < 0.5:
            older, missing = self.cache.check_out(OWNER, self.chain)
            if older is not None:
                assert isinstance(older, Table)
                self.files.catch_up(self.format, missing, older)
                self.table = older
        elif chance < 0.7 and self.chain:
            self.cache.put(OWNER, self.chain, self._loaded())

    def _loaded(self) -> Table:
        table = self.format.new_state()
        assert isinstance(table, Table)
        self.files.load(self.format, self.chain, table)
        return table

    def check_view(self) -> None:
        view = StateView(self.files, self.format, {"0": self.chain})
        assert len(view) == len(self.rows)
        found = view.records()
        plain = {key if len(key) > 1 else key[0]: row for key, row in self.rows.items()}
        assert found == {key: Kept(**row) for key, row in plain.items()}
        for key, row in plain.items():
            assert view.get(key) == Kept(**row)
        table, size = view.to_arrow(), len(self.key)
        groups = dict(zip(self.format.keys(table), table.column("__group").to_pylist(), strict=True))
        keys = [key[0] if size == 1 else key[:size] for key in self.rows]
        assert list(map(groups.__getitem__, plain)) == Key.of(Keyed, self.key).groups(keys), "by the key alone"


@pytest.mark.slow(seed=range(1, 6))
@pytest.mark.parametrize("key", [*KEYS[:-1]], ids="+".join)
@pytest.mark.parametrize("sub_key", [None, Start])
@pytest.mark.parametrize("seed", range(6))
def test_a_table_survives_restarts(key: tuple[str, ...], sub_key: type[Record] | None, seed: int) -> None:
    Life(key, sub_key, seed).run(12)


def test_a_key_that_goes_and_comes_back_has_one_row(tmp_path: Path) -> None:
    """No file has two rows of one key and sub-key: readers take the row of the highest epoch."""
    life = Life(("text",), Start, 0)
    key = ("a", *STARTS[0])
    life.place([key])
    life.chain = life.files.save(life.format, life.table, (), 0, 1, "1-a")
    life.forget([key])
    life.place([key])
    life.forget([key])
    life.place([key, ("b", *STARTS[0])])
    life.forget([("b", *STARTS[0])])
    life.chain = life.files.save(life.format, life.table, life.chain, 0, 2, "1-a")
    assert life.files.read(life.chain[1]).column("__deleted").to_pylist() == [False]
    life.forget([key])
    life.chain = life.files.save(life.format, life.table, life.chain, 0, 3, "1-a")
    last = life.files.read(life.chain[2])
    assert last.column("__deleted").to_pylist() == [True] and last.schema.equals(life.format.schema)
    life.check_view()


def test_other_programs_read_the_rows() -> None:
    life = Life(("text", "maybe"), Start, 3)
    life.place([("a", None, *start) for start in STARTS])
    life.put("count", [("a", None, *STARTS[1])], [9])
    life.chain = life.files.save(life.format, life.table, (), 0, 1, "1-a")
    windows = life.files.read(life.chain[0])
    assert windows.column_names[:4] == ["text", "maybe", "start", "side"]
    assert duckdb.sql("SELECT sum(count) FROM windows WHERE side = 'left'").fetchall() == [(9 + 2 * 3,)]
    assert duckdb.sql("SELECT max(len(__timers)) FROM windows").fetchall() == [(0,)]


def test_a_table_without_a_key_has_sub_keys_alone() -> None:
    rows = RowFormat("total", Keyed, None, Kept, 256, Start, kind=StateKind.TABLE)
    files, table = StateFiles(SimulatedDisk(), Path("/job")), rows.new_state()
    assert isinstance(table, Table)
    keys = pa.record_batch(
        {name: f.build([s[at] for s in STARTS]) for at, (name, f) in enumerate(fields_of(Start).items())}
    )
    table.put("count", table.place(keys), np.arange(len(STARTS)))
    chain = files.save(rows, table, (), 0, 1, "1-a")
    stored = files.read(chain[0])
    assert stored.column("__group").null_count == len(STARTS)
    again = rows.new_state()
    assert isinstance(again, Table)
    files.load(rows, chain, again)
    assert again.numbers("count", again.find(keys)).tolist() == list(range(len(STARTS)))


def test_a_value_that_does_not_fit_is_refused() -> None:
    life = Life(("text",), None, 0)
    life.place([("a",)])
    places = life.table.places()
    life.table.put("due", places, np.array([1 << 62]).astype("datetime64[us]"))
    with pytest.raises(JobFailed, match="Kept.due") as refused:
        life.files.save(life.format, life.table, (), 0, 1, "1-a")
    assert refused.value.code == "SW-TYPE-VALUE"


def test_what_was_forgotten_is_missed_without_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: without rows that say that a key is gone, restarts find it again."""
    monkeypatch.setattr(Table, "removed", lambda self: [])
    with pytest.raises(AssertionError):
        for seed in range(3):
            Life(("text",), Start, seed).run(12)


def test_due_rows_are_in_the_order_of_canonical_bytes_after_a_restart() -> None:
    life = Life(("number",), Start, 1)
    life.place([(number, *STARTS[0]) for number in (10, 9, 100, -1)])
    life.chain = life.files.save(life.format, life.table, (), 0, 1, "1-a")
    for table in (life.table, life._loaded()):
        due = table.due("due", 1 << 60)
        found = python_values(fields_of(Keyed)["number"], table.values("number", due))
        assert list(found) == sorted([10, 9, 100, -1], key=canonical)


def test_a_sub_key_is_part_of_the_job(tmp_path: Path) -> None:
    """Its fields have names of their own, and are in the fingerprint."""

    class Clashing(Record):
        text: str = ""

    class Kinds(TableOperator[Keyed, Kept, Keyed]):
        def __init__(self, sub_key: type[Record] | None) -> None:
            self.sub_key = sub_key

    def node(sub_key: type[Record] | None) -> Node:
        port = Port((Input("events"),), Keyed, Key(("text",)))
        return Node("windows", NodeKind.OPERATOR, Kinds(sub_key), (port,), Kept, Keyed)

    with pytest.raises(WrongUse, match=r"Clashing.text has the name of the key field 'text'"):
        node(Clashing)
    with pytest.raises(WrongUse, match=r"Kept.count has the name of the key field 'count'"):
        node(type("Counting", (Record,), {"__annotations__": {"count": int}, "count": 0}))
    assert node(Start).signature() != node(None).signature()
    assert "sub_key" not in node(None).signature()
