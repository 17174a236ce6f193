"""Slices whose ends are known by report: a source with offsets is read as a source without them is, with the same results."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sample import Payment, Seen, Summing, expected_journal, payments
from streamwork import Job, KeyedOperator, ListSource, Record, SqliteSink
from streamwork.components import Position
from streamwork.delivery import DeadLetters, Inbox, Letter
from streamwork.engine import EndKnown, Extent, Report
from streamwork.epoch import Driver, Plan, Store, reported
from streamwork.epoch.effects import Effects
from streamwork.epoch.slices import Partitions, extents, fixed
from streamwork.hosts.local import LocalHost
from streamwork.testing import Crash, Lose, Result, run
from streamwork.testing.clock import VirtualClock
from streamwork.testing.memory import MemorySink, Table
from streamwork.testing.script import Script
from streamwork.world import RealDisk

EVENTS = payments(60)


def job(**options: Any) -> Job:
    made = Job("reported", **options)
    seen = made.source(ListSource(EVENTS, Payment), id="in", parallelism=2).apply(
        Summing(), key="card", id="sums", parallelism=2
    )
    seen.sink(SqliteSink("/nowhere/out.db", "out"), id="out")
    return made


def simulated(ends_known: EndKnown, made: Job | None = None, **options: Any) -> Result:
    inputs = {"in": options.pop("items", EVENTS)}
    return run(made or job(), inputs, partitions=3, ends_known=ends_known, **options)


def seen(result: Result) -> tuple[Counter[Any], Any]:
    return Counter(result.outputs["out"]), result.states["sums"]


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.integers(1, 9), st.lists(st.integers(1, 150), max_size=3))
def test_results_are_those_of_slices_by_plan_also_after_crashes(seed: int, size: int, crashes: list[int]) -> None:
    by_plan = simulated(EndKnown.BY_PLAN, seed=seed, epoch_events=size)
    by_report = simulated(EndKnown.BY_REPORT, seed=seed, epoch_events=size, crash_at=crashes)
    assert {key: state.total for key, state in by_report.states["sums"].items()} == {
        key: state.total for key, state in by_plan.states["sums"].items()
    }
    assert sorted(row.number for row in by_report.outputs["out"]) == sorted(
        row.number for row in by_plan.outputs["out"]
    )
    assert by_report.processed == by_plan.processed and len(by_report.outputs["out"]) == len(EVENTS)


def test_in_one_partition_the_rows_are_the_same_one_by_one() -> None:
    for crash in range(5, 120, 11):
        found = run(job(), {"in": EVENTS}, epoch_events=7, ends_known=EndKnown.BY_REPORT, crash_at=crash)
        rows = [(row.card, row.number, row.total) for row in found.outputs["out"]]
        assert Counter(rows) == Counter(expected_journal(EVENTS)) and found.lives == 2


def test_markers_in_the_data_do_the_same() -> None:
    items = [*EVENTS[:10], Crash(), *EVENTS[10:25], Lose(), *EVENTS[25:]]
    by_plan, by_report = (simulated(kind, items=items, epoch_events=6) for kind in EndKnown)
    assert Counter(row.number for row in by_plan.outputs["out"]) == Counter(
        row.number for row in by_report.outputs["out"]
    )
    assert by_plan.lives == by_report.lives == 2


class Picky(KeyedOperator[Payment, Record, Seen]):
    """Fails every seventh event, each time."""

    def apply(self, event: Payment, state: Record, collector: Any) -> None:
        if event.amount % 7 == 3:
            collector.fail("not this one")
        else:
            collector.emit(Seen(event.card, event.amount, 0))


def test_a_failed_event_is_read_again_from_where_its_slice_was_reported_to_end() -> None:
    made = Job("reported", semantics="at-least-once", tracking="acknowledge", max_attempts=2, retry_after=0.01)
    source = made.source(ListSource(EVENTS, Payment), id="in")
    source.apply(Picky(), key="card", id="picky").sink(SqliteSink("/nowhere/out.db", "out"), id="out")
    found = {kind: run(made, {"in": EVENTS}, epoch_events=8, ends_known=kind) for kind in EndKnown}
    letters = {kind: sorted(json.loads(one.event)["amount"] for one in found[kind].letters) for kind in EndKnown}
    wanted = sorted(event.amount for event in EVENTS if event.amount % 7 == 3)
    assert letters == {EndKnown.BY_PLAN: wanted, EndKnown.BY_REPORT: wanted}
    assert all(len(one.outputs["out"]) == len(EVENTS) - len(wanted) for one in found.values())


# ---- files ------------------------------------------------------------------------------------------------------


def summing(table: Table, options: dict[str, Any]) -> Job:
    made = Job("files", **options)
    source = made.source(ListSource(EVENTS, Payment, max_events=10), id="in")
    source.apply(Summing(), key="card", id="sums").sink(MemorySink(table), id="out")
    return made


def failing(table: Table, options: dict[str, Any]) -> Job:
    made = Job("files", **options)
    source = made.source(ListSource(FAILING, Payment, max_events=10), id="in")
    source.apply(Failing(), key="card", id="sums", on_error="dead-letter").sink(MemorySink(table), id="out")
    return made


def drive(folder: Path, kind: EndKnown, epochs: int = 99, make: Any = summing, **options: Any) -> Table:
    """Some epochs of a driver in a folder; then it ends."""
    table = TABLES.setdefault(folder, Table())
    made = make(table, options)
    store, numbers = Store(RealDisk(), folder, "files"), iter(range(10**6))
    host = LocalHost(RealDisk(), ends_known=kind)
    driver = Driver(
        made.graph(), made.settings, store, host, VirtualClock(), lambda: f"{next(numbers):08x}", take_over=True
    )
    driver.start()
    while epochs and driver.run_epoch() is not None:
        epochs -= 1
    driver.close()
    host.close()
    return table


TABLES: dict[Path, Table] = {}


def plan(folder: Path, epoch: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "files" / "checkpoints" / f"{epoch:012d}.plan.json").read_text())
    return found


def rows(table: Table) -> list[tuple[str, int, int]]:
    return [(row.card, row.number, row.total) for row in table.rows]


def test_a_plan_by_report_names_the_source_and_no_end(tmp_path: Path) -> None:
    drive(tmp_path, EndKnown.BY_REPORT, epochs=2, retain=9)
    assert plan(tmp_path, 2)["from"] == {"in/0": 10} and plan(tmp_path, 2)["to"] == {}
    assert plan(tmp_path, 2)["reported"] == ["in"]
    assert Store(RealDisk(), tmp_path, "files").manifest(2).positions == {"in/0": 20}
    drive(tmp_path / "other", EndKnown.BY_PLAN, epochs=2, retain=9)
    assert plan(tmp_path / "other", 2).keys() == {"epoch", "parent", "fence", "from", "to", "ticks", "seal"}
    assert plan(tmp_path / "other", 2)["to"] == {"in/0": 20}


def test_one_folder_goes_on_by_plan_and_by_report(tmp_path: Path) -> None:
    for kind in (EndKnown.BY_PLAN, EndKnown.BY_REPORT, EndKnown.BY_PLAN, EndKnown.BY_REPORT):
        table = drive(tmp_path, kind, epochs=2)
    assert rows(table) == expected_journal(EVENTS)


def test_an_idle_source_spends_no_number(tmp_path: Path) -> None:
    for _ in range(3):
        drive(tmp_path, EndKnown.BY_REPORT)
    plans = sorted((tmp_path / "files" / "checkpoints").glob("*.plan.json"))
    assert int(plans[-1].name[:12]) <= 6 + 3, "six checkpoints, and one plan in each life that found nothing"


def test_catching_up_goes_by_plan_and_stops_at_the_position_of_the_sink(tmp_path: Path) -> None:
    """The sink is at checkpoint 4, whose files are lost, and those of 3, too."""
    drive(tmp_path, EndKnown.BY_REPORT, epochs=4, retain=9)
    for path in (tmp_path / "files" / "checkpoints").glob("00000000000[34].*json"):
        if "plan" not in path.name:
            path.unlink()
    table = drive(tmp_path, EndKnown.BY_REPORT, retain=9)
    assert rows(table) == expected_journal(EVENTS), "nothing twice, nothing lost"
    caught_up = [plan(tmp_path, epoch) for epoch in (5, 6)]
    assert [one.get("reported") for one in caught_up] == [None, None]
    assert caught_up[-1]["to"] == {"in/0": 40} and plan(tmp_path, 7)["reported"] == ["in"]


def test_under_at_most_once_the_plan_says_what_is_never_read_again(tmp_path: Path) -> None:
    drive(tmp_path, EndKnown.BY_REPORT, epochs=2, retain=9, semantics="at-most-once")
    assert plan(tmp_path, 2)["to"] == {"in/0": 20} and "reported" not in plan(tmp_path, 2)


# ---- dead letters of a checkpoint that is lost ------------------------------------------------------------------


class Failing(KeyedOperator[Payment, Record, Seen]):
    def apply(self, event: Payment, state: Record, collector: Any) -> None:
        if event.amount < 0:
            raise ValueError("an amount below zero")
        collector.emit(Seen(event.card, event.amount, 0))


FAILING = [Payment(f"card {place}", -place if place % 15 == 1 else place) for place in range(60)]


def open_letters(folder: Path) -> list[Letter]:
    replayed = Inbox(RealDisk(), folder / "files").replayed()
    return [one for one in DeadLetters(RealDisk(), folder / "files").all() if one.id not in replayed]


def lose(folder: Path, what: str) -> None:
    """Checkpoints from 1 on cannot be used: their manifests are gone, or the state that all of them need."""
    for path in (folder / "files").glob(what):
        if not path.name.startswith("000000000000.") and not path.name.endswith(".plan.json"):
            path.write_bytes(b"damaged")


@pytest.mark.parametrize("kinds", [(one, two) for one in EndKnown for two in EndKnown], ids=str)
@pytest.mark.parametrize("what", ["checkpoints/*.json", "state/**/*.*"])
def test_a_replayed_letter_is_recognised_when_its_epoch_is_computed_again(
    tmp_path: Path, what: str, kinds: tuple[EndKnown, EndKnown]
) -> None:
    """Its event fails each time: one letter of each event is open in the end, that of the replay."""
    before, after = kinds
    drive(tmp_path, before, epochs=3, make=failing, retain=9)
    first = open_letters(tmp_path)
    assert [json.loads(one.event)["amount"] for one in first] == [-1, -16]
    Inbox(RealDisk(), tmp_path / "files").put(first)
    lose(tmp_path, what)
    table = drive(tmp_path, after, make=failing, retain=9)
    assert sorted(json.loads(one.event)["amount"] for one in open_letters(tmp_path)) == [-46, -31, -16, -1]
    assert sorted(row.number for row in table.rows) == [one.amount for one in FAILING if one.amount >= 0]


def test_without_the_end_of_the_lost_epoch_the_letter_is_not_recognised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control: the plan alone is asked, which names no end."""
    monkeypatch.setattr(Store, "set_aside", lambda self, epoch: None)
    monkeypatch.setattr(Effects, "_planned_end", lambda self, epoch: self._store.plan(epoch).end)
    with pytest.raises(AssertionError, match="-1, -1"):
        test_a_replayed_letter_is_recognised_when_its_epoch_is_computed_again(
            tmp_path, "state/**/*.*", (EndKnown.BY_REPORT, EndKnown.BY_REPORT)
        )


