"""State of `apply_batch` operators: the same, in the table or resting in layers, whenever it is cooled or restored."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamwork import Record
from streamwork.components import Key
from streamwork.components.columns import python_values
from streamwork.components.schema import fields_of
from streamwork.state import FileChain, KeyedState, LayeredTable, StateCache, StateFiles, compaction, files, layers
from streamwork.state import layered_table as module
from streamwork.state.rows import RowFormat, StateKind
from streamwork.testing import SimulatedDisk
from table_pair import KEYS, VALUES, Keyed
from tiers import quick_every

OWNER = ("uid", "counts", 0)


class Seen(Record):
    seen: int = 0
    note: str = "new"


class Life:
    """One instance's state through many epochs, beside a plain dict that does the same."""

    def __init__(self, key: tuple[str, ...], seed: int, memory: int) -> None:
        self.rows = RowFormat("counts", Keyed, Key(key), Seen, 256, kind=StateKind.COLUMNS)
        self.records = RowFormat("counts", Keyed, Key(key), Seen, 256)
        self.fields = {name: fields_of(Keyed)[name] for name in key}
        self.files = StateFiles(SimulatedDisk(), Path("/job"))
        self.rng = random.Random(seed)
        self.memory = memory
        self.state = self._new()
        self.chain: FileChain = ()
        self.plain: dict[tuple[Any, ...], tuple[int, str]] = {}
        self.cache = StateCache()

    def run(self, epochs: int) -> None:
        for epoch in range(1, epochs + 1):
            for _ in range(self.rng.randint(0, 4)):
                self._batch([self._key() for _ in range(self.rng.choice((1, 4, 12)))], epoch)
            assert len(self.state) == len(self.plain)
            self.chain = self.files.save(self.rows, self.state, self.chain, 0, epoch, "1-a", self.memory)
            assert len(self.state) == len(self.plain)
            if self.rng.random() < 0.3 and compaction.deltas_since(self.chain):
                snapshot = compaction.compact(self.files, self.chain, self.rows, f"1-{epoch}")
                self.chain = compaction.with_snapshot(self.chain, snapshot)
            self._restart()
            if self.rng.random() < 0.5:  # it brings everything in: some epochs begin without
                self.check()
        self.check()
        again = self.records.new_state()
        assert isinstance(again, KeyedState)
        self.files.load(self.records, self.chain, again)
        again.warm([key if len(key) > 1 else key[0] for key in self.plain])
        found = {key if len(self.fields) > 1 else (key,): (r.seen, r.note) for key, r in again.records.items()}  # type: ignore[attr-defined]
        assert found == self.plain, "records of the same files differ"

    def _batch(self, keys: list[tuple[Any, ...]], epoch: int) -> None:
        placed, own = self.state.place_batch(self._columns(keys)), list(dict.fromkeys(keys))
        assert [own[code] for code in placed.codes.tolist()] == keys
        columns = self.state.arrays
        assert [columns["seen"][place] for place in placed.places.tolist()] == [
            self.plain.get(key, (0, "new"))[0] for key in own
        ]
        columns["seen"][placed.places] += np.bincount(placed.codes, minlength=len(own))
        columns["note"][placed.places] = f"epoch {epoch}"
        for key in keys:
            self.plain[key] = (self.plain.get(key, (0, ""))[0] + 1, f"epoch {epoch}")
        gone = [self.rng.random() < 0.3 for _ in own]
        self.state.forget(placed.places[gone])
        for key, is_gone in zip(own, gone, strict=True):
            if is_gone:
                del self.plain[key]

    def _restart(self) -> None:
        """Now and then: another worker, whose cache is some epochs old or empty."""
        chance = self.rng.random()
        if chance < 0.2:
            self.state = self._loaded()
        elif chance < 0.4:
            older, missing = self.cache.check_out(OWNER, self.chain)
            if isinstance(older, LayeredTable):
                self.files.catch_up(self.rows, missing, older)
                self.state = older
        elif chance < 0.6 and self.chain:
            self.cache.put(OWNER, self.chain, self._loaded())

    def check(self) -> None:
        assert len(self.state) == len(self.plain)
        keys = list(self.plain)
        if not keys:
            return
        places = self.state.place(self._columns(keys))
        found = zip(self.state.numbers("seen", places).tolist(), self.state.numbers("note", places), strict=True)
        assert dict(zip(keys, found, strict=True)) == self.plain
        assert len(self.state) == len(self.plain)
        assert not self.state.is_changed

    def _key(self) -> tuple[Any, ...]:
        return tuple(self.rng.choice(VALUES[name]) for name in self.fields)

    def _columns(self, keys: list[tuple[Any, ...]]) -> pa.RecordBatch:
        return pa.record_batch({n: f.build([key[at] for key in keys]) for at, (n, f) in enumerate(self.fields.items())})

    def _new(self) -> LayeredTable:
        state = self.rows.new_state()
        assert isinstance(state, LayeredTable)
        return state

    def _loaded(self) -> LayeredTable:
        state = self._new()
        self.files.load(self.rows, self.chain, state)
        return state


@pytest.fixture(params=["eager", "resting", "merged in the background"])
def restored(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "merged in the background":
        monkeypatch.setattr(layers, "BACKGROUND_ROWS", 0)
    if request.param != "eager":
        monkeypatch.setattr(files, "EAGER_ROWS", 0)


@pytest.mark.slow(memory=[1, 1 << 30])
@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize("key", quick_every(3, KEYS), ids="+".join)
@pytest.mark.parametrize("memory", [1, 2_000, 1 << 30])
def test_what_rests_is_the_same_state(key: tuple[str, ...], memory: int) -> None:
    for seed in range(3):
        Life(key, seed, memory).run(15)


@pytest.mark.parametrize("broken", ["warm", "gone"])
def test_the_oracle_finds_a_missing_row(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    """Negative controls: layers are not searched; a key that was forgotten comes back from a layer."""
    monkeypatch.setattr(files, "EAGER_ROWS", 0)
    if broken == "warm":
        monkeypatch.setattr(LayeredTable, "_warm", lambda self, places: np.empty(0, np.int64))
    else:
        monkeypatch.setattr(module.KeyPlaces, "__len__", lambda self: 0)
        monkeypatch.setattr(LayeredTable, "in_use", property(lambda self: len(self._rows._index)))
    with pytest.raises(AssertionError):
        for seed in range(3):
            Life(("text", "maybe"), seed, 1).run(15)


def test_keys_are_numbered_alike_whether_they_repeat_or_not() -> None:
    rows = RowFormat("counts", Keyed, Key(("text",)), Seen, 256, kind=StateKind.COLUMNS)
    state = rows.new_state()
    assert isinstance(state, LayeredTable)
    for texts, repeats in (
        ("abab" * 9, True),
        ("abcdefgh", True),
        ("hgab", False),
        ("bbbbbbbba", False),
        ("ca", True),
    ):
        placed = state.place_batch(pa.record_batch({"text": list(texts)}))
        own = list(dict.fromkeys(texts))
        assert [own[code] for code in placed.codes.tolist()] == list(texts)
        assert python_values(fields_of(Keyed)["text"], state.values("text", placed.places)) == own
        assert (placed.keys is not None) == repeats, texts
