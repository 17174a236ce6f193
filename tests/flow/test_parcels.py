"""What instances in different processes send each other: nothing lost, doubled, mixed or out of order goes unnoticed."""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import pytest

from contract_jobs import Numbering, Reading, Silence, Splitting
from exchange_jobs import Counting, Dropping, Same, readings
from streamwork import Event, Job, JobFailed, ListSource, Operator, SqliteSink, all_instances, shuffle
from streamwork.components import Digits
from streamwork.components.columns import Columns, to_batch
from streamwork.connectors import list_source
from streamwork.engine import Assignment, Kind, Parcel, Reports, Worker
from streamwork.engine.extent import Extent
from streamwork.epoch.agreement import disagreement
from streamwork.flow import outlet
from streamwork.flow.batch import Batch
from streamwork.flow.channel import Advances, CheckpointEvent, Data, Idle, Part, Watermark
from streamwork.flow.inlet import Inlet
from streamwork.flow.outlet import Outlet
from streamwork.flow.parcel import Wire
from streamwork.job import Input, Layout
from streamwork.world import FileRef, RealDisk
from tiers import quick_every

NONE = SqliteSink("never-opened.db", "t")
UP, DOWN = (0, 0), (1, 0)


def two_chains() -> Layout:
    job = Job("two")
    stream = job.source(ListSource(readings(30)), id="in").apply(Numbered(), id="numbered")
    stream.apply(Counting(), key="sensor", id="counts", parallelism=2).sink(NONE, id="out")
    return Layout.of(job.graph(), 256)


class Numbered(Numbering):
    """The number of each event as its value: an instance that goes on from a wrong state shows it."""

    def apply(self, event: Reading, collector: Any) -> None:
        self.state.count += 1
        collector.emit(Reading(event.sensor, self.state.count, event.at))

    def types(self) -> Any:
        return (Reading, super().types()[1], Reading)


def work(layout: Layout, folder: Path, chain: int, instance: int) -> Assignment:
    extents = {"in": {"0": Extent(0, 30)}} if layout.chains[chain].is_source else {}
    return Assignment(instance, "uid", str(folder), 256, 1, 1, extents, {}, chain=chain)


def sent(worker: Worker, layout: Layout, wanted: Assignment, incoming: Iterable[Parcel] = ()) -> list[Parcel]:
    """One attempt, as a Spark task would make it."""
    attempt, found = worker.begin(layout, "token", wanted), []
    if layout.chains[wanted.chain].is_source:
        found += attempt.read()
    for parcel in incoming:
        if parcel.head.to == (wanted.chain, wanted.instance):
            found += attempt.receive(parcel)
    found += attempt.finish()
    attempt.discard()
    return found


def answer(parcels: Iterable[Parcel]) -> Reports:
    (report,) = [parcel for parcel in parcels if parcel.head.kind is Kind.REPORT]
    return Reports.from_json(bytes(report.content))


# ---- attempts -----------------------------------------------------------------------------------------------------


def test_a_task_that_is_run_again_in_the_same_process_after_its_output_was_consumed(tmp_path: Path) -> None:
    """It begins with the state of the epoch's start, and whoever has seen the other attempt says so."""
    layout, worker = two_chains(), Worker(RealDisk())
    first = sent(worker, layout, work(layout, tmp_path, 0, 0))
    early = answer(sent(worker, layout, work(layout, tmp_path, 1, 0), first))
    again = sent(worker, layout, work(layout, tmp_path, 0, 0))
    late = answer(sent(worker, layout, work(layout, tmp_path, 1, 1), again))
    for one, other in zip(first, again, strict=True):
        if one.head.kind is Kind.EVENTS:
            assert bytes(memoryview(one.content)) == bytes(memoryview(other.content)), "the numbers begin at 1 again"
    for upstream in (first, again):
        reports = [*answer(upstream).reports, *early.reports, *late.reports]
        assert "consumed attempts" in disagreement(layout, reports)
    whole = answer(sent(worker, layout, work(layout, tmp_path, 1, 0), again))
    assert disagreement(layout, [*answer(again).reports, *whole.reports, *late.reports]) == ""


