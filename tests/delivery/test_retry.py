"""`on_error=Retry(...)`: an event that fails is tried again in place, with growing pauses; then `then` applies."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delivery.retry_jobs import Bulk, Count, Counting, Done, Item, LookUp, Outage, PerCard
from streamwork import Event, Job, JobFailed, KeyedOperator, ListSource, Operator, Retry, SqliteSink
from streamwork.delivery.counts import is_closed
from streamwork.delivery.retrying import GRACE_SECONDS, STALE_SECONDS, Mark, Watch
from streamwork.engine.wave import Wave
from streamwork.epoch.allowance import Allowance
from streamwork.testing import SimulatedDisk, run

NONE = SqliteSink("never-opened.db", "t")
ITEMS = [Item(name, card=name if name < "d" else "a") for name in "abcdefgh"]
SEMANTICS: dict[str, dict[str, str]] = {
    "at-most-once": {"semantics": "at-most-once"},
    "at-least-once": {"semantics": "at-least-once"},
    "acknowledge": {"semantics": "at-least-once", "tracking": "acknowledge"},
    "exactly-once": {"semantics": "exactly-once"},
}
OPERATORS: dict[str, Any] = {"stateless": LookUp, "stateful": Counting, "keyed": PerCard}


def job(operator: Any, retry: Retry | str, restart: Any = None, **chosen: Any) -> Job:
    made = Job("items", restart=restart, **chosen)
    key = {"key": "card"} if isinstance(operator, PerCard) else {}
    source = made.source(ListSource([], Item), id="items")
    source.apply(operator, id="work", on_error=retry, **key).sink(NONE, id="out")
    return made


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS)
@pytest.mark.parametrize("chosen", SEMANTICS.values(), ids=SEMANTICS)
@pytest.mark.proves("a look-up that is down for 20 s, with Retry")
def test_an_outage_of_20_seconds_costs_time_and_nothing_else(chosen: dict[str, str], operator: Any) -> None:
    """The oracle is the same job without an outage."""
    Outage.begin()
    plain = run(job(operator(), Retry(within="1min"), **chosen), {"items": ITEMS}, epoch_events=3)
    Outage.begin({"c": 8, "e": 3})  # 0.1 + 0.2 + ... + 12.8 s; 0.1 + 0.2 + 0.4 s
    result = run(job(operator(), Retry(within="1min"), **chosen), {"items": ITEMS}, epoch_events=3)
    assert result.lives == 1
    assert (result.outputs, result.states) == (plain.outputs, plain.states)
    assert Outage.log == [*"ab", *["c failed"] * 8, *"cd", *["e failed"] * 3, *"efgh"]
    assert 26.2 - 0.01 < result.seconds - plain.seconds < 30
    assert result.counts["work"]["retried"] == 11
    counted = {**result.counts, "work": {**result.counts["work"], "retried": 0}}
    assert counted == plain.counts
    assert result.letters == []


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS)
@pytest.mark.proves("the retry in place")
def test_without_retry_the_same_outage_ends_the_job(operator: Any) -> None:
    """The negative control."""
    Outage.begin({"c": 8})
    with pytest.raises(JobFailed, match="SW-OPERATOR-FAILED.*no answer"):
        run(job(operator(), "fail"), {"items": ITEMS}, epoch_events=3)


# ---- then ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS)
@pytest.mark.parametrize("then", ["drop", "dead-letter"])
@pytest.mark.parametrize("chosen", SEMANTICS.values(), ids=SEMANTICS)
def test_an_event_that_keeps_failing_is_given_up_as_then_says(chosen: dict[str, str], then: Any, operator: Any) -> None:
    """The oracle is the same job without that event. Under acknowledging a dead letter comes again `max_attempts` times first."""
    Outage.begin()
    without = [one for one in ITEMS if one.name != "c"]
    plain = run(job(operator(), Retry(), **chosen), {"items": without}, seed=3, epoch_events=8)
    Outage.begin({"c": 99})
    result = run(job(operator(), Retry(times=2, then=then), **chosen), {"items": ITEMS}, seed=3, epoch_events=8)
    rounds = 3 if then == "dead-letter" and "tracking" in chosen else 1
    assert (result.outputs, result.states) == (plain.outputs, plain.states)
    assert Outage.log.count("c failed") == 3 * rounds
    counts = result.counts["work"]
    assert counts["retried"] == 2 * rounds
    assert (counts["dropped"], counts["dead_letters"]) == ((1, 0) if then == "drop" else (0, 1))
    assert all(is_closed(mine) for mine in result.counts.values())
    assert [letter.error for letter in result.letters] == (["ConnectionError: no answer"] if then != "drop" else [])


@pytest.mark.parametrize("operator", [*OPERATORS.values(), Bulk], ids=[*OPERATORS, "batch"])
def test_then_fail_ends_the_run_and_says_that_it_was_tried(operator: Any) -> None:
    Outage.begin({"a": 99})
    with pytest.raises(JobFailed) as caught:
        run(job(operator(), Retry(times=4, then="fail")), {"items": ITEMS})
    assert caught.value.code == "SW-OPERATOR-FAILED" and caught.value.retryable
    assert Outage.log == ["a failed"] * 5
    if operator is not Bulk:
        assert "retries did not help (retry:times=4,then=fail)" in caught.value.cause


def test_what_then_is_where_it_is_not_said() -> None:
    for chosen, became in (("at-most-once", "dropped"), ("acknowledge", "dead_letters")):
        Outage.begin({"c": 99})
        result = run(job(LookUp(), Retry(times=1), **SEMANTICS[chosen]), {"items": ITEMS})
        assert result.counts["work"][became] == 1
    Outage.begin({"c": 99})
    with pytest.raises(JobFailed, match="no answer"):
        run(job(LookUp(), Retry(times=1)), {"items": ITEMS})


class Never(ConnectionError):
    retryable = False


def test_an_error_that_says_so_is_not_retried() -> None:
    Outage.begin({"c": 1}, Never)
    result = run(job(LookUp(), Retry(then="drop")), {"items": ITEMS})
    assert Outage.log.count("c failed") == 1
    assert (result.counts["work"]["retried"], result.counts["work"]["dropped"]) == (0, 1)


def test_a_batch_is_tried_again_as_a_whole() -> None:
    Outage.begin({"a": 3})
    result = run(job(Bulk(), Retry()), {"items": ITEMS}, epoch_events=8)
    names = [row.name for row in result.outputs["out"]]
    assert names == ["half done", *"abcdefgh"]
    assert result.counts["work"]["retried"] == 3


def test_a_stateful_operator_whose_set_up_fails_during_the_outage() -> None:
    """A fresh object is set up for each try: that it cannot be is a try that failed."""
    Outage.begin({"c": 2, "set up": 0})
    Connecting.begun = False
    result = run(job(Connecting(), Retry()), {"items": ITEMS}, epoch_events=3)
    assert [(row.name, row.number) for row in result.outputs["out"]] == [(n, i) for i, n in enumerate("abcdefgh", 1)]
    assert result.counts["work"]["retried"] == 4, "c fails twice, and so does setting it up"


class Connecting(Counting):
    """Cannot be set up twice after the first failure of c."""

    begun: ClassVar[bool] = False

    def setup_instance(self, instance: int, state: Count | None) -> None:
        Outage.ask("set up")
        super().setup_instance(instance, state)

    def apply(self, event: Item, collector: Any) -> None:
        self.number += 1
        if event.name == "c" and not Connecting.begun:
            Connecting.begun = True
            Outage.left["set up"] = 2
        Outage.ask(event.name)
        collector.emit(Done(event.name, self.number))


# ---- order: what comes behind an event that waits, waits ------------------------------------------------------------


class Ringing(KeyedOperator[Item, Count, Done]):
    """Sets a timer for each event, which needs what is down."""

    def apply(self, event: Item, state: Count, collector: Any) -> None:
        state.number += 1
        collector.set_timer(event.at + timedelta(seconds=1))

    def on_timer(self, key: str, at: datetime, state: Count, collector: Any) -> None:
        collector.emit(Done("half done"))
        Outage.ask(f"timer {at.second}")
        collector.emit(Done(f"{key} {at.second}", state.number))


class Splitting(Operator[Item, Item]):
    channels: ClassVar[dict[str, type[Event]]] = {"side": Item}

    def apply(self, event: Item, collector: Any) -> None:
        collector.emit(event)
        collector.emit(event, "side")


class Passing(Operator[Item, Item]):
    def __init__(self, name: str) -> None:
        self.name = name

    def apply(self, event: Item, collector: Any) -> None:
        Outage.ask(f"{self.name} {event.name}")
        collector.emit(event)


START = datetime(2026, 1, 1, tzinfo=UTC)


def tangled() -> Job:
    """Branches that part and meet, timers behind them, and look-ups everywhere: all of it one chain."""
    made = Job("tangled")
    split = made.source(ListSource([], Item), id="items", time="at").apply(Splitting(), id="split")
    left = split.apply(Passing("left"), id="left", on_error=Retry())
    right = split.channel("side").apply(Passing("right"), id="right", on_error=Retry())
    both = left.union(right)
    both.apply(PerCard(), key="card", id="cards", on_error=Retry()).sink(NONE, id="counted")
    both.apply(Ringing(), key="card", id="bells", on_error=Retry()).sink(NONE, id="rung")
    return made


def spread() -> Job:
    """Three chains of two instances: what a key comes to depends on its events alone."""
    made = Job("spread", parallelism=2)
    items = made.source(ListSource([], Item), id="items", time="at", parallelism=2)
    passed = items.apply(Passing("left"), id="left", on_error=Retry())
    passed.apply(PerCard(), key="card", id="cards", on_error=Retry()).sink(NONE, id="counted")
    passed.apply(Ringing(), key="name", id="bells", on_error=Retry()).sink(NONE, id="rung")
    return made


@given(st.data())
@settings(max_examples=30, deadline=None)
@pytest.mark.proves("any event fails any number of times, with Retry and crashes")
def test_results_are_those_of_a_run_in_which_nothing_failed(data: Any) -> None:
    """Any events fail any number of times, at any of the steps, one behind the other; also across crashes."""
    made, seed = data.draw(st.sampled_from([tangled, spread])), data.draw(st.integers(0, 1000))
    items = [Item(str(i), card="ab"[i % 2], at=START + timedelta(seconds=i)) for i in range(8)]
    names = [f"{step} {i}" for step in ("left", "right", "timer") for i in range(9)] + [str(i) for i in range(8)]
    Outage.begin()
    plain = run(made(), {"items": items}, seed=seed, epoch_events=3)
    failing = data.draw(st.dictionaries(st.sampled_from(names), st.integers(1, 3), max_size=12))
    Outage.begin(failing)
    crash_at = data.draw(st.lists(st.integers(1, 60), max_size=2))
    result = run(made(), {"items": items}, seed=seed, epoch_events=3, crash_at=crash_at)
    for sink, rows in plain.outputs.items():
        found = result.outputs[sink]
        assert Counter(map(repr, found)) == Counter(map(repr, rows))
        assert found == rows or made is spread
    assert result.states == plain.states
    if not crash_at:
        asked = sum(times for name, times in failing.items() if name in Outage.log)
        assert sum(counts.get("retried", 0) for counts in result.counts.values()) == asked


@pytest.mark.proves("event time that waits for a retried event")
def test_if_nothing_were_deferred_the_results_would_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: where steps do not wait for the rest of a branch, bells ring too early."""
    monkeypatch.setattr(Wave, "_is_blocked", lambda wave: False)
    items = [Item(str(i), card="a", at=START + timedelta(seconds=i)) for i in range(8)]
    Outage.begin()
    plain = run(tangled(), {"items": items}, epoch_events=4)
    Outage.begin({"left 2": 2})
    result = run(tangled(), {"items": items}, epoch_events=4)
    assert result.outputs != plain.outputs


