"""At-least-once by acknowledging: that event is replayed, later, and in the end it is a dead letter."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crashes import Crash, CrashAt
from delivery.failing_jobs import Calls, Erratic, Finite, Fountain, Held, Item, Result, Sometimes, Spreading, Twice
from inbox_files import too_many
from sample import run_job
from streamwork import Job, ListSource, SqliteSink, WrongUse, shuffle
from streamwork.delivery import Acknowledger, DeadLetters, Outcome, Trouble, Waiting
from streamwork.delivery.text import from_text
from streamwork.epoch.redelivery import Redelivery
from streamwork.testing import Crash as CrashMarker
from streamwork.testing import Lose, SetClock, run
from streamwork.world import RealDisk

NONE = SqliteSink("never-opened.db", "t")
ITEMS = [Item(f"{i:03d}") for i in range(60)]


def job(operator: Any, **chosen: Any) -> Job:
    made = Job("items", semantics="at-least-once", tracking="acknowledge", **{"retry_after": "1s", **chosen})
    made.source(ListSource([], Item), id="items").apply(operator, id="work").sink(NONE, id="out")
    return made


# ---- the policy -----------------------------------------------------------------------------------------------------


def waiting(name: str, attempts: int = 0) -> Waiting:
    return Waiting(name, "s", 0, "{}", attempts, 0, False, "", "")


@given(st.integers(1, 6), st.floats(0, 5), st.lists(st.booleans(), min_size=1, max_size=12))
def test_an_event_that_keeps_failing_is_given_up_after_so_many_attempts(
    most: int, delay: float, fails: list[bool]
) -> None:
    policy, now, left = Acknowledger(most, delay, 30), 0, ()
    for attempts, failed in enumerate(fails, start=1):
        again = policy.due(left, now, 100)
        troubles = [Trouble(0, "work", "no")] if failed else []
        one = again[0] if again else waiting("a")
        outcome = policy.resolve(attempts, now, left, again, troubles, (), {0: one}.__getitem__)
        left, letters = outcome.waiting, outcome.letters
        if not failed:
            assert not left and not letters
            return
        if attempts == most:
            assert not left and [letter.attempts for letter in letters] == [most]
            return
        (kept,) = left
        assert kept.attempts == attempts and kept.due == now + policy.delay(attempts)
        assert kept.due - now >= round(delay * 1_000_000), "never sooner than asked for"
        assert not policy.due(left, kept.due - 1, 100) or kept.due == 0
        now = kept.due


def test_the_delay_doubles_and_ends() -> None:
    policy = Acknowledger(99, 1, 30)
    assert [policy.delay(n) // 1_000_000 for n in (1, 2, 3, 4, 20, 70)] == [1, 2, 4, 8, 600, 600]


def test_no_wait_is_longer_than_its_delay_whatever_the_clock_says() -> None:
    """Times that were stored may lie far ahead: the clock was set back since."""
    policy, hour = Acknowledger(99, 1, 30), 3600 * 1_000_000
    ahead = msgspec.structs.replace(waiting("a", 3), due=hour)
    pending = msgspec.structs.replace(waiting("b"), due=hour, pending=True)
    soon = msgspec.structs.replace(waiting("c", 3), due=1_000_000)
    assert [one.due for one in policy.bounded([ahead, pending, soon], now=0)] == [4_000_000, 30_000_000, 1_000_000]


# ---- stories --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("crash", [(), (Lose(),), (CrashMarker(),)], ids=["running", "instance lost", "restarted"])
@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
@pytest.mark.proves("the clock set by an hour while a failed event waits")
def test_a_clock_that_is_set_holds_no_event_back(jump: float, crash: tuple[Any, ...]) -> None:
    """A fails at its first two attempts, and the clock is set by an hour while it waits."""
    calls = Calls(failing={"A": 2})
    given = [Item("A"), Item("B"), SetClock(jump), *crash, Item("C"), Item("D")]
    result = run(job(calls, max_attempts=5), {"items": given}, epoch_events=1)
    assert sorted(row.name for row in result.outputs["out"]) == ["A", "B", "C", "D"]
    assert result.seconds < 15, "1 s and 2 s, and what the epochs take"
    if result.lives == 1:  # after a restart nothing but the clock can tell how long an event has waited
        assert result.seconds >= 3


def test_a_fails_once() -> None:
    """A (failed), B, C, A."""
    calls = Calls(failing={"A": 1})
    result = run(job(calls), {"items": [Item("A"), Item("B"), Item("C")]}, epoch_events=3)
    assert Calls.log == ["A failed", "B", "C", "A"]
    assert [row.name for row in result.outputs["out"]] == ["B", "C", "A"]
    assert result.counts["work"] | {"keys": 0} == {
        "processed": 4, "delivered": 3, "ended_early": 0, "dropped": 0, "dead_letters": 0, "failed": 1, "replayed": 1,
        "retried": 0, "late": 0, "keys": 0
    }  # fmt: skip
    assert [result.counts[name]["replayed"] for name in ("items", "work", "out")] == [1, 1, 1]


def test_what_came_again_is_counted_by_every_component_that_it_comes_to() -> None:
    """Through exchanges, too: A comes twice to the first, and once, as two, to those behind the one that failed."""
    made = Job("again", semantics="at-least-once", tracking="acknowledge", retry_after="1s")
    items = made.source(ListSource([], Item), id="items").filter(lambda item: True, id="first")
    failing = items.apply(Calls(failing={"A": 1}), id="work", grouping=shuffle(), parallelism=2)
    failing.apply(Spreading(), id="twice", grouping=shuffle(), parallelism=2).sink(NONE, id="out")
    result = run(made, {"items": [Item("A"), Item("B"), Item("C")]}, epoch_events=3)
    counted = {name: (numbers["processed"], numbers["replayed"]) for name, numbers in result.counts.items()}
    assert counted == {"items": (4, 1), "first": (4, 1), "work": (4, 1), "twice": (3, 1), "out": (6, 2)}


def test_an_invalid_transaction_ends_its_journey_and_is_acknowledged() -> None:
    calls = Calls(invalid={"B"})
    result = run(job(calls), {"items": [Item("A"), Item("B"), Item("C")]}, epoch_events=3)
    assert Calls.log == ["A", "B invalid", "C"], "nothing is replayed"
    assert result.counts["work"]["ended_early"] == 1


def test_an_event_that_always_fails_becomes_a_dead_letter() -> None:
    calls = Calls(failing={"A": 99})
    result = run(job(calls, max_attempts=3), {"items": [Item("A"), Item("B")]}, epoch_events=2)
    assert Calls.log == ["A failed", "B", "A failed", "A failed"]
    (letter,) = result.letters
    assert (letter.component, letter.attempts, letter.to, letter.error) == ("work", 3, "items", "ValueError: not now")
    assert from_text(Item, letter.event) == Item("A")
    counted = result.counts["work"]
    assert (counted["failed"], counted["dead_letters"], counted["delivered"]) == (2, 1, 1)


def test_attempts_and_waiting_times_survive_a_restart() -> None:
    whole = run(job(Calls(failing={"A": 99}), max_attempts=4), {"items": [Item("A"), Item("B")]}, epoch_events=2)
    for step in range(1, whole.steps + 1):
        result = run(
            job(Calls(failing={"A": 99}), max_attempts=4),
            {"items": [Item("A"), Item("B")]},
            crash_at=step,
            epoch_events=2,
        )
        assert [letter.attempts for letter in result.letters] == [4], step
        assert Calls.log.count("A failed") in (4, 5), "one attempt more where the machine died before it was recorded"


def test_fail_ends_the_call_and_tells_why() -> None:
    calls = Calls(refusing={"A"})
    result = run(job(calls, max_attempts=1), {"items": [Item("A"), Item("B")]}, epoch_events=2)
    assert [letter.error for letter in result.letters] == ["please not"]
    assert [row.name for row in result.outputs["out"]] == ["B"], "what it had emitted is taken back"


def test_an_event_without_acknowledging_has_no_id() -> None:
    made = Job("items", semantics="at-least-once")
    made.source(ListSource([], Item), id="items").apply(Held(), id="work").sink(NONE, id="out")
    with pytest.raises(WrongUse, match="SW-EVENT-ID"):
        run(made, {"items": [Item("A")]})


def test_acknowledged_by_hand_later_or_never() -> None:
    """C acknowledges A and itself; B is never acknowledged, so it comes again when its time is over, and is given up."""
    Held.log.clear()
    result = run(
        job(Held(), ack_timeout="2s", max_attempts=2), {"items": [Item("A"), Item("B"), Item("C")]}, epoch_events=1
    )
    assert Counter(Held.log) == {"A": 1, "B": 2, "C": 1}
    (letter,) = result.letters
    assert from_text(Item, letter.event) == Item("B")
    assert letter.error == "not acknowledged within 2 s" and letter.attempts == 2


# ---- any graph, any failures, any crashes ---------------------------------------------------------------------------


def spread_job(rng: random.Random) -> Job:
    """Fan-out to two branches through exchanges, fan-in, and failures in each of them."""
    made = Job(
        "spread", semantics="at-least-once", tracking="acknowledge", parallelism=rng.randint(1, 3), max_attempts=3
    )
    items = made.source(ListSource([], Item), id="items")
    left = items.apply(Sometimes(0.2), key="name", id="left")
    right = items.apply(Erratic(0.2), id="right", grouping=None if rng.random() < 0.5 else shuffle())
    both = left.union(right).apply(Spreading(), id="spread").apply(Twice(0.1), key="name", id="twice")
    both.sink(NONE, id="out")
    return made


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32), crashes=st.lists(st.integers(1, 400), max_size=3))
def test_every_event_is_done_or_a_dead_letter(seed: int, crashes: list[int]) -> None:
    rng = random.Random(seed)
    result = run(spread_job(rng), {"items": ITEMS}, seed=seed, crash_at=crashes, partitions=rng.randint(1, 3))
    names = Counter(row.name for row in result.outputs["out"])
    dead = Counter(from_text(Item, letter.event).name for letter in result.letters)
    wanted = {item.name for item in ITEMS}
    # Both branches give each event twice: done means that each of the four has come at least once.
    done = {(row.name, row.by) for row in result.outputs["out"]}
    for name in wanted - set(dead):
        assert {(name, by) for by in ("left-0", "left-1", "right-0", "right-1")} <= done, (name, seed, crashes)
    assert set(names) <= wanted and set(dead) <= wanted
    assert all(letter.attempts == 3 for letter in result.letters)
    for name, counted in result.counts.items():
        lost = counted["dropped"] + counted["dead_letters"] + counted["failed"]
        assert counted["processed"] == counted["delivered"] + counted["ended_early"] + lost, name


# ---- hosts ----------------------------------------------------------------------------------------------------------


def test_on_every_host(tmp_path: Path, mode: str) -> None:
    made = Job(
        "items", semantics="at-least-once", tracking="acknowledge", retry_after=0, parallelism=2, checkpoint_every=0
    )
    items = made.source(ListSource(ITEMS, Item, max_events=25), id="items", parallelism=1)
    items.apply(Sometimes(0.3), key="name", id="work").sink(SqliteSink(tmp_path / "out.db", "out"), id="out")
    run_job(made, tmp_path / "root", mode)
    done, dead = set(written(tmp_path / "out.db")), letters_in(tmp_path / "root" / "items")
    assert done | dead == {item.name for item in ITEMS}
    assert dead == {item.name for item in ITEMS if Sometimes.never(item.name, 0.3)} != set()
    assert not done & dead


def written(database: Path) -> list[str]:
    with closing(sqlite3.connect(database)) as db:
        return [name for (name,) in db.execute("SELECT name FROM out")]


def letters_in(folder: Path) -> set[str]:
    return {from_text(Item, letter.event).name for letter in DeadLetters(RealDisk(), folder).all()}


def test_a_row_that_the_sink_refuses_fails_its_event(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "out.db")) as db:
        db.execute("CREATE TABLE out (name TEXT CHECK (name <> '007'), by TEXT)")
    made = Job("items", semantics="at-least-once", tracking="acknowledge", retry_after=0, max_attempts=2)
    items = made.source(ListSource(ITEMS, Item), id="items").map(lambda item: Result(item.name), to=Result)
    items.sink(SqliteSink(tmp_path / "out.db", "out"), id="out")
    run_job(made, tmp_path / "root", checkpoint_every=0)
    assert sorted(written(tmp_path / "out.db")) == [item.name for item in ITEMS if item.name != "007"]
    (letter,) = DeadLetters(RealDisk(), tmp_path / "root" / "items").all()
    assert (letter.component, letter.attempts, letter.to) == ("out", 2, "items")


# ---- sources without offsets ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", range(24))
def test_what_a_source_without_offsets_gave_is_not_lost(tmp_path: Path, steps: int) -> None:
    """It gives each event once, whatever happens to the job."""
    Fountain.left[:] = ITEMS

    def live(watcher: CrashAt) -> None:
        made = Job("items", semantics="at-least-once", tracking="acknowledge", retry_after=0, checkpoint_every=0)
        made.source(Finite(), id="items").map(lambda item: Result(item.name), to=Result).sink(
            SqliteSink(tmp_path / "out.db", "out"), id="out"
        )
        run_job(made, tmp_path / "root", watcher=watcher)

    with pytest.raises(Crash):
        live(CrashAt(steps))
    live(CrashAt(10**9))
    out = Counter(written(tmp_path / "out.db"))
    assert set(out) == {item.name for item in ITEMS}
    assert sum(count > 1 for count in out.values()) <= Fountain.max_events, "one epoch at most comes again"
    assert not too_many(tmp_path / "root" / "items", "items"), "all of it is done with"


# ---- negative controls ----------------------------------------------------------------------------------------------


def test_a_forgetful_acknowledger_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Acknowledger, "resolve", lambda *_: Outcome(()))
    with pytest.raises(AssertionError):
        test_every_event_is_done_or_a_dead_letter.hypothesis.inner_test(1, [])  # type: ignore[attr-defined]


def test_without_the_inbox_what_a_source_gave_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Redelivery, "_orphans", lambda self: [])
    lost = 0
    for steps in range(24):
        (tmp_path / str(steps)).mkdir()
        try:
            test_what_a_source_without_offsets_gave_is_not_lost(tmp_path / str(steps), steps)
        except AssertionError:
            lost += 1
    assert lost


def test_a_source_without_offsets_and_an_event_that_is_never_acknowledged(tmp_path: Path) -> None:
    """Nothing new comes, and still its time is over one day."""
    Fountain.left[:] = [Item("B")]
    made = Job(
        "items", semantics="at-least-once", tracking="acknowledge", ack_timeout="50ms", retry_after=0, max_attempts=2
    )
    made.source(Finite(), id="items").apply(Held(), id="work").sink(SqliteSink(tmp_path / "out.db", "out"), id="out")
    run_job(made, tmp_path / "root", checkpoint_every=0)
    assert letters_in(tmp_path / "root" / "items") == {"B"}
    assert Counter(written(tmp_path / "out.db")) == {"B": 2}