def test_without_the_attempts_a_mixture_would_look_complete(tmp_path: Path) -> None:
    """The negative control: both instances have seen every parcel, and only their names differ."""
    layout, worker = two_chains(), Worker(RealDisk(), lambda: "always-the-same")
    first = sent(worker, layout, work(layout, tmp_path, 0, 0))
    early = answer(sent(worker, layout, work(layout, tmp_path, 1, 0), first))
    worker.close()
    other = Worker(RealDisk(), lambda: "always-the-same")
    again = sent(other, layout, work(layout, tmp_path / "other", 0, 0))
    late = answer(sent(other, layout, work(layout, tmp_path / "other", 1, 1), again))
    assert disagreement(layout, [*answer(again).reports, *early.reports, *late.reports]) == ""


def test_a_worker_keeps_the_state_of_every_chain_and_instance_it_has_computed(tmp_path: Path) -> None:
    """Their files are gone, and nobody misses them; another process does."""
    layout, worker = two_chains(), Worker(RealDisk())
    states: dict[tuple[int, int], Any] = {}
    told: dict[tuple[str, int], Any] = {}
    for epoch in (1, 2):
        upstream: list[Parcel] = []
        for chain, instance in [(0, 0), (1, 0), (1, 1)]:
            wanted = work(layout, tmp_path, chain, instance)
            wanted = msgspec.structs.replace(wanted, epoch=epoch, states=states.get((chain, instance), {}))
            parcels = sent(worker, layout, wanted, upstream)
            upstream = upstream or parcels
            reports = answer(parcels).reports
            states[chain, instance] = {report.component: report.state for report in reports if report.state}
            told.update({(report.component, report.instance): report.counters for report in reports})
        for file in tmp_path.glob("state/**/*.parquet"):
            file.unlink()
    assert told["numbered", 0]["processed"] == 30
    assert told["counts", 0]["keys"] + told["counts", 1]["keys"] == 5
    lost = msgspec.structs.replace(work(layout, tmp_path, 1, 0), epoch=3, states=states[1, 0])
    failure = answer(sent(Worker(RealDisk()), layout, lost, [p for p in upstream if p.head.to == DOWN])).failure
    assert failure is not None and failure.code == "SW-STATE-DAMAGED"


def test_whoever_is_behind_a_failure_stays_silent(tmp_path: Path) -> None:
    layout, worker = two_chains(), Worker(RealDisk())
    lost = FileRef("state/numbered/0/000000000001-1-x.delta.parquet", "0" * 64, 1, 1)
    broken = Assignment(0, "uid", str(tmp_path), 256, 1, 1, {"in": {"0": (0, 30)}}, {"numbered": (lost,)}, chain=0)
    first = sent(worker, layout, broken)
    failure = answer(first).failure
    assert failure is not None and "SW-STATE-DAMAGED" in failure.code
    assert [parcel.head.kind for parcel in first] == [Kind.FAILED, Kind.FAILED, Kind.REPORT]
    assert sent(worker, layout, work(layout, tmp_path, 1, 1), first) == []


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda parcels: parcels[:-1], "no checkpoint event came from chain 1, instance 0"),
        (lambda parcels: parcels[1:], "parcel 1 of chain 1, instance 0 came where 0 was due"),
        (lambda parcels: [parcels[0], *parcels], "parcel 0 of chain 1, instance 0 came where 1 was due"),
        (lambda parcels: [parcels[1], parcels[0], *parcels[2:]], "parcel 1 .* came where 0 was due"),
        (lambda parcels: [], "no checkpoint event"),
    ],
    ids=["no end", "lost", "doubled", "swapped", "nothing"],
)
def test_what_is_not_complete_fails_the_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Any, told: str
) -> None:
    monkeypatch.setattr(list_source, "PIECE", 3)
    monkeypatch.setattr(outlet, "PIECE", 1)
    layout, worker = two_chains(), Worker(RealDisk())
    first = sent(worker, layout, work(layout, tmp_path, 0, 0))
    mine = [parcel for parcel in first if parcel.head.to == DOWN]
    assert len(mine) > 3
    failure = answer(sent(worker, layout, work(layout, tmp_path, 1, 0), spoil(mine))).failure
    assert failure is not None and failure.code == "SW-EXCHANGE-INCOMPLETE"
    with pytest.raises(JobFailed, match=told):
        raise failure.to_error()


