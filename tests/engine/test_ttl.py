"""`ttl=`: keys that no event touches are forgotten, wherever the input is cut and after crashes; `delete_timer`."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.one_by_one import NONE, START, Count, Item, marked, random_items
from engine.test_idle_and_ahead import item
from streamwork import Job, KeyedOperator, ListSource, WrongUse
from streamwork.testing import run
from streamwork.testing.markers import Pause


class Counting(KeyedOperator[Item, Count, Item]):
    def apply(self, event: Item, state: Count, collector: Any) -> None:
        state.count += 1
        collector.emit(marked(event, str(state.count)))


class Columnar(Counting):
    def apply_batch(self, batch: Any, state: Any, collector: Any) -> None: ...


def ttl_job(ttl: Any, clock: Any = "event", operator: Any = None, time: str | None = "at", **more: Any) -> Job:
    job = Job("ttl", checkpoint_every=0)
    source = job.source(ListSource([], Item), id="in", time=time, parallelism=1)
    source.apply(operator or Counting(), key="key", id="n", ttl=ttl, ttl_clock=clock, **more).sink(NONE, id="out")
    return job


def counted(found: Any) -> list[tuple[int, str]]:
    return sorted((one.number, one.trace) for one in found.outputs["out"])


def model(events: list[Item], ttl: int) -> list[tuple[int, str]]:
    """One event after another: a key is forgotten when event time has advanced by `ttl` since the advance behind its last event."""
    found, counts, due = [], dict[str, int](), dict[str, Any]()
    watermark = None
    for event in events:
        counts[event.key] = counts.get(event.key, 0) + 1
        due[event.key] = None
        found.append((event.number, str(counts[event.key])))
        if watermark is None or event.at > watermark:
            watermark = event.at
            due = {key: watermark + timedelta(seconds=ttl) if at is None else at for key, at in due.items()}
            for key in [key for key, at in due.items() if at <= watermark]:
                del counts[key], due[key]
    return sorted(found)


@given(
    st.integers(0, 10**6),
    st.sampled_from([1, 2, 5, 30]),
    st.integers(1, 30),
    st.integers(1, 90),
    st.sampled_from([1, 3]),
)
@settings(max_examples=10, deadline=None)
def test_keys_are_forgotten_as_a_simple_model_says(seed: int, ttl: int, cut: int, crash: int, wide: int) -> None:
    events = random_items(seed, 40)
    found = run(ttl_job(f"{ttl}s", parallelism=wide), {"in": events}, seed, crash_at=crash, epoch_events=cut)
    assert counted(found) == model(events, ttl)


def test_the_model_notices_a_ttl_that_is_ignored() -> None:
    """The negative control."""
    events = random_items(1, 40)
    assert counted(run(ttl_job(None), {"in": events})) != model(events, 2)


def test_a_key_that_is_touched_in_time_stays() -> None:
    events = [item(0, 0), item(1, 8), item(2, 16), item(3, 40, "b"), item(4, 41)]
    assert counted(run(ttl_job("10s"), {"in": events}, epoch_events=2)) == [
        (0, "1"),
        (1, "2"),
        (2, "3"),
        (3, "1"),
        (4, "1"),
    ]


def test_processing_time_forgets_too_and_wakes_the_job() -> None:
    events = [item(0, 0), item(1, 0), Pause(60), item(2, 0, "b"), item(3, 0, "b"), item(4, 0, "b"), item(5, 0)]
    found = run(ttl_job("30s", "processing", time=None), {"in": events}, epoch_events=1)
    assert counted(found)[-1] == (5, "1"), "a was forgotten in the pause"
    assert counted(run(ttl_job("2min", "processing", time=None), {"in": events}, epoch_events=1))[-1] == (5, "3")


def test_forgotten_keys_leave_the_stored_state() -> None:
    """Time counts from the advance behind the last event: that of k19 is at 50 s."""
    events = [item(number, 0, f"k{number}") for number in range(20)] + [item(20, 50, "z"), item(21, 60, "z")]
    found = run(ttl_job("10s"), {"in": events}, epoch_events=5)
    assert set(found.states["n"]) == {"z"}
    assert set(run(ttl_job("10min"), {"in": events}, epoch_events=5).states["n"]) == {f"k{n}" for n in range(20)} | {
        "z"
    }


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"ttl": "10s", "time": None}, "SW-JOB-TIME"),
        ({"ttl": 0}, "SW-JOB-SETTING"),
        ({"ttl": "10s", "clock": "wall"}, "SW-JOB-SETTING"),
        ({"ttl": "10s", "operator": Columnar()}, "SW-JOB-SETTING"),
    ],
)
def test_what_cannot_be_is_refused(how: Any, code: str) -> None:
    with pytest.raises(WrongUse, match=code):
        ttl_job(**how).graph()


class Alarm(KeyedOperator[Item, Count, Item]):
    """An alarm 5 s behind each key's first event, unless a second one deletes it."""

    def apply(self, event: Item, state: Count, collector: Any) -> None:
        state.count += 1
        first = START + timedelta(seconds=5)
        if state.count == 1:
            collector.set_timer(first)
        elif event.number % 2:
            collector.delete_timer(first)

    def on_timer(self, key: str, at: Any, state: Count, collector: Any) -> None:
        collector.emit(Item(key, state.count, at))


@pytest.mark.parametrize("cut", [1, 2, 10])
@pytest.mark.parametrize("crash", [None, 12, 25, 38])
def test_a_timer_that_is_deleted_does_not_fire(cut: int, crash: int | None) -> None:
    job = Job("alarm", checkpoint_every=0)
    job.source(ListSource([], Item), id="in", time="at").apply(Alarm(), key="key", id="n").sink(NONE, id="out")
    events = [item(0, 0, "a"), item(0, 0, "b"), item(1, 1, "a"), item(2, 2, "b"), item(4, 9, "c")]
    found = run(job, {"in": events}, seed=random.Random(cut).randrange(99), crash_at=crash, epoch_events=cut)
    assert [one.key for one in found.outputs["out"]] == ["b", "c"]
