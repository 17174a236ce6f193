"""The contract of `epoch.host.Host`, on every host: local, local as the simulator makes it, and Spark."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from gangs import gang_host
from sample import Payment, Seen, Summing, expected_journal, payments
from streamwork import Job, ListSource, SqliteSink
from streamwork.components.columns import to_structs
from streamwork.engine import Abandoned, Assignment, Report
from streamwork.engine.extent import Extent
from streamwork.engine.steps.staging import read_staged
from streamwork.epoch import Host
from streamwork.epoch.agreement import disagreement, missing
from streamwork.errors import StreamworkError
from streamwork.hosts.local import LocalHost
from streamwork.job import Layout
from streamwork.testing.clock import VirtualClock
from streamwork.world import RealDisk

EVENTS = payments(30)
BAD = Payment("card-0", -1)  # `Summing` raises


class AnyOrder:
    """A seeded schedule, as the simulator has one."""

    def __init__(self) -> None:
        self._random = random.Random(1)

    def choose(self, choices: Sequence[Any]) -> Any:
        return self._random.choice(choices)


def local(request: pytest.FixtureRequest) -> Host:
    return LocalHost(RealDisk())


def simulated(request: pytest.FixtureRequest) -> Host:
    return LocalHost(RealDisk(), AnyOrder(), clock=VirtualClock())


def microbatch(request: pytest.FixtureRequest) -> Host:
    from streamwork.hosts.spark_epochs import SparkEpochs

    return SparkEpochs(request.getfixturevalue("spark"))


def live(request: pytest.FixtureRequest) -> Host:
    return gang_host()


@pytest.fixture(params=[local, simulated, live, pytest.param(microbatch, marks=pytest.mark.spark)])
def host(request: pytest.FixtureRequest) -> Iterator[Host]:
    made = request.param(request)
    yield made
    made.close()


class Work:
    """A job and its assignments: two instances of a keyed operator behind an exchange."""

    def __init__(self, folder: Path, events: Sequence[Payment]) -> None:
        job = Job("contract")
        source = job.source(ListSource(events, Payment), id="payments")
        source.apply(Summing(), key="card", id="sums", parallelism=2).sink(SqliteSink(folder / "x.db", "t"), id="out")
        self.layout = Layout.of(job.graph(), 256)
        self.folder = folder

    def assigned(self, epoch: int, start: int, end: int, before: Sequence[Report] = ()) -> list[Assignment]:
        states = {(report.component, report.instance): report.state for report in before}
        return [
            Assignment(
                instance=instance,
                uid="u",
                folder=str(self.folder),
                groups=256,
                epoch=epoch,
                fence=1,
                extents={"payments": {"0": Extent(start, end)}} if chain.is_source and end > start else {},
                states={name: states[name, instance] for name in chain.nodes if (name, instance) in states},
                chain=number,
            )
            for number, chain in enumerate(self.layout.chains)
            for instance in range(chain.parallelism)
        ]

    def rows(self, reports: Sequence[Report]) -> list[tuple[str, int, int]]:
        assert missing(self.layout.graph, reports) == "" and disagreement(self.layout, reports) == ""
        refs = [report.staged for report in reports if report.staged is not None]
        batches = [batch for ref in refs for batch in read_staged(RealDisk(), self.folder, ref)]
        seen = [one for batch in batches for one in to_structs(Seen, batch)]
        return sorted((one.card, one.number, one.total) for one in seen)


def never() -> bool:
    return False


def expected(start: int, end: int) -> list[tuple[str, int, int]]:
    return sorted(expected_journal(EVENTS[:end])[start:])


def test_every_host_has_every_name_of_the_protocol(host: Host) -> None:
    names = [name for name in (*vars(Host), *Host.__annotations__) if not name.startswith("_")]
    assert {"name", "overlaps", "open", "submit", "collect", "wasted", "abandon", "keep_warm", "close"} <= set(names)
    for name in names:
        assert name in Host.__annotations__ or name in vars(type(host)), (
            f"{name} is inherited from the protocol, and does nothing"
        )
    for name in vars(Host):
        if inspect.isfunction(vars(Host)[name]) and not name.startswith("_"):
            theirs = inspect.signature(getattr(type(host), name)).parameters
            assert list(theirs) == list(inspect.signature(getattr(Host, name)).parameters), name
    assert isinstance(host.name, str) and isinstance(host.overlaps, bool)


def test_reading_ahead_changes_no_result_and_writes_nothing(host: Host, tmp_path: Path) -> None:
    work = Work(tmp_path, EVENTS)
    host.open(work.layout.graph)
    host.submit(work.layout, work.assigned(1, 0, 12))
    first = host.collect(1, never)
    host.abandon()  # the local host forgets what it has computed, as a new process would not know it
    before = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    host.read_ahead(work.layout, work.assigned(1, 0, 0, first))
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == before
    host.submit(work.layout, work.assigned(2, 12, 30, first))
    assert work.rows(host.collect(2, never)) == expected(12, 30)


def test_reading_ahead_is_a_hint_files_may_be_gone(host: Host, tmp_path: Path) -> None:
    work = Work(tmp_path, EVENTS)
    host.open(work.layout.graph)
    host.submit(work.layout, work.assigned(1, 0, 12))
    gone = work.assigned(1, 0, 0, host.collect(1, never))
    for path in (tmp_path / "state").rglob("*.parquet"):
        path.unlink()
    other = [structs.replace(one, uid="other") for one in gone]  # so that no cache has it
    host.read_ahead(work.layout, other)


def test_epochs_build_on_each_other(host: Host, tmp_path: Path) -> None:
    work = Work(tmp_path, EVENTS)
    host.open(work.layout.graph)
    reports: Sequence[Report] = ()
    for epoch, (start, end) in enumerate(((0, 12), (12, 12), (12, 30)), start=1):
        host.submit(work.layout, work.assigned(epoch, start, end, reports))
        reports = host.collect(epoch, never)
        assert work.rows(reports) == expected(start, end)
        host.keep_warm()
    assert host.wasted() == []


def test_an_abandoned_epoch_counts_for_nothing_and_its_slice_can_be_computed_again(host: Host, tmp_path: Path) -> None:
    work = Work(tmp_path, EVENTS)
    host.open(work.layout.graph)
    host.submit(work.layout, work.assigned(1, 0, 10))
    first = host.collect(1, never)
    host.submit(work.layout, work.assigned(2, 10, 20, first))
    host.abandon()
    host.abandon()
    host.submit(work.layout, work.assigned(3, 10, 30, first))
    assert work.rows(host.collect(3, never)) == expected(10, 30)


def test_an_epoch_whose_time_has_expired_is_abandoned(host: Host, tmp_path: Path) -> None:
    work = Work(tmp_path, EVENTS)
    host.open(work.layout.graph)
    host.submit(work.layout, work.assigned(1, 0, 10))
    first = host.collect(1, never)
    host.submit(work.layout, work.assigned(2, 10, 20, first))
    try:
        host.collect(2, lambda: True)
    except Abandoned:
        pass
    else:
        assert host.overlaps, "only a host that computes meanwhile may be done before it is asked"
        host.abandon()
    host.submit(work.layout, work.assigned(3, 10, 20, first))
    assert work.rows(host.collect(3, never)) == expected(10, 20)


def test_a_failure_says_what_failed_and_what_was_counted(host: Host, tmp_path: Path) -> None:
    work = Work(tmp_path, [*EVENTS[:10], BAD, *EVENTS[10:]])
    host.open(work.layout.graph)
    host.submit(work.layout, work.assigned(1, 0, 10))
    first = host.collect(1, never)
    host.submit(work.layout, work.assigned(2, 10, 20, first))
    with pytest.raises(StreamworkError) as caught:
        host.collect(2, never)
    assert (caught.value.code, caught.value.component) == ("SW-OPERATOR-FAILED", "sums")
    counted = {(one.component, one.instance) for one in host.wasted()}
    assert counted <= {("payments", 0), ("sums", 0), ("sums", 1), ("out", 0), ("out", 1)} and counted
    assert host.wasted() == [], "it is told once"
    host.submit(work.layout, work.assigned(3, 11, 31, first))
    assert work.rows(host.collect(3, never)) == expected(10, 30)


@pytest.mark.parametrize("in_flight", [False, True])
def test_a_host_can_be_closed_at_any_time(host: Host, in_flight: bool, tmp_path: Path) -> None:
    work = Work(tmp_path, EVENTS)
    host.open(work.layout.graph)
    if in_flight:
        host.submit(work.layout, work.assigned(1, 0, 10))
    host.close()


def test_the_suite_notices_a_host_that_forgets_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: an abandoned slice that stays in the states is seen in the rows."""
    check: Callable[..., None] = test_an_abandoned_epoch_counts_for_nothing_and_its_slice_can_be_computed_again
    check(LocalHost(RealDisk()), tmp_path / "sound")

    def forgetless(self: LocalHost) -> None:
        if self._engine is not None and (epoch := max(self._engine._manager._reports, default=0)):
            self._engine.collect(epoch)

    monkeypatch.setattr(LocalHost, "abandon", forgetless)
    with pytest.raises(AssertionError):
        check(LocalHost(RealDisk()), tmp_path / "unsound")