def test_parcels_of_two_attempts_are_not_mixed(tmp_path: Path) -> None:
    layout, worker = two_chains(), Worker(RealDisk())
    tries = [sent(worker, layout, work(layout, tmp_path, 0, 0)) for _ in range(2)]
    first, again = ([parcel for parcel in one if parcel.head.to == DOWN] for one in tries)
    failure = answer(sent(worker, layout, work(layout, tmp_path, 1, 0), [first[0], *again[1:]])).failure
    assert failure is not None and "sent parcels of two attempts" in failure.cause


# ---- what is in them ----------------------------------------------------------------------------------------------


class Inner(Event):
    name: str
    scores: list[float]


class Everything(Event):
    text: str
    number: int
    maybe: int | None
    price: Annotated[Decimal, Digits(12, 2)]
    at: datetime
    raw: bytes
    tags: dict[str, int]
    inner: Inner | None


class Keeping(Operator[Everything, Everything]):
    def apply(self, event: Everything, collector: Any) -> None:
        collector.emit(event)


def everything(number: int) -> Everything:
    inner = Inner("ü", [0.5] * (number % 3)) if number % 2 else None
    at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=number)
    return Everything(
        f"t{number}", number, number or None, Decimal(number).scaleb(-2), at, bytes([number]), {"a": 1}, inner
    )


def connected(kind: type[Event], operator: Any) -> tuple[Wire, Layout]:
    job = Job("connected")
    stream = job.source(ListSource([], kind), id="in")
    stream.apply(operator, id="one", parallelism=2, grouping=shuffle()).sink(NONE, id="out")
    stream.apply(operator, id="all", parallelism=2, grouping=shuffle())
    layout = Layout.of(job.graph(), 256)
    return Wire(layout), layout


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("seed", quick_every(3, range(20)))
def test_items_come_out_as_they_went_in(monkeypatch: pytest.MonkeyPatch, seed: int, ordered: bool) -> None:
    """Where events carry moments, the order of all events and advances is kept; else that of each way."""
    rng = random.Random(seed)
    monkeypatch.setattr(outlet, "PIECE", rng.choice([1, 7, 1000]))
    monkeypatch.setattr(outlet, "MOST_BYTES", rng.choice([100, 2_000, 10**6]))
    wire, layout = connected(Everything, Keeping())
    to = (layout.chain_of("one"), 0)
    out, inlet = Outlet(wire, UP, to, "x"), Inlet(wire, [UP], to)
    items: list[Any] = [Watermark(3, everything(7).at, True)] if rng.random() < 0.5 else []
    for _ in range(rng.randrange(30)):
        items.append(some_data(rng, ordered))
        if not ordered and rng.random() < 0.3:
            items.append(Watermark(3, everything(rng.randrange(200)).at))
    for item in (*items, CheckpointEvent(3, "x")):
        out.send(item)
    found = [item for parcel in out.ready() for _, item in inlet.unpack(parcel)]
    inlet.finish()
    if ordered:
        assert list(flat(found)) == [*flat(items), CheckpointEvent(3, "x")]
    else:
        for way in ("one", "all"):
            assert events_of(found, way) == events_of(items, way)
        assert [i for i in found if not isinstance(i, Data)][-2:] == [
            *[i for i in items if isinstance(i, Watermark)][-1:],
            CheckpointEvent(3, "x"),
        ][-2:]


def events_of(items: Iterable[Any], way: str) -> list[Any]:
    return [one[1] for one in flat(items) if isinstance(one, tuple) and one[0] == way]


def some_data(rng: random.Random, ordered: bool) -> Data:
    """A part for each of some ways, with rows that interleave, and advances between them."""
    parts, ways = [], rng.choice([["one"], ["all"], ["one", "all"], ["all", "one"]])
    for way in ways:
        events = [everything(rng.randrange(200)) for _ in range(rng.randrange(1, 20))]
        batch = Batch(rng.choice([events, Columns(Everything, to_batch(Everything, events, "in"))]))
        if ordered:
            batch = batch.at(np.sort(np.array([rng.randrange(30) * 4 + ways.index(way) for _ in events])))
        parts.append(Part(Input("in"), way, batch))
    if not ordered:
        return Data(3, tuple(parts))
    rows = sorted(rng.sample(range(31), rng.randrange(5)))
    return Data(3, tuple(parts), Advances(np.array(rows, np.int64) * 4 + 3, np.array(sorted(rows), np.int64)))