def test_an_epoch_behind_the_lost_one_takes_no_id_from_it(tmp_path: Path) -> None:
    """What was set aside names its end, also by report."""
    drive(tmp_path, EndKnown.BY_REPORT, epochs=3, make=failing, retain=9)
    lose(tmp_path, "state/**/*.*")
    drive(tmp_path, EndKnown.BY_REPORT, make=failing, retain=9)
    store = Store(RealDisk(), tmp_path, "files")
    starts = {epoch: store.plan(epoch).start["in/0"] for epoch in store.plans() if epoch > 3}
    effects = Effects(failing(Table(), {}).graph(), store)
    assert {epoch: effects._overlap(epoch, 2) for epoch in starts} == {epoch: at < 20 for epoch, at in starts.items()}
    assert set(starts.values()) >= {10, 20, 30}


# ---- the nouns --------------------------------------------------------------------------------------------------


def test_the_end_of_an_epoch_is_what_was_planned_and_what_was_reported() -> None:
    start, planned = Position({"a/0": 3, "b/0": 5, "c/0": 7}), Position({"a/0": 9, "clock": 4})
    one = Plan(2, 1, 1, start, planned, reported=("b",))
    told = [Report("b", 0, "x", {}, ends={"0": 6, "1": 2}), Report("sums", 0, "x", {})]
    assert reported.end_of(one.start, one, told) == {"a/0": 9, "b/0": 6, "b/1": 2, "c/0": 7, "clock": 4}


