"""Renamed components, sources and sinks: state, positions, watermarks and ledger rows follow them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sample import Payment, Summing, expected_journal, payments, run_job
from savepoint_world import JOB, World
from streamwork import Job, ListSource, ParquetSink, Refused, SqliteSink, WrongUse
from streamwork.epoch import Driver, Manifest, Phase
from streamwork.epoch.names import Names
from streamwork.job import Graph
from streamwork.testing.disk import DiskCrashed, Survival
from streamwork.testing.memory import MemorySink
from streamwork.testing.script import Script

IDS = ("in", "sums", "out")


class Renaming(World):
    """A world whose components have other ids in each life."""

    ids = IDS
    former: tuple[Any, Any, Any] = ((), (), ())

    def graph(self, parallelism: int = 2) -> Graph:
        source, step, sink = self.ids
        job = Job(JOB, checkpoint_every=0, parallelism=parallelism)
        given = job.source(ListSource([], Payment), id=source, renamed_from=self.former[0])
        seen = given.apply(Summing(), key="card", id=step, renamed_from=self.former[1])
        seen.sink(SqliteSink("/nowhere/out.db", "out"), id=sink, renamed_from=self.former[2])
        parts: dict[str, Any] = {
            source: Script(Payment, self.events, 1, self._slices, lambda: False, self.clock.sleep, self.clock.sleep),
            sink: MemorySink(self.table),
        }
        graph = job.graph()
        return replace(graph, nodes=tuple(replace(n, component=parts.get(n.id, n.component)) for n in graph.nodes))

    def life(self, epochs: int | None = None, *ids: str, forgets: bool = False, **options: Any) -> Driver:
        """A new process, with these ids from now on. With `forgets`, the code no longer says what they were."""
        self.processes.restart()
        if ids:
            self.former = tuple(() if one in ids else one for one in self.ids)  # type: ignore[assignment]
            self.ids = ids  # type: ignore[assignment]
        if forgets:
            self.former = ((), (), ())
        driver = self.run(0, **options)
        while (epochs is None or epochs > 0) and driver.run_epoch() is not None:
            epochs = None if epochs is None else epochs - 1
        return driver

    def check(self) -> None:
        journal = expected_journal(self.events)
        assert sorted((row.card, row.number, row.total) for row in self.table.rows) == sorted(journal)


def test_everything_is_renamed_and_goes_on() -> None:
    world = Renaming()
    base = world.life(2).at
    driver = world.life(0, "uses", "per-card", "rows")
    at = driver.at
    assert dict(at.positions) == {"uses/0": base.positions["in/0"]}
    assert set(at.components) == {"per-card"}
    assert set(at.sinks) == {"rows"}
    assert at.ledgers == {"rows": "out"}, "the target still knows it by its first id"
    assert at.reached_by == 2
    assert world.life(0).at.epoch == at.epoch, "one checkpoint is enough"
    world.life(1, forgets=True)
    world.life(1, "a", "b", "c")
    assert world.life().at.ledgers == {"c": "out"}
    world.check()


def test_the_start_says_so() -> None:
    world = Renaming()
    world.life(1)
    world.former, world.ids = world.ids, ("uses", "sums2", "rows")
    assert "in, out, sums is renamed to rows, sums2, uses" in world.driver().start().story


@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_of_them(place: int) -> None:
    world = Renaming()
    world.life(2)
    ids = [*IDS]
    ids[place] = "other"
    world.life(None, *ids)
    world.check()


@pytest.mark.parametrize(("place", "code"), [(0, "SW-SOURCE-ORPHAN"), (1, "SW-STATE-ORPHAN")])
def test_what_is_not_said_is_refused(place: int, code: str) -> None:
    world = Renaming()
    world.life(2)
    ids = [*IDS]
    ids[place] = "other"
    with pytest.raises(Refused, match=code) as refused:
        world.life(0, *ids, forgets=True)
    assert "renamed_from" in refused.value.action


def test_a_new_sink_may_have_the_id_that_another_one_had(tmp_path: Path) -> None:
    """The ledger row of the renamed sink has that id: the new one gets a row of its own, in the same database."""

    def job(events: int, *sinks: tuple[str, str, str]) -> Job:
        made = Job("two", checkpoint_every=0)
        seen = made.source(ListSource(payments(events), Payment, max_events=5), id="in").apply(
            Summing(), key="card", id="sums"
        )
        for id, table, was in sinks:
            seen.sink(SqliteSink(tmp_path / "out.db", table), id=id, renamed_from=was or ())
        return made

    run_job(job(20, ("out", "first", "")), tmp_path / "root")
    run_job(job(30, ("renamed", "first", "out")), tmp_path / "root")
    run_job(job(40, ("renamed", "first", ""), ("out", "second", "")), tmp_path / "root")
    run_job(job(50, ("renamed", "first", ""), ("out", "second", "")), tmp_path / "root")
    with closing(sqlite3.connect(tmp_path / "out.db")) as db:
        assert db.execute("SELECT count(*) FROM first").fetchone() == (50,)
        assert db.execute("SELECT count(*) FROM second").fetchone() == (20,)


def test_a_target_with_one_owner_knows_the_renamed_sink(tmp_path: Path) -> None:
    def job(events: int, id: str, was: str = "") -> Job:
        made = Job("folder", checkpoint_every=0)
        given = made.source(ListSource(payments(events), Payment, max_events=5), id="in")
        given.sink(ParquetSink(tmp_path / "out"), id=id, renamed_from=was or ())
        return made

    run_job(job(20, "out"), tmp_path / "root")
    run_job(job(30, "rows", "out"), tmp_path / "root")
    run_job(job(40, "rows"), tmp_path / "root")
    import pyarrow.dataset as ds

    files = [path for path in (tmp_path / "out").rglob("*.parquet") if not path.name.startswith(("_", "."))]
    assert ds.dataset(files).count_rows() == 40


@pytest.mark.parametrize(
    "build",
    [
        lambda given: given.sink(SqliteSink("x.db", "t"), id="out", renamed_from="in"),
        lambda given: [given.sink(SqliteSink("x.db", t), id=t, renamed_from="was") for t in "ab"],
        lambda given: given.sink(SqliteSink("x.db", "t"), id="out", renamed_from="was", isolation="read-uncommitted"),
    ],
)
def test_a_name_that_makes_no_sense_is_refused(build: Callable[[Any], Any]) -> None:
    job = Job("names")
    with pytest.raises(WrongUse, match="SW-JOB-RENAMED"):
        build(job.source(ListSource([], Payment), id="in"))
        job.graph()


@pytest.mark.parametrize("epochs", [0, 1])
def test_a_fall_back_behind_the_rename(epochs: int) -> None:
    """The manifests with the new names are damaged; the sink is at them, and knows the new names."""
    world = Renaming()
    world.life(2)
    newest = world.life(epochs, "uses", "per-card", "rows").at.epoch
    for epoch in range(3, newest + 1):
        for suffix in (".json", ".prepared.json"):
            world.disk.replace(world.store.folder / "checkpoints" / f"{epoch:012d}{suffix}", b"damaged")
    assert world.life(0).at.epoch != newest
    world.life()
    world.check()


# ---- crashes ------------------------------------------------------------------------------------------------------


class BreakAt:
    def __init__(self, left: int) -> None:
        self.left = left

    def on_phase(self, phase: Phase, epoch: int, manifest: Manifest | None) -> None:
        self.left -= 1
        if self.left < 0:
            raise DiskCrashed


def break_everywhere(last: int = 1) -> None:
    """Break off after each phase of the last epoch before the start that renames, and of that start."""
    for breaks_before in range(last + 1):
        phase, more = 0, True
        while more:
            world = Renaming(events=payments(18, cards=5), slices=6)
            world.life(1)
            if breaks_before:  # an epoch is prepared, and not committed
                with pytest.raises(DiskCrashed):
                    world.life(1, listener=BreakAt(6))
            try:
                world.life(0, "uses", "per-card", "rows", listener=BreakAt(phase))
                more = False
            except DiskCrashed:
                phase += 1
            world.life()
            world.check()
        assert phase >= 6, "register, read, prepare, commit, complete, ready"


@pytest.mark.parametrize("deterministic", [True, False])
def test_a_driver_that_dies_after_any_phase(deterministic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Summing, "deterministic", deterministic)
    break_everywhere()


def test_a_power_cut_at_some_steps() -> None:
    step = 1
    while True:
        world = Renaming(step, payments(18, cards=5), slices=6)
        world.life(2)
        world.disk.crash_at(world.disk.steps + step)
        try:
            world.life(0, "uses", "per-card", "rows")
        except DiskCrashed:
            world.disk.crash(Survival.SEEDED)
        else:
            break
        world.life()
        world.check()
        step += 4
    assert step > 10


def test_control_without_the_ids_of_ledgers_a_sink_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Names, "ledgers", lambda self, manifest, graph: {})
    with pytest.raises(Refused, match="SW-SINK-OWNED"):
        test_a_new_sink_may_have_the_id_that_another_one_had(tmp_path)


def test_control_with_ledgers_in_names_of_today_the_job_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    def written_as(self: Manifest, written: Manifest) -> Manifest:
        self.__dict__.update(_bytes=written.to_bytes(), sha256=written.sha256)
        return self

    monkeypatch.setattr(Manifest, "written_as", written_as)
    with pytest.raises(Refused, match="SW-SINK-LEDGER"):
        test_one_of_them(0)