def flat(items: Iterable[Any]) -> Iterable[Any]:
    """Events with their way, and advances, in the order of their moments."""
    for item in items:
        if not isinstance(item, Data):
            yield item
            continue
        found: list[Any] = []
        for number, part in enumerate(item.parts):
            moments = part.batch.moments if part.batch.moments is not None else [0] * len(part.batch)
            found += [
                ((moment, 0, number, place), (part.to, event))
                for place, (moment, event) in enumerate(zip(moments, part.batch.events, strict=True))
            ]
        found += [
            ((moment, 1, place), ("advance", time))
            for place, (moment, time) in enumerate(zip(*item.advances, strict=True))
        ]
        yield from (one for _, one in sorted(found, key=lambda pair: pair[0]))


def test_idleness_keeps_its_place_between_events() -> None:
    wire, layout = connected(Inner, Large())
    to = (layout.chain_of("one"), 0)
    out = Outlet(wire, UP, to, "x")
    some = Data(1, (Part(Input("in"), "one", Batch([Inner("x", [])])),))
    sent = [Idle(1, True, resumed=True), Idle(1, False), some, Idle(1, True), some]
    for item in [*sent, CheckpointEvent(1, "x")]:
        out.send(item)
    inlet = Inlet(wire, [UP], to)
    found = [item for parcel in out.ready() for _, item in inlet.unpack(parcel)]
    assert [one for one in found if isinstance(one, Idle)] == [one for one in sent if isinstance(one, Idle)]
    assert [type(one) for one in found] == [*map(type, sent), CheckpointEvent]


def test_large_events_are_sent_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    wire, layout = connected(Inner, Large())
    out = Outlet(wire, UP, (layout.chain_of("one"), 0), "x")
    large = Batch([Inner("x" * 3_000_000, []) for _ in range(5)])
    out.send(Data(1, (Part(Input("in"), "one", large),)))
    out.send(CheckpointEvent(1, "x"))
    sizes = [len(parcel.content) for parcel in out.ready()]
    assert len(sizes) == 6 and max(sizes) < outlet.MOST_BYTES


class Large(Operator[Inner, Inner]):
    def apply(self, event: Inner, collector: Any) -> None:
        collector.emit(event)


# ---- stages -------------------------------------------------------------------------------------------------------


def test_chains_stand_in_a_line_of_stages() -> None:
    job = Job("stages")
    first = job.source(ListSource([], Reading), id="first")
    second = job.source(ListSource([], Reading), id="second")
    hot = first.apply(Splitting(), id="split", grouping=shuffle(), parallelism=3)
    hot.channel("hot").sink(NONE, id="hot")
    both = hot.apply(Same(), id="same", parallelism=2).union(first).union(second)
    both.apply(Counting(), key="sensor", id="counts", parallelism=2).sink(NONE, id="out")
    layout = Layout.of(job.graph(), 256)
    named = [[layout.chains[chain].nodes[0] for chain in stage] for stage in layout.stages]
    assert named == [["first"], ["split"], ["second", "same"], ["counts"]], "second is read when it is needed"
    explained = layout.explain()
    assert (
        "runs as 3 tasks in stage 2 of 4 of each checkpoint's Spark job, behind the exchange from chain 1" in explained
    )
    assert "runs as 1 task in stage 3 of 4 of each checkpoint's Spark job\n" in explained


def test_events_leave_one_by_one_only_where_it_matters() -> None:
    def interleaves(operator: Any, time: str | None = None, **how: Any) -> bool:
        job = Job("pace")
        stream = job.source(ListSource([], Reading), id="in", time=time)
        stream.apply(operator, id="next", parallelism=2, **how).sink(NONE, id="out")
        return Layout.of(job.graph(), 256).interleaves(0)

    assert not interleaves(Counting(), "at", key="sensor")
    assert not interleaves(Silence(), key="sensor"), "no event time, so no timer of event time"
    assert interleaves(Silence(), "at", key="sensor")
    assert not interleaves(Dropping(), grouping=all_instances())