def test_extents_say_how_their_ends_become_known() -> None:
    graph = job().graph()
    parts = Partitions.of(graph, fixed(graph))
    by_plan = Plan(1, 0, 1, Position({"in/0": 5}), Position({"in/0": 9}))
    assert extents(graph, parts, ["in"], 0, by_plan) == {"in": {"0": Extent(5, 9)}}
    by_report = Plan(1, 0, 1, Position({"in/0": 5}), Position(), reported=("in",))
    assert extents(graph, parts, ["in"], 0, by_report) == {"in": {"0": Extent(5, limit=200_000)}}
    assert extents(graph, parts, ["in"], 1, by_report) == {}, "the other instance reads no partition"
    assert [Extent(5, 9).known, Extent(5, limit=1).known] == [EndKnown.BY_PLAN, EndKnown.BY_REPORT]


@pytest.mark.parametrize(
    "wrong", [{"start": 5, "end": 5}, {"start": 5, "end": 4}, {"start": 5}, {"start": -1, "end": 4}]
)
def test_an_extent_that_reads_nothing_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="cannot read"):
        Extent(**wrong)


def test_without_the_reported_ends_rows_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: the first events are read again and again."""
    expected = set(expected_journal(EVENTS))

    def some_rows() -> set[tuple[str, int, int]]:
        found = run(
            job(),
            {"in": EVENTS},
            epoch_events=5,
            ends_known=EndKnown.BY_REPORT,
            until=lambda result: len(result.checkpoints) > 4,
        )
        return {(row.card, row.number, row.total) for row in found.outputs["out"]}

    assert some_rows() <= expected
    monkeypatch.setattr(reported, "end_of", lambda start, plan, reports: start.moved(plan.end))
    assert not some_rows() <= expected


def test_an_instance_asks_about_all_of_its_partitions_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    ends = Script.ends

    def noted(self: Script, starts: Mapping[str, int], limit: int) -> Mapping[str, int]:
        if limit == 4:  # that is not about lag
            asked.append(len(starts))
        return ends(self, starts, limit)

    monkeypatch.setattr(Script, "ends", noted)
    found = simulated(EndKnown.BY_REPORT, epoch_events=4)
    assert len(found.outputs["out"]) == len(EVENTS)
    assert Counter(asked) == {1: len(asked) // 2, 2: len(asked) // 2}, "three partitions, two instances"
