"""State beyond its memory: what rests in columns is the same state, whatever the key, whenever it is cooled or restored."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pytest

from streamwork import Digits, Event, Record
from streamwork.components import Key, Timer, TimerClock
from streamwork.components.hashing import hash_columns
from streamwork.state import FileChain, KeyedState, StateCache, StateFiles, compaction, files, keyed, layer, layers
from streamwork.state.rows import RowFormat, StateKind
from streamwork.testing import SimulatedDisk
from tiers import quick_every

FOLDER = Path("/job")
START = datetime(2026, 1, 1, tzinfo=UTC)


class Keyed(Event):
    text: str
    number: int
    maybe: int | None
    flag: bool
    day: date
    at: datetime
    price: Annotated[Decimal, Digits(10, 2)]
    raw: bytes


class Count(Record):
    seen: int = 0
    words: list[str] = []


class Seen(Record):
    seen: int = 0


KEYS: dict[tuple[str, ...], list[Any]] = {
    ("text",): [f"key-{n}" for n in range(12)] + ["", "ä", "key-1 "],
    ("number",): [*range(-5, 8), 2**62, -(2**62)],
    ("maybe",): [None, 0, *range(1, 9), -7_046_029_254_386_353_131],
    ("flag",): [True, False],
    ("day",): [date(2026, 1, 1) + timedelta(days=n) for n in range(9)],
    ("at",): [START + timedelta(microseconds=n) for n in range(9)],
    ("price",): [Decimal("1.10"), Decimal("1.01"), Decimal("-3.00"), Decimal("0.00")],
    ("raw",): [b"", b"\x00", b"a", b"\xff" * 9],
    ("text", "maybe"): [(text, maybe) for text in ("a", "b", "") for maybe in (None, 0, 1)],
}


class Life:
    """One instance's state through many epochs, beside a plain dict that does the same."""

    def __init__(self, fields: tuple[str, ...], rng: random.Random, memory: int) -> None:
        self.rows = RowFormat("counts", Keyed, Key(fields), Count, 256)
        self.files = StateFiles(SimulatedDisk(), FOLDER)
        self.keys = KEYS[fields]
        self.rng = rng
        self.memory = memory
        self.state = self.rows.new_state()
        self.chain: FileChain = ()
        self.plain: dict[Any, tuple[int, list[str]]] = {}
        self.timers: dict[Any, set[Timer]] = {}
        self.cache = StateCache()
        self.epoch = 0

    def run(self, epochs: int) -> None:
        for _ in range(epochs):
            self.epoch += 1
            for _ in range(self.rng.randint(0, 4)):
                self._batch([self.rng.choice(self.keys) for _ in range(self.rng.randint(1, 5))])
            assert isinstance(self.state, KeyedState)
            assert len(self.state) == len(self.plain)
            self.chain = self.files.save(self.rows, self.state, self.chain, 0, self.epoch, "1-a", self.memory)
            assert len(self.state) == len(self.plain)
            if self.rng.random() < 0.3 and compaction.deltas_since(self.chain):
                stem = f"1-{self.epoch}"
                snapshot = compaction.compact(self.files, self.chain, self.rows, stem)
                self.chain = compaction.with_snapshot(self.chain, snapshot)
            self._restart()
            if self.rng.random() < 0.5:  # it brings everything in: some epochs begin without
                self.check()
        self.check()

    def _batch(self, keys: list[Any]) -> None:
        state: Any = self.state
        state.warm(keys)
        for key in keys:
            if self.rng.random() < 0.2:
                state.forget(key)
                self.plain.pop(key, None)
                self.timers.pop(key, None)
                continue
            record = state.records.get(key)
            if record is None:
                record = state.records[key] = Count()
            record.seen += 1
            record.words = [*record.words, str(self.epoch)][-3:]
            seen, words = self.plain.get(key, (0, []))
            self.plain[key] = (seen + 1, [*words, str(self.epoch)][-3:])
            if self.rng.random() < 0.1:
                timer = Timer(START + timedelta(seconds=self.rng.randint(0, 50)), TimerClock.EVENT)
                state.set_timer(key, timer)
                self.timers.setdefault(key, set()).add(timer)
            state.changed.add(key)

    def _restart(self) -> None:
        """Now and then: another worker, whose cache is some epochs old or empty."""
        owner = ("uid", "counts", 0)
        chance = self.rng.random()
        if chance < 0.2:
            self.state = self.rows.new_state()
            self.files.load(self.rows, self.chain, self.state)
        elif chance < 0.4:
            older, missing = self.cache.check_out(owner, self.chain)
            if older is not None:
                self.files.catch_up(self.rows, missing, older)
                self.state = older
        elif chance < 0.5:
            copy = self.rows.new_state()
            self.files.load(self.rows, self.chain, copy)
            self.cache.put(owner, self.chain, copy)

    def check(self) -> None:
        state: Any = self.state
        state.warm(self.keys)
        found = {key: (record.seen, record.words) for key, record in state.records.items()}
        assert found == self.plain
        assert state.timers == self.timers
        assert len(state) == len(self.plain)
        again: Any = self.rows.new_state()
        for table in [self.files.read(ref) for ref in next(files.ways(self.chain))]:
            self.rows.decode(table, again)
        assert {key: (r.seen, r.words) for key, r in again.records.items()} == self.plain, "the files say otherwise"