def test_on_the_local_host_other_instances_go_on_meanwhile() -> None:
    """The wait is scheduled, not slept."""
    made = Job("two")
    made.source(ListSource([], Item), id="slow").apply(Passing("slow"), id="ask", on_error=Retry()).sink(NONE, id="a")
    made.source(ListSource([], Item), id="quick").apply(Passing("quick"), id="go").sink(NONE, id="b")
    Outage.begin({"slow a": 4})
    run(made, {"slow": ITEMS[:1], "quick": ITEMS}, epoch_events=8)
    assert Outage.log.index("quick h") < Outage.log.index("slow a"), Outage.log


# ---- the checkpoint waits -------------------------------------------------------------------------------------------


@pytest.mark.proves("a retry longer than checkpoint_timeout")
def test_the_checkpoint_timeout_stands_still() -> None:
    Outage.begin({"c": 8})  # 25.5 s
    result = run(job(LookUp(), Retry(within="1min"), checkpoint_timeout="5s"), {"items": ITEMS}, epoch_events=3)
    assert [line for line in result.story if line.startswith("abandon")] == []
    assert Outage.log.count("c failed") == 8 and Outage.log.count("c") == 1


@pytest.mark.proves("the marks of retries that the driver watches")
def test_if_it_did_not_stand_still_the_epoch_would_be_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control."""
    monkeypatch.setattr(Watch, "fresh", lambda self, epoch: [])
    Outage.begin({"c": 8})
    result = run(job(LookUp(), Retry(within="1min"), checkpoint_timeout="5s"), {"items": ITEMS}, epoch_events=3)
    assert [line for line in result.story if line.startswith("abandon")]


class Clock:
    at = 0.0

    def __call__(self) -> float:
        return self.at


def test_time_counts_while_nothing_waits() -> None:
    clock, waiting, stopping, ended = Clock(), [False], [False], []
    allowed = Allowance(10, clock, lambda: waiting[0], lambda: stopping[0], lambda: ended.append(clock.at))
    for at, waits, expired in [
        (4, False, False),  # 4 s are spent
        (5, True, False),  # 5 s are, when it is seen to wait
        (100, True, False),
        (101, False, False),  # it is seen that it does not wait any more
        (105, False, False),  # 9 s
        (106.5, False, True),
    ]:
        clock.at, waiting[0] = at, waits
        assert allowed.expired() == expired, at
    waiting[0] = stopping[0] = True
    clock.at += 1
    allowed.expired()
    clock.at += 1
    allowed.expired()
    assert len(ended) == 1, "once is enough"


def test_a_stop_abandons_an_epoch_that_waits_and_no_other() -> None:
    clock, waiting, stopping = Clock(), [False], [True]
    allowed = Allowance(None, clock, lambda: waiting[0], lambda: stopping[0], None)
    assert not allowed.expired(), "it may be completed"
    clock.at, waiting[0] = 1, True
    assert allowed.expired()
    stopping[0] = False
    assert not Allowance(None, clock, lambda: True, lambda: stopping[0], None).expired()


def mark(beat: int, since: float = 1.0, within: float | None = 60.0) -> Mark:
    return Mark("work", 0, 5, 7, "event", "error", 1, None, within, "fail", since, since + 1, beat)


def put(disk: SimulatedDisk, one: Mark) -> None:
    disk.make_folder(Path("/job/control/retrying"))
    disk.replace(Path("/job") / one.path, msgspec.json.encode(one))


def test_only_a_mark_that_changes_counts() -> None:
    disk, clock = SimulatedDisk(), Clock()
    watch = Watch(disk, Path("/job"), 7, clock)
    for beat, at in enumerate((0.0, 5.0, 10.0, 15.0)):
        put(disk, mark(beat))
        clock.at = at
        assert watch.fresh(5) == [mark(beat)] and watch.fresh(6) == []
    clock.at = 15 + STALE_SECONDS
    assert watch.fresh(5)
    clock.at += 0.1
    assert watch.fresh(5) == [], "its task is gone"
    put(disk, mark(9))
    assert watch.fresh(5), "and back"
    watch.clear(5)
    assert watch.fresh(5) == []


def test_a_last_try_that_does_not_return_does_not_count_for_ever() -> None:
    disk, clock = SimulatedDisk(), Clock()
    watch = Watch(disk, Path("/job"), 7, clock)
    seen = []
    for beat in range(200):
        clock.at = float(beat)
        put(disk, mark(beat))
        seen.append(bool(watch.fresh(5)))
    assert seen.index(False) == 60 + GRACE_SECONDS + 1


def test_marks_of_others_and_strays_are_left_alone() -> None:
    disk, folder = SimulatedDisk(), Path("/job/control/retrying")
    watch = Watch(disk, Path("/job"), 7, Clock())
    names = ["6-1-a-0.json", "7-1-a-0.json", "8-1-a-0.json", ".DS_Store", "notes", "6.end", "7.end", "8.end", "٣.end"]
    disk.make_folder(folder)
    for name in names:
        disk.replace(folder / name, b"{")
    assert watch.fresh(1) == []
    watch.clear()
    assert disk.names(folder) == sorted({".DS_Store", "notes", "8-1-a-0.json", "8.end", "٣.end"})
