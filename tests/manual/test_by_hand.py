"""State by hand is the fold of the input, wherever the job crashes, as long as sources go back far enough."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manual.hand_jobs import Payment, PerCard, Total, Totals, build, expected, payments
from streamwork import (
    CallableSink,
    Event,
    Job,
    KeyedCollector,
    KeyedOperator,
    ListSource,
    Refused,
    StreamworkError,
    WrongUse,
)
from streamwork.components import Instance
from streamwork.delivery.text import from_text
from streamwork.manual import MemoryStore, RewindingSource, by_hand
from streamwork.testing import Result, run

FAR = 10_000


def ticking(step: float = 1.0) -> Any:
    """A clock that advances with every look."""
    counter = itertools.count()
    return lambda: next(counter) * step


def saved_totals(store: MemoryStore) -> dict[str, tuple[int, int]]:
    """By card, over all instances."""
    found = {}
    for one in store.all():
        if one.component == "per-card":
            _, saved = store.begin(one.component, one.instance, one.instances)
            for name, text in saved.records.items():
                totals = from_text(Totals, text.decode())
                assert name.decode() not in found, "two instances keep one card"
                found[name.decode()] = totals.count, totals.total
    return found


def folded(events: list[Payment]) -> dict[str, tuple[int, int]]:
    last = {}
    for total in expected(events):
        last[total.card] = (total.count, total.total)
        if next(e.amount for e in events if e.number == total.number) == 0:
            del last[total.card]
    return last


def emitted(result: Result) -> set[Total]:
    return set(result.outputs["out"])


@given(
    seed=st.integers(0, 2**20),
    count=st.integers(1, 60),
    parallelism=st.integers(1, 3),
    every=st.sampled_from([0, 3, 10, FAR]),
    source_every=st.sampled_from([0, 3, FAR]),
    crash_at=st.lists(st.integers(1, 150), max_size=3),
)
@settings(max_examples=60)
def test_state_is_the_fold_of_the_input_wherever_the_job_crashes(
    seed: int, count: int, parallelism: int, every: float, source_every: float, crash_at: list[int]
) -> None:
    events, store = payments(count, seed), MemoryStore()
    job = build(
        events,
        store,
        rewind=FAR,
        every=every,
        source_every=source_every,
        parallelism=parallelism,
        clock=ticking(),
    )
    result = run(job, seed=seed, crash_at=crash_at, epoch_events=7)
    finish(job)
    assert saved_totals(store) == folded(events)
    assert emitted(result) <= set(expected(events))


def finish(job: Job) -> None:
    """The simulator does not close operators: one more start, elsewhere, stores what is left."""
    with tempfile.TemporaryDirectory() as folder:
        job.run(mode="local", root=folder, until_caught_up=True)


def test_without_going_back_events_are_missing() -> None:
    """Negative control: a restart that begins where the source has stored leaves out what no operator has stored."""
    events, wrong = payments(60, 3), 0
    for step in range(20, 90, 3):
        store = MemoryStore()
        job = build(events, store, rewind=0, every=FAR, on_gap="skip", clock=ticking())
        run(job, seed=step, crash_at=step, epoch_events=7)
        finish(job)
        wrong += saved_totals(store) != folded(events)
    assert wrong > 5


def crashed(store: MemoryStore, events: list[Payment], **options: Any) -> Job:
    """A job that has stopped in the middle, and been started again without what an operator has not stored."""
    job = build(events[: len(events) // 2], store, rewind=FAR, every=FAR, clock=ticking(0.001), **options)
    run(job)  # the simulator does not close operators: they have stored nothing, the source everything
    return build(events, store, rewind=0, every=0, clock=ticking(), **options)


def test_a_restart_behind_a_stored_offset_is_refused_and_says_what_to_do() -> None:
    events, store = payments(40, 1), MemoryStore()
    with pytest.raises(Refused, match=r"per-card\[0\] has stored its state up to offset 0 of payments/0") as caught:
        finish(crashed(store, events))
    assert caught.value.code == "SW-MANUAL-GAP" and "raise rewind=" in caught.value.action


def test_a_restart_may_go_back_as_far_as_an_operator_needs() -> None:
    events, store = payments(40, 1), MemoryStore()
    crashed(store, events)
    job = build(events, store, rewind=0, on_gap="reread", clock=ticking())
    finish(job)
    assert saved_totals(store) == folded(events)


def test_a_gap_that_is_accepted_is_recorded() -> None:
    events, store = payments(40, 1), MemoryStore()
    crashed(store, events)
    finish(build(events, store, rewind=0, on_gap="skip", clock=ticking()))
    assert saved_totals(store) == folded(events[20:])
    assert gaps(store) == [("per-card", 0, 0, 20)]


def gaps(store: MemoryStore) -> list[tuple[str, int, int, int]]:
    source = RewindingSource(ListSource([], event=Payment), store, rewind=0)
    source.setup_instance(Instance(0, 1, "payments"))
    return [(g.component, g.instance, g.stored, g.begun) for found in source.gaps().values() for g in found]


def test_input_that_is_gone_is_a_gap() -> None:
    events, store = payments(40, 1), MemoryStore()
    crashed(store, events)
    with pytest.raises(Refused, match="the events between are gone") as caught:
        finish(build(Kept(events, 30), store, rewind=FAR, on_gap="reread"))
    assert caught.value.code == "SW-MANUAL-GAP" and 'on_gap="skip"' in caught.value.action


class Kept(ListSource[Payment]):
    """A list whose first events were removed."""

    def __init__(self, events: list[Payment], first: int) -> None:
        super().__init__(events)
        self.first = first

    def earliest(self, partitions: Sequence[str]) -> Mapping[str, int]:
        return dict.fromkeys(partitions, self.first)


def test_an_older_process_cannot_store() -> None:
    store = MemoryStore()
    older, _ = store.begin("per-card", 0, 1)
    store.begin("per-card", 0, 1)
    with pytest.raises(Refused, match="was started again elsewhere") as caught:
        store.save(older, {}, {})
    assert caught.value.code == "SW-MANUAL-FENCED"


def test_another_parallelism_is_refused() -> None:
    events, store = payments(20, 1), MemoryStore()
    finish(build(events, store, parallelism=2, rewind=FAR))
    with pytest.raises(StreamworkError, match="has stored its state as 2 instances, and has 1 now") as caught:
        finish(build(events, store, rewind=FAR))
    assert caught.value.code == "SW-MANUAL-INSTANCES"


def test_two_events_of_one_event_are_refused() -> None:
    store = MemoryStore()
    job = Job("twice", semantics="at-most-once")
    stream = job.source(RewindingSource(ListSource(payments(3, 1)), store, rewind=9), id="payments")
    twice = stream.flat_map(lambda event: [event, event], to=Payment)
    by_hand(twice, PerCard(), key="card", store=store, id="per-card").sink(CallableSink(print), id="out")
    with pytest.raises(StreamworkError, match=r"offset 0 of payments/0 came to per-card behind offset 0"):
        job.run(root=Path(tempfile.mkdtemp()), until_caught_up=True, on_error={"per-card": "fail"})


@pytest.mark.parametrize("mode", ["microbatch", "batch"])
def test_modes_that_may_replace_objects_are_refused(mode: Any, tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="payments keeps its state by hand") as caught:
        build(payments(3, 1), MemoryStore()).run(mode=mode, root=tmp_path)
    assert caught.value.code == "SW-JOB-MODE"


class Plain(Event):
    number: int


class Timed(KeyedOperator[Payment, Totals, Payment]):
    def on_timer(self, key: Any, at: Any, state: Totals, collector: KeyedCollector) -> None: ...


class Placeless(KeyedOperator[Plain, Totals, Plain]):
    def apply(self, event: Plain, state: Totals, collector: KeyedCollector) -> None: ...


def test_what_cannot_be_kept_by_hand_is_refused_when_the_job_is_built() -> None:
    store = MemoryStore()
    with pytest.raises(WrongUse, match="has no place for its partition and offset"):
        RewindingSource(ListSource([Plain(1)]), store, rewind=1)  # type: ignore[type-var]
    stream = Job("one").source(RewindingSource(ListSource(payments(1, 1)), store, rewind=1), id="payments")
    with pytest.raises(WrongUse, match="uses timers or apply_batch"):
        by_hand(stream, Timed(), key="card", store=store, id="timed")
    with pytest.raises(WrongUse, match="takes Plain, which has no partition and offset"):
        by_hand(stream, Placeless(), key="number", store=store, id="placeless")  # type: ignore[type-var]
    for rewind in (-1, True, "soon"):
        with pytest.raises(WrongUse):
            RewindingSource(ListSource(payments(1, 1)), store, rewind=rewind)
