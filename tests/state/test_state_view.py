"""`StateView` is the fold of the input: over random jobs, seeds, crashes, deletes and compactions, also at older checkpoints."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from streamwork import Event, Job, KeyedOperator, ListSource, Record, Refused, SqliteSink, StatefulOperator, fields
from streamwork.components import Key
from streamwork.state import FileChain, KeyedState, StateFiles, StateView, compaction, view
from streamwork.state.rows import RowFormat
from streamwork.testing import SimulatedDisk, run

SEEDS = range(40)


class Use(Event):
    shop: str
    number: int
    forget: bool = False


class Seen(Record):
    seen: int = 0
    last: int | None = None
    numbers: list[int] = []


class Out(Event):
    shop: str


class PerShop(KeyedOperator[Use, Seen, Out]):
    def apply(self, event: Use, state: Seen, collector: Any) -> None:
        if event.forget:
            collector.clear_state()
            return
        state.seen += 1
        state.last = event.number
        state.numbers.append(event.number)


class PerInstance(StatefulOperator[Use, Seen, Use]):
    def setup_instance(self, instance: Any, state: Seen | None) -> None:
        self._state = state or Seen()

    def apply(self, event: Use, collector: Any) -> None:
        self._state.seen += 1
        collector.emit(event)

    def get_state(self) -> Seen:
        return self._state


def fold(events: list[Use]) -> dict[str, Seen]:
    found: dict[str, Seen] = {}
    for event in events:
        if event.forget:
            found.pop(event.shop, None)
        else:
            state = found.setdefault(event.shop, Seen())
            state.seen, state.last = state.seen + 1, event.number
            state.numbers = [*state.numbers, event.number]
    return found


def events_of(rng: random.Random, count: int) -> list[Use]:
    return [Use(f"s{rng.randrange(9)}", n, rng.random() < 0.2) for n in range(count)]


@pytest.mark.slow(seed=list(SEEDS)[4:])
@pytest.mark.parametrize("seed", SEEDS)
def test_of_a_job(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keyed and instance state, by the simulator, which reads its results through a view."""
    monkeypatch.setattr(compaction, "LONGEST_CHAIN", 3)
    rng = random.Random(seed)
    events, parallelism = events_of(rng, rng.randrange(1, 60)), rng.randrange(1, 4)
    job = Job("shops", parallelism=parallelism)
    source = job.source(ListSource([], Use), id="uses")
    counted = source.apply(PerInstance(), id="counted", grouping=fields("shop"))
    counted.apply(PerShop(), key="shop", id="shops").sink(SqliteSink("o.db", "t"), id="out")
    crash = [rng.randrange(1, 200) for _ in range(rng.randrange(3))]
    result = run(job, {"uses": events}, seed=seed, crash_at=crash, epoch_events=rng.randrange(1, 9))
    assert result.states["shops"] == fold(events)
    seen: list[Any] = list(result.states["counted"].values())
    assert sum(record.seen for record in seen) == len(events)
    assert set(result.states["counted"]) <= set(range(parallelism))


class Life:
    """The state of several instances through many epochs, with snapshots, beside plain dicts that do the same."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk = SimulatedDisk()
        self.files = StateFiles(self.disk, Path("/job"))
        self.rows = RowFormat("shops", Use, Key(("shop",)), Seen, 256)
        instances = range(self.rng.randrange(1, 4))
        self.states = {number: KeyedState() for number in instances}
        self.chains: dict[str, FileChain] = {str(number): () for number in instances}
        self.past: list[tuple[dict[str, FileChain], dict[str, Seen]]] = [(dict(self.chains), {})]
        self.events: list[Use] = []

    def epoch(self, number: int) -> None:
        for event in events_of(self.rng, self.rng.randrange(12)):
            state = self.states[int(event.shop[1:]) % len(self.states)]
            state.warm([event.shop])
            if event.forget:
                state.forget(event.shop)
            else:
                record: Any = state.records.get(event.shop, Seen())
                numbers = [*record.numbers, event.number]
                state.records[event.shop] = Seen(record.seen + 1, event.number, numbers)
                state.changed.add(event.shop)
            self.events.append(event)
        for instance, state in self.states.items():
            memory = self.rng.choice([None, 300])
            chain: FileChain = self.files.save(
                self.rows, state, self.chains[str(instance)], instance, number, "1-a", memory
            )
            if chain and self.rng.random() < 0.3 and compaction.deltas_since(chain):
                snapshot = compaction.compact(self.files, chain, self.rows, f"1-c{number}")
                chain = compaction.with_snapshot(chain, snapshot)
            self.chains[str(instance)] = chain
        self.past.append((dict(self.chains), fold(self.events)))

    def view(self, chains: dict[str, FileChain]) -> StateView:
        return StateView(self.files, self.rows, chains)


def check(life: Life) -> None:
    for chains, wanted in life.past:
        view = life.view(chains)
        assert view.records() == wanted, "RECORDS"
        assert len(view) == len(wanted) == view.to_arrow().num_rows
        assert Counter(view.keys()) == Counter(list(wanted))
        assert {shop: view.get(shop) for shop in [*wanted, "s99"]} == {**wanted, "s99": None}
        rows = {row.pop("shop"): Seen(**row) for row in view.rows()}
        assert rows == wanted


def lived(seed: int) -> Life:
    life = Life(seed)
    for number in range(1, 13):
        life.epoch(number)
    return life


@pytest.mark.slow(seed=list(SEEDS)[4:])
@pytest.mark.parametrize("seed", SEEDS)
def test_at_every_checkpoint(seed: int) -> None:
    check(lived(seed))


def test_a_view_that_shows_deleted_keys_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control."""
    whole = view.merge
    monkeypatch.setattr(view, "merge", lambda tables, key: whole(tables, key, keep_deleted=True))
    with pytest.raises(AssertionError, match="RECORDS"):
        for seed in SEEDS:
            check(lived(seed))


def test_a_damaged_file_is_done_without_or_refused() -> None:
    """Every file of every chain, one at a time: the view is right, or it refuses."""
    served = refused = 0
    for seed in range(10):
        life = lived(seed)
        chains, wanted = life.past[-1]
        for ref in [ref for chain in chains.values() for ref in chain]:
            path = Path("/job") / ref.path
            whole = life.disk.read(path)
            life.disk.replace(path, whole[:-1] + bytes([whole[-1] ^ 1]))
            try:
                assert life.view(chains).records() == wanted
                served += 1
            except Refused as error:
                assert error.code == "SW-STATE-DAMAGED"
                refused += 1
            life.disk.replace(path, whole)
    assert served and refused


def test_no_state_yet() -> None:
    keyed = StateView(StateFiles(SimulatedDisk(), Path("/job")), RowFormat("c", Use, Key(("shop",)), Seen, 256), {})
    whole = StateView(StateFiles(SimulatedDisk(), Path("/job")), RowFormat("c", Use, None, Seen, 256), {"0": ()})
    for none in (keyed, whole):
        assert (len(none), none.records(), list(none.rows()), none.keys()) == (0, {}, [], [])
    assert keyed.get("s1") is None and whole.get(0) is None
    assert whole.to_arrow().column_names[0] == "__instance"