@pytest.fixture(params=["eager", "resting", "merged in the background"])
def restored(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "merged in the background":
        monkeypatch.setattr(layers, "BACKGROUND_ROWS", 0)
    if request.param != "eager":
        monkeypatch.setattr(files, "EAGER_ROWS", 0)
        monkeypatch.setattr(layer, "SPILL_BYTES", 200)
        monkeypatch.setattr(keyed, "MANY", 0)


@pytest.mark.slow(memory=[1, 1 << 30])
@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize("fields", quick_every(3, KEYS), ids="+".join)
@pytest.mark.parametrize("memory", [1, 2_000, 1 << 30])
def test_whatever_rests_the_state_is_the_same(fields: tuple[str, ...], memory: int) -> None:
    for seed in range(3):
        Life(fields, random.Random(seed), memory).run(15)


def one_hash(columns: Any, rows: int) -> Any:
    return np.zeros(rows, dtype=np.uint64)


def test_keys_of_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer, "hash_columns", one_hash)
    monkeypatch.setattr("streamwork.state.rows.hash_columns", one_hash)
    monkeypatch.setattr(files, "EAGER_ROWS", 0)
    Life(("text",), random.Random(1), memory=1).run(15)


def test_without_looking_at_the_key_they_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: whatever has the hash is taken for the key."""

    def by_hash(self: RowFormat, rows: Any, keys: list[Any], hashes: Any) -> Any:
        for place, row in zip(*rows.candidates(hashes), strict=True):
            yield place, keys[place], self.records(rows.rows.take([int(row)]))[0]

    monkeypatch.setattr(layer, "hash_columns", one_hash)
    monkeypatch.setattr(RowFormat, "find", by_hash)
    monkeypatch.setattr(files, "EAGER_ROWS", 0)
    with pytest.raises(AssertionError):
        Life(("text",), random.Random(1), memory=1).run(15)


def test_a_large_layer_is_in_a_file_and_the_file_goes_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(layer, "SPILL_BYTES", 1_000)
    before = pa.total_allocated_bytes()
    rows = pa.table({"key": [f"key-{n}" for n in range(50_000)], "__deleted": [False] * 50_000})
    resting = layer.Layer(rows, ["key"])
    del rows
    assert pa.total_allocated_bytes() - before < 100_000, "it takes memory of its own"
    assert not list(tmp_path.iterdir()), "the name is gone at once, the bytes when nobody maps them"
    asked = pa.record_batch({"key": ["key-7", "unknown"]})
    places, found = resting.find(hash_columns(asked.columns, 2), asked)
    assert places.tolist() == [0] and resting.rows.column("key")[int(found[0])].as_py() == "key-7"


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize(("used", "memory", "rests"), [(60, None, True), (80, None, False), (80, 1, True)])
def test_when_most_of_it_is_in_use_nothing_rests_any_more(
    monkeypatch: pytest.MonkeyPatch, columns: bool, used: int, memory: int | None, rests: bool
) -> None:
    rows, disk = RowFormat("counts", Keyed, Key(("number",)), Seen, 256), StateFiles(SimulatedDisk(), FOLDER)
    kind = StateKind.COLUMNS if columns else StateKind.RECORDS
    state: Any = rows.new_state()
    for number in range(101):
        state.records[number] = Seen(number)
    state.changed.update(state.records)
    chain = disk.save(rows, state, (), 0, 1, "1-a")
    state.forget(100)
    chain = disk.save(rows, state, chain, 0, 2, "1-a")
    monkeypatch.setattr(files, "EAGER_ROWS", 0)
    rows = RowFormat("counts", Keyed, Key(("number",)), Seen, 256, kind=kind)
    state = rows.new_state()
    disk.load(rows, chain, state)
    assert state.layers
    keys = list(range(used))
    if columns:
        state.place_batch(pa.record_batch({"number": keys}))
    else:
        state.warm(keys)
        state.changed.update(keys)
    disk.save(rows, state, chain, 0, 3, "1-a", memory)
    assert bool(state.layers) == rests
    assert len(state) == 100
    if not rests and columns:
        every = state.place(pa.record_batch({"number": list(range(100))}))
        assert state.in_use == 100 and state.numbers("seen", every).tolist() == list(range(100))
    elif not rests:
        assert {key: record.seen for key, record in state.records.items()} == {n: n for n in range(100)}


def test_there_are_never_many_layers_whatever_their_sizes() -> None:
    rows = RowFormat("counts", Keyed, Key(("number",)), Count, 256)
    state: Any = rows.new_state()
    rng = random.Random(1)
    for number in range(2_000):
        state.records[number] = Count(1)
    everything = rows.encode(state, 1, everything=True)
    state.rest(everything, rows.key_names, rows)
    for epoch in range(2, 150):
        keys = rng.sample(range(2_000), rng.choice((1, 3, 40, 200)))
        for key in keys:
            state.records[key].seen += 1
        state.changed.update(keys)
        state.end_checkpoint(rows.encode(state, epoch, everything=False))
        assert len(state.layers) < 20
    wanted = {key: record.seen for key, record in state.records.items()}
    state.cool(0)
    state.warm(wanted)
    assert {key: record.seen for key, record in state.records.items()} == wanted
