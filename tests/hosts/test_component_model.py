"""The contract of the component model, on every host: each part of it, across a restart and whatever the cuts."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from contract_jobs import (
    Alert,
    Averaging,
    Closing,
    Columns,
    Declaring,
    Forgetting,
    Hiding,
    Numbering,
    Reading,
    Silence,
    Splitting,
    Stamping,
    Stringing,
    StringingMarks,
    Waking,
    Watching,
    is_even,
    summing,
    to_alert,
    twice,
)
from sample import run_job
from streamwork import (
    Job,
    JobFailed,
    ListSource,
    SqliteSink,
    Stream,
    WrongUse,
    all_instances,
    field,
    fields,
    shuffle,
    single,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
Build = Callable[[Stream, Callable[[Stream, str], None]], None]


def readings(*values: tuple[str, int] | tuple[str, int, float]) -> list[Reading]:
    """(sensor, value[, second]); without a second, one after the other."""
    return [
        Reading(sensor, value, START + timedelta(seconds=rest[0] if rest else place))
        for place, (sensor, value, *rest) in enumerate(values)
    ]


def rows(folder: Path, table: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder / "out.db")) as db:
        return db.execute(f"SELECT * FROM {table} ORDER BY rowid").fetchall()


def run(folder: Path, mode: str, events: list[Reading], build: Build, cut: int = 3, lives: int = 2) -> None:
    """Run a job over the events in several lives, `cut` events to a checkpoint."""
    for life in range(1, lives + 1):
        job = Job("contract", checkpoint_every=0)
        some = events[: len(events) * life // lives]
        stream = job.source(ListSource(some, Reading, max_events=cut), id="readings", time="at")

        def sink(to: Stream, name: str) -> None:
            to.sink(SqliteSink(folder / "out.db", name), id=f"{name}-sink")

        build(stream, sink)
        run_job(job, folder / "root", mode)


MANY = readings(*[(f"s{i % 3}", i * 37 % 101) for i in range(20)])


def test_instance_state_comes_back(tmp_path: Path, mode: str) -> None:
    run(tmp_path, mode, MANY, lambda s, sink: sink(s.apply(Numbering(), id="numbers"), "numbers"), lives=3)
    assert rows(tmp_path, "numbers") == [(i + 1, reading.sensor) for i, reading in enumerate(MANY)]


def test_channels_split_a_stream(tmp_path: Path, mode: str) -> None:
    def build(stream: Stream, sink: Any) -> None:
        split = stream.apply(Splitting())
        sink(split, "cool")
        sink(split.channel("hot"), "hot")

    run(tmp_path, mode, MANY, build)
    assert [row[1] for row in rows(tmp_path, "cool")] == [r.value for r in MANY if r.value <= 90]
    assert rows(tmp_path, "hot") == [(r.sensor, r.value) for r in MANY if r.value > 90]


@pytest.mark.slow(mode="microbatch")
@pytest.mark.parametrize("cut", [1, 2, 7, 100])
def test_a_fork_that_meets_again_keeps_the_order_of_events_whatever_the_cuts(
    tmp_path: Path, mode: str, cut: int
) -> None:
    def build(stream: Stream, sink: Any) -> None:
        both = stream.filter(is_even).union(stream.where(field("value") > 40))
        sink(both.apply(Numbering(), id="numbers"), "numbers")

    run(tmp_path, mode, MANY, build, cut=cut)
    expected = [r.sensor for r in MANY for wanted in (r.value % 2 == 0, r.value > 40) if wanted]
    assert [sensor for _, sensor in rows(tmp_path, "numbers")] == expected


@pytest.mark.slow(mode="microbatch")
def test_functions_as_steps(tmp_path: Path, mode: str) -> None:
    def build(stream: Stream, sink: Any) -> None:
        sink(stream.filter(is_even).flat_map(twice, to=Reading).map(to_alert), "mapped")
        sink(stream.map_with_state(summing, key="sensor", state=_running(), id="summing", to=Alert), "summed")

    run(tmp_path, mode, MANY, build)
    even = [(r.sensor, r.value) for r in MANY if r.value % 2 == 0]
    assert rows(tmp_path, "mapped") == [row for row in even for _ in range(2)]
    totals: dict[str, int] = {}
    expected = []
    for r in MANY:
        totals[r.sensor] = totals.get(r.sensor, 0) + r.value
        expected += [(r.sensor, totals[r.sensor])] if r.value else []
    assert rows(tmp_path, "summed") == expected


def _running() -> Any:
    from contract_jobs import Running

    return Running


@pytest.mark.slow(mode="microbatch")
def test_whole_columns_at_a_time(tmp_path: Path, mode: str) -> None:
    run(tmp_path, mode, MANY, lambda s, sink: sink(s.apply(Columns()), "hot"))
    assert rows(tmp_path, "hot") == [(r.sensor, r.value) for r in MANY if r.value > 50]


@pytest.mark.slow(mode="microbatch", cut=[1, 100])
@pytest.mark.parametrize("cut", [1, 3, 100])
def test_event_time_timers_fire_between_the_same_events_whatever_the_cuts(tmp_path: Path, mode: str, cut: int) -> None:
    """a speaks at 0 and 5, b keeps time going; a is quiet at 15, comes back, and is quiet again."""
    events = readings(
        ("a", 1, 0),
        ("b", 1, 1),
        ("a", 1, 5),
        ("b", 1, 9),
        ("b", 1, 14),
        ("b", 1, 16),
        ("a", 1, 17),
        ("b", 1, 20),
        ("b", 1, 28),
    )
    run(tmp_path, mode, events, lambda s, sink: sink(s.apply(Silence(), key="sensor", id="silence"), "quiet"), cut=cut)
    assert rows(tmp_path, "quiet") == [("a", 2), ("a", 1)]


def test_timers_are_part_of_the_state(tmp_path: Path, mode: str) -> None:
    """The timer is set in the first life and fires in the second."""
    events = readings(("a", 1, 0), ("b", 1, 1), ("b", 1, 5), ("b", 1, 11))
    run(tmp_path, mode, events, lambda s, sink: sink(s.apply(Silence(), key="sensor", id="silence"), "quiet"))
    assert rows(tmp_path, "quiet") == [("a", 1)]


def times(folder: Path, table: str) -> list[tuple[datetime, datetime | None]]:
    """(now, watermark) of each row of `Stamped`."""
    read = datetime.fromisoformat
    return [(read(now), read(mark) if mark else None) for _, _, now, mark in rows(folder, table)]


JUMPY = readings(*[(f"s{i % 3}", i, (i * 37) % 11) for i in range(12)])
BEFORE_EACH = [max((r.at for r in JUMPY[:place]), default=None) for place in range(len(JUMPY))]


@pytest.mark.slow(mode="microbatch")
@pytest.mark.parametrize("cut", [1, 5, 100])
@pytest.mark.parametrize("operator", [Stamping, Declaring])
def test_the_watermark_is_that_before_the_event_whatever_the_cuts(
    tmp_path: Path, mode: str, cut: int, operator: Any
) -> None:
    run(tmp_path, mode, JUMPY, lambda s, sink: sink(s.filter(bool).apply(operator(), id="stamps"), "stamps"), cut=cut)
    assert [mark for _, mark in times(tmp_path, "stamps")] == BEFORE_EACH


@pytest.mark.slow(mode="microbatch", cut=[1, 100])
@pytest.mark.parametrize("cut", [1, 5, 100])
def test_the_watermark_behind_an_exchange_with_one_sender(tmp_path: Path, mode: str, cut: int) -> None:
    def build(stream: Stream, sink: Any) -> None:
        sink(stream.apply(Watching(), key="sensor", id="stamps", parallelism=3), "stamps")

    run(tmp_path, mode, JUMPY, build, cut=cut)
    found = zip([row[1] for row in rows(tmp_path, "stamps")], times(tmp_path, "stamps"), strict=True)
    assert [mark for _, (_, mark) in sorted(found)] == BEFORE_EACH


@pytest.mark.slow(mode="microbatch")
def test_a_watermark_that_is_read_in_secret_is_refused(tmp_path: Path, mode: str) -> None:
    with pytest.raises(WrongUse, match="(?s)SW-OPERATOR-WATERMARK.*stamps.*reads_watermark = True"):
        run(tmp_path, mode, JUMPY, lambda s, sink: sink(s.apply(Hiding(), id="stamps"), "stamps"))


def test_now_is_the_time_in_the_plan(tmp_path: Path, mode: str) -> None:
    run(tmp_path, mode, MANY[:6], lambda s, sink: sink(s.apply(Stamping(), id="stamps"), "stamps"), lives=1)
    plans = [json.loads(path.read_bytes()) for path in sorted((tmp_path / "root").glob("*/checkpoints/*.plan.json"))]
    planned = [datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=plan["ticks"][-1]) for plan in plans]
    if mode == "live":  # where epochs are cut is a matter of time
        assert {now for now, _ in times(tmp_path, "stamps")} <= set(planned)
    else:
        assert [now for now, _ in times(tmp_path, "stamps")] == [at for at in planned for _ in range(3)]
    assert all("clock" not in plan["to"] for plan in plans), "only timers make the clock a part of the position"


@pytest.mark.slow(mode="microbatch", operator=StringingMarks)
@pytest.mark.parametrize("operator", [Stringing, StringingMarks])
def test_an_epoch_that_is_computed_again_sees_the_same_time(tmp_path: Path, mode: str, operator: Any) -> None:
    """The newest checkpoint is lost, and its sink is ahead: the job catches up, and its state has the times of the rows."""

    def life(number: int) -> None:
        def build(stream: Stream, sink: Any) -> None:
            sink(stream.apply(operator(), key="sensor", id="stamps"), "stamps")

        run(tmp_path, mode, MANY[: 6 * number], build, lives=1)

    life(1)
    newest = max((tmp_path / "root" / "contract" / "checkpoints").glob("*[0-9].json"))
    newest.unlink()
    life(2)
    last: dict[str, datetime] = {}
    for sensor, (now, before) in zip(
        [row[0] for row in rows(tmp_path, "stamps")], times(tmp_path, "stamps"), strict=True
    ):
        assert before == last.get(sensor, datetime(1970, 1, 1, tzinfo=UTC))
        last[sensor] = now
    assert len(rows(tmp_path, "stamps")) == 12
    assert operator is StringingMarks or len(set(last.values())) == 1, "one time in all of a checkpoint"


def test_processing_time_timers_fire_without_input(tmp_path: Path, mode: str) -> None:
    run(tmp_path, mode, MANY[:4], lambda s, sink: sink(s.apply(Waking(), key="sensor", id="waking"), "woken"), lives=1)
    assert sorted(sensor for sensor, _ in rows(tmp_path, "woken"))[-1] == "s2"
    assert {sensor for sensor, _ in rows(tmp_path, "woken")} == {"s0", "s1", "s2"}


@pytest.mark.slow(mode="microbatch")
def test_a_forgotten_key_begins_anew_and_stays_forgotten(tmp_path: Path, mode: str) -> None:
    events = readings(("a", 1), ("a", 0), ("a", 5), ("b", 0), ("b", 1), ("a", 2))
    run(tmp_path, mode, events, lambda s, sink: sink(s.apply(Forgetting(), key="sensor", id="counts"), "counts"), cut=2)
    assert rows(tmp_path, "counts") == [("a", 1), ("a", 2), ("a", 1), ("b", 1), ("b", 1), ("a", 2)]


SOME_BAD = readings(("a", 1), ("a", -1), ("a", 3), ("b", -5), ("b", 4))


def test_apply_is_atomic_where_the_job_goes_on_after_an_error(tmp_path: Path, mode: str) -> None:
    def build(stream: Stream, sink: Any) -> None:
        sink(stream.apply(Averaging(), key="sensor", id="averages", on_error="drop"), "averages")
        sink(stream.apply(Numbering(), id="numbers", on_error="drop"), "numbers")

    run(tmp_path, mode, SOME_BAD, build, cut=2)
    assert rows(tmp_path, "averages") == [("a", 1.0), ("a", 2.0), ("b", 4.0)]
    assert rows(tmp_path, "numbers") == [(1, "a"), (2, "a"), (3, "b")]


@pytest.mark.slow(mode="microbatch")
def test_otherwise_it_fails_the_job(tmp_path: Path, mode: str) -> None:
    with pytest.raises(JobFailed, match="SW-OPERATOR-FAILED.*averages"):
        run(
            tmp_path,
            mode,
            SOME_BAD,
            lambda s, sink: sink(s.apply(Averaging(), key="sensor", id="averages"), "averages"),
        )


class Undeclared(Averaging):
    def apply(self, event: Reading, state: Any, collector: Any) -> None:
        collector.emit(event, "nowhere")


@pytest.mark.slow(mode="microbatch")
def test_instances_are_closed_when_the_job_ends(tmp_path: Path, mode: str) -> None:
    def build(stream: Stream, sink: Callable[[Stream, str], None]) -> None:
        sink(stream.apply(Closing(str(tmp_path)), id="closing", grouping=shuffle(), parallelism=2), "out")

    run(tmp_path, mode, MANY, build)
    opened = {path.stem for path in tmp_path.glob("*.opened")}
    assert len(opened) >= 4, "two instances in two lives"
    assert {path.stem for path in tmp_path.glob("*.closed")} == opened


def test_a_channel_that_is_not_declared_is_told(tmp_path: Path) -> None:
    with pytest.raises(JobFailed, match="a channel must be declared"):
        run(tmp_path, "local", MANY, lambda s, sink: sink(s.apply(Undeclared(), key="sensor", id="x"), "x"))
    with pytest.raises(WrongUse, match="(?s)SW-JOB-CHANNEL.*'cold'.*main, hot"):
        run(tmp_path, "local", MANY, lambda s, sink: sink(s.apply(Splitting()).channel("cold"), "x"))


def test_unions_are_of_one_type_and_one_job(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="SW-JOB-TYPE"):
        run(tmp_path, "local", MANY, lambda s, sink: sink(s.union(s.map(to_alert)), "x"))
    with pytest.raises(WrongUse, match="SW-JOB-EDGE"):
        run(tmp_path, "local", MANY, lambda s, sink: sink(s.union(Job("other").source(ListSource(MANY), id="o")), "x"))


def test_event_time_is_a_datetime_field(tmp_path: Path) -> None:
    for name in ("sensor", "nothing"):
        with pytest.raises(WrongUse, match="SW-JOB-TIME"):
            Job("j").source(ListSource(MANY), id="r", time=name)


def test_functions_must_say_what_they_return(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="(?s)SW-TYPE-MISSING.*to="):
        Job("j").source(ListSource(MANY), id="r").map(lambda r: r)


@pytest.mark.slow(mode="microbatch")
@pytest.mark.parametrize("grouping", [shuffle(), fields("sensor"), single(), all_instances()], ids=str)
def test_groupings_choose_the_instances(tmp_path: Path, mode: str, grouping: Any) -> None:
    def build(stream: Stream, sink: Any) -> None:
        sink(stream.apply(Numbering(), id="numbers", grouping=grouping, parallelism=3), "numbers")

    run(tmp_path, mode, MANY, build)
    found = rows(tmp_path, "numbers")
    counts = Counter(sensor for _, sensor in found)
    copies = 3 if grouping == all_instances() else 1
    assert counts == Counter({r.sensor: copies * sum(o.sensor == r.sensor for o in MANY) for r in MANY})
    most = max(number for number, _ in found)
    expected = {shuffle(): (7, 8), single(): (20,), all_instances(): (20,), fields("sensor"): (7, 13, 14, 20)}
    assert most in expected[grouping]


@pytest.mark.slow(mode="microbatch")
def test_a_keyed_operator_in_several_instances_behind_any_source(tmp_path: Path, mode: str) -> None:
    def build(stream: Stream, sink: Any) -> None:
        sink(stream.apply(Averaging(), key="sensor", id="averages", parallelism=3), "averages")

    run(tmp_path, mode, MANY, build, lives=3)
    totals: dict[str, list[int]] = {}
    expected = Counter()
    for r in MANY:
        totals.setdefault(r.sensor, []).append(r.value)
        expected[r.sensor, sum(totals[r.sensor]) / len(totals[r.sensor])] += 1
    assert Counter(rows(tmp_path, "averages")) == expected
