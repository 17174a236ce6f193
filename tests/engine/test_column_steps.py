"""Steps on columns: filters keep columns, batches that name rows keep their order, failing rows are found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from engine.one_by_one import NONE, Item, Marking, Numbering, Timing, random_items
from engine.table_jobs import Passing
from engine.test_waves import pieces_of, results
from streamwork import Job, ListSource, Operator, Retry, WrongUse, field
from streamwork.components.columns import Columns, to_batch
from streamwork.engine.chain import Chain
from streamwork.engine.steps.step import Step
from streamwork.engine.steps.where_step import WhereStep
from streamwork.errors import JobFailed
from streamwork.flow.batch import Batch
from streamwork.flow.lineage import Lineage
from streamwork.testing import run

CALLS: list[int] = []


class Naming(Operator[Item, Item]):
    """Each row twice, named."""

    names_rows = True

    def apply_batch(self, batch: pa.RecordBatch, collector: Any) -> None:
        CALLS.append(batch.num_rows)
        twice = np.repeat(np.arange(batch.num_rows), 2)
        collector.emit_batch(batch.take(pa.array(twice)), rows=twice)


class NotNaming(Naming):
    names_rows = False

    def apply_batch(self, batch: pa.RecordBatch, collector: Any) -> None:
        CALLS.append(batch.num_rows)
        collector.emit_batch(batch.take(pa.array(np.repeat(np.arange(batch.num_rows), 2))))


class Forgetting(Naming):
    def apply_batch(self, batch: pa.RecordBatch, collector: Any) -> None:
        collector.emit_batch(batch)


def before_timers(operator: Operator[Item, Item]) -> Job:
    job = Job("named")
    source = job.source(ListSource([], Item), id="in", time="at")
    both = source.apply(operator, id="columns").union(source.apply(Marking("m"), id="m"))
    both.apply(Timing("t"), key="key", id="t").apply(Numbering("n"), id="n").sink(NONE, id="out")
    return job


def test_batches_that_name_rows_need_not_be_cut_into_rows() -> None:
    pieces = pieces_of(3, 40, 20)
    found = {}
    for operator in (Naming(), NotNaming()):
        CALLS.clear()
        found[type(operator)] = results(Chain, before_timers(operator).graph(), pieces)
        assert max(CALLS) == (1 if isinstance(operator, NotNaming) else max(len(events) for _, _, events, _ in pieces))
    assert found[Naming] == found[NotNaming]


def test_an_operator_that_names_rows_names_them_always() -> None:
    with pytest.raises(JobFailed, match="names_rows = True, but emit_batch has no rows="):
        run(before_timers(Forgetting()), {"in": random_items(1, 5)})


class Failing(Operator[Item, Item]):
    pure = True

    def __init__(self, failures: int = 10**6) -> None:
        self.failures = failures

    def setup_instance(self, instance: Any) -> None:
        self.left = self.failures

    def apply_batch(self, batch: pa.RecordBatch, collector: Any) -> None:
        collector.emit_batch(batch)
        if any(number % 7 == 3 for number in batch["number"].to_pylist()) and self.left > 0:
            self.left -= batch.num_rows == 1
            raise ValueError("a seven")


class FailingTable(Passing):
    __init__ = Failing.__init__  # type: ignore[assignment]
    setup_instance = Failing.setup_instance  # type: ignore[assignment]

    def apply_rows(self, rows: Any, state: Any, tables: Any, collector: Any) -> None:
        Failing.apply_batch(self, rows.batch, collector)  # type: ignore[arg-type]


def failing_job(operator: Any, on_error: Any) -> Job:
    job = Job("failing")
    source = job.source(ListSource([], Item), id="in", time="at")
    source.apply(operator, id="f", on_error=on_error).sink(NONE, id="out")
    return job


@pytest.mark.parametrize("kind", [Failing, FailingTable])
@pytest.mark.parametrize("on_error", ["drop", "dead-letter", Retry(times=2, first=1, then="drop")], ids=str)
def test_failing_rows_are_found_and_set_aside(kind: Any, on_error: Any) -> None:
    items = random_items(5, 40)
    found = run(failing_job(kind(), on_error), {"in": items}, seed=1, epoch_events=11)
    good = [item.number for item in items if item.number % 7 != 3]
    assert [item.number for item in found.outputs["out"]] == good
    counts = found.counts["f"]
    lost = counts["dropped"] + counts["dead_letters"]
    assert (counts["processed"], lost) == (40, 40 - len(good))
    assert counts["processed"] == counts["delivered"] + counts["ended_early"] + lost
    assert (counts["retried"] > 0) == isinstance(on_error, Retry)


@pytest.mark.parametrize("kind", [Failing, FailingTable])
def test_a_row_that_succeeds_when_it_is_retried_stays(kind: Any) -> None:
    items = random_items(5, 40)
    found = run(failing_job(kind(failures=3), Retry(times=5, first=1)), {"in": items}, seed=1, epoch_events=11)
    assert [item.number for item in found.outputs["out"]] == [item.number for item in items]
    assert found.counts["f"]["retried"] == 3


def test_under_acknowledging_a_failing_row_is_replayed_alone() -> None:
    job = Job("acks", semantics="at-least-once", tracking="acknowledge", max_attempts=5, retry_after=0)
    source = job.source(ListSource([], Item), id="in", time="at")
    source.apply(FailingTable(failures=2), id="f").sink(NONE, id="out")
    items = random_items(5, 20)
    found = run(job, {"in": items}, seed=1, epoch_events=20)
    assert sorted(item.number for item in found.outputs["out"]) == [item.number for item in items]
    assert (found.counts["f"]["failed"], found.counts["f"]["replayed"]) == (2, 2)


@pytest.mark.parametrize("kind", [Failing, FailingTable])
def test_the_error_of_a_job_names_the_failing_row(kind: Any) -> None:
    with pytest.raises(JobFailed, match=r"SW-OPERATOR-FAILED.*a seven.*number=3") as failed:
        run(failing_job(kind(), "fail"), {"in": random_items(5, 40)}, epoch_events=20)
    assert failed.value.component == "f"


class NotPure(Failing):
    pure = False


def test_what_is_not_pure_runs_under_fail_only() -> None:
    with pytest.raises(WrongUse, match="(?s)SW-OPERATOR-BATCH.*pure = True"):
        failing_job(NotPure(), "drop")
    with pytest.raises(JobFailed, match="a batch of 20 events"):
        run(failing_job(NotPure(), "fail"), {"in": random_items(5, 20)}, epoch_events=20)


def where_step() -> tuple[Step, Batch]:
    job = Job("where", semantics="at-most-once")
    source = job.source(ListSource([], Item), id="in", time="at")
    source.where(field("number") > 3, id="where").sink(NONE, id="out")
    graph = job.graph()
    step = Chain(graph)._steps["where"]
    step.set_up()
    items = random_items(5, 10)
    return step, Batch(Columns(Item, to_batch(Item, items, "in")), Lineage(watermarks=np.arange(10)))


@pytest.mark.parametrize("keeps_lineage", [True, False])
def test_a_filter_by_expression_keeps_columns_and_lineage(keeps_lineage: bool) -> None:
    step, batch = where_step()
    assert isinstance(step, WhereStep) and step.node.on_error == "drop"
    step.keeps_lineage = keeps_lineage
    out = step.process(batch)["main"]
    assert isinstance(out.given, Columns) and out.given._events is None
    assert out.given.batch["number"].to_pylist() == [4, 5, 6, 7, 8, 9]
    assert (None if out.lineage is None else out.lineage.watermarks.tolist()) == (
        [4, 5, 6, 7, 8, 9] if keeps_lineage else None
    )
    assert (step.processed, step.delivered) == (10, 6)
    as_objects = step.process(Batch(batch.events, batch.lineage))["main"]
    assert as_objects.events == out.events
