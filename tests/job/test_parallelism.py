"""How many instances a component has, and what a job may ask for."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from contract_jobs import Alert, Place
from sample import Doubling, Payment, Summing, payments, run_job
from streamwork import (
    EventLog,
    Instance,
    Job,
    JsonLines,
    ListSource,
    LogSource,
    Parquet,
    Source,
    SqliteSink,
    StatefulOperator,
    StatefulSource,
    WrongUse,
    all_instances,
    fields,
    shuffle,
    single,
)
from streamwork.testing import run

NONE = SqliteSink("never-opened.db", "t")


class Ten(StatefulSource[Payment, Place]):
    """As people write one first: every instance gives everything."""

    replayable = True

    def setup_instance(self, instance: int, state: Place | None) -> None:
        self.place = state or Place()

    def get_events(self, collector: Any) -> None:
        while self.place.at < 10:
            collector.emit(Payment("card", self.place.at))
            self.place.at += 1

    def get_state(self) -> Place:
        return self.place


class Shared(Ten):
    """Each instance gives its share."""

    def setup_instance(self, instance: Instance, state: Place | None) -> None:
        self.numbers = range(instance, 10, instance.count)
        self.place = state or Place()

    def get_events(self, collector: Any) -> None:
        for number in self.numbers[self.place.at :]:
            collector.emit(Payment("card", number))
            self.place.at += 1


class Fleeting(Source[Payment]):
    pass


class Remembering(StatefulOperator[Payment, Place, Payment]):
    """Tells which instance it is, and of how many."""

    def setup_instance(self, instance: Instance, state: Place | None) -> None:
        self.instance, self.place = instance, state or Place(instance)

    def apply(self, event: Payment, collector: Any) -> None:
        collector.emit(Payment(f"{self.instance} of {self.instance.count}", self.instance))

    def get_state(self) -> Place:
        return self.place


@pytest.mark.proves("a user-written source, in a job with parallelism")
def test_a_source_that_people_wrote_is_one_instance(tmp_path: Path, mode: str) -> None:
    job = Job("ten", parallelism=3, checkpoint_every=0)
    job.source(Ten(), id="ten").sink(SqliteSink(tmp_path / "out.db", "out"), id="out")
    assert run_job(job, tmp_path / "root", mode).events == 10


@pytest.mark.slow(mode="microbatch")
def test_an_instance_knows_how_many_there_are(tmp_path: Path, mode: str) -> None:
    job = Job("shared", parallelism=3, checkpoint_every=0)
    job.source(Shared(), id="ten", parallelism=3).sink(SqliteSink(tmp_path / "out.db", "out"), id="out")
    assert run_job(job, tmp_path / "root", mode).events == 10


def test_an_instance_is_a_number() -> None:
    one = Instance(1, 3)
    assert (one, one + 1, str(one), f"{one:02d}", one.count) == (1, 2, "1", "01", 3)
    for other in (pickle.loads(pickle.dumps(one)), copy.deepcopy(one), copy.copy(one)):
        assert (other, other.count, type(other)) == (1, 3, Instance)


@pytest.mark.parametrize("semantics", ["exactly-once", "at-least-once"])
def test_an_instance_may_be_emitted_and_stored(semantics: str) -> None:
    tracking = "acknowledge" if semantics == "at-least-once" else None
    job = Job("told", parallelism=2, semantics=semantics, tracking=tracking)
    source = job.source(ListSource(payments(9)), id="in")
    source.apply(Remembering(), id="r", grouping=shuffle()).sink(NONE, id="out")
    result = run(job)
    assert {row.card for row in result.outputs["out"]} == {"0 of 2", "1 of 2"}
    assert result.states["r"] == {0: Place(0), 1: Place(1)}


def counts(job: Job) -> dict[str, int]:
    return {node.id: node.parallelism for node in job.graph().nodes}


def test_defaults(tmp_path: Path) -> None:
    EventLog.create(tmp_path / "two", Payment, partitions=2).close()
    EventLog.create(tmp_path / "eight", Payment, partitions=8).close()
    (tmp_path / "folder").mkdir()
    sources: dict[str, Any] = {
        "polled": Ten(),
        "fleeting": Fleeting(),
        "list": ListSource(payments(1)),
        "lines": JsonLines(tmp_path / "not-yet.jsonl", Payment),
        "two": LogSource(tmp_path / "two", Payment),
        "eight": LogSource(tmp_path / "eight", Payment),
        "folder": Parquet(tmp_path / "folder", Payment),
        "not-yet": LogSource(tmp_path / "no-log", Payment),
    }
    wanted = {"polled": 1, "fleeting": 1, "list": 1, "lines": 1, "two": 2, "eight": 3, "folder": 3, "not-yet": 3}
    job = Job("defaults", parallelism=3, semantics="at-most-once")
    for name, source in sources.items():
        stream = job.source(source, id=name)
        stream.apply(Doubling(), id=f"{name}-step").apply(Remembering(), id=f"{name}-state").sink(
            NONE, id=f"{name}-out"
        )
        stream.apply(Summing(), key="card", id=f"{name}-keyed")
        for number, grouping in enumerate([shuffle(), fields("card"), all_instances()]):
            stream.apply(Doubling(), id=f"{name}-group-{number}", grouping=grouping)
        stream.apply(Doubling(), id=f"{name}-single", grouping=single())
    found = counts(job)
    for name, count in wanted.items():
        assert [found[name], found[f"{name}-step"], found[f"{name}-state"], found[f"{name}-out"]] == [count] * 4, name
        assert [found[f"{name}-keyed"], *(found[f"{name}-group-{i}"] for i in range(3))] == [3] * 4
        assert found[f"{name}-single"] == 1


def test_a_union_has_as_many_instances_as_its_widest_input(tmp_path: Path) -> None:
    job = Job("union", parallelism=3)
    one = job.source(ListSource(payments(5)), id="one")
    many = one.apply(Summing(), key="card", id="many").map(lambda s: Payment(s.card, 1), to=Payment, id="back")
    one.union(many).apply(Doubling(), id="both").sink(NONE, id="out")
    assert counts(job) == {"one": 1, "many": 3, "back": 3, "both": 3, "out": 3}
    assert sum(Counter(row.card for row in run(job).outputs["out"]).values()) == 9


@pytest.mark.proves("more instances of a step that is not keyed, without a grouping")
def test_more_instances_of_a_step_that_is_not_keyed_need_a_grouping() -> None:
    def job(**how: Any) -> Job:
        made = Job("more", parallelism=3)
        made.source(ListSource(payments(5)), id="in").apply(Doubling(), id="wide", parallelism=3, **how)
        return made

    with pytest.raises(WrongUse) as caught:
        job().graph()
    assert caught.value.code == "SW-JOB-ORDER"
    assert "wide" in caught.value.cause and "in has 1" in caught.value.cause
    assert "grouping=fields(...)" in caught.value.action and "shuffle()" in caught.value.action
    for grouping in (shuffle(), fields("card"), all_instances(), single()):
        assert counts(job(grouping=grouping))["wide"] == 3


def test_fewer_instances_take_whole_ones() -> None:
    job = Job("narrow")
    stream = job.source(ListSource(payments(40)), id="in").apply(
        Remembering(), id="r", grouping=shuffle(), parallelism=5
    )
    narrow = stream.apply(Remembering2(), id="narrow", parallelism=2)
    narrow.sink(NONE, id="out")
    found = {(row.sensor, row.value) for row in run(job, seed=3).outputs["out"]}
    assert found == {("0 of 5", 0), ("1 of 5", 0), ("2 of 5", 0), ("3 of 5", 1), ("4 of 5", 1)}


class Remembering2(StatefulOperator[Payment, Place, Alert]):
    def setup_instance(self, instance: Instance, state: Place | None) -> None:
        self.instance = instance

    def apply(self, event: Payment, collector: Any) -> None:
        collector.emit(Alert(event.card, self.instance))

    def get_state(self) -> Place:
        return Place()
