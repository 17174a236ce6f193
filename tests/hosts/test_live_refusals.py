"""What live mode, and isolated components, refuse before anything is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from frames import counting_job, views, write_views
from live_jobs import Counting, Order
from streamwork import Event, Fixed, Job, ListSource, Refused, SqliteSink, StreamworkError, WrongUse, count
from streamwork.hosts.spark_gang import SparkLauncher


class InWindow(Event):
    shop: str
    orders: int


def isolated(semantics: Any = "at-most-once", tracking: Any = None, **options: Any) -> Job:
    job = Job("isolated", semantics=semantics, **({"tracking": tracking} if tracking else {}))
    orders = job.source(ListSource([], Order), id="orders")
    orders.apply(Counting(), key="shop", id="counting", **options).sink(SqliteSink("unused.db", "out"), id="out")
    return job


@pytest.mark.parametrize("options", [{"isolated": True}, {"deadline": "1s"}])
@pytest.mark.parametrize(
    ("semantics", "tracking"),
    [("exactly-once", None), ("at-least-once", "checkpoint"), ("at-least-once", "acknowledge")],
)
def test_an_isolated_component_is_for_at_most_once(
    semantics: str, tracking: str | None, options: dict[str, Any]
) -> None:
    with pytest.raises(StreamworkError, match="counting is isolated") as refused:
        isolated(semantics, tracking, **options).graph()
    assert refused.value.code == "SW-JOB-SEMANTICS"


def test_a_deadline_implies_isolation() -> None:
    node = isolated(deadline="250ms").graph()["counting"]
    assert node.isolated and node.deadline == 0.25
    assert not isolated().graph()["counting"].isolated


@pytest.mark.parametrize("deadline", [0, "0ms", -1, "soon"])
def test_a_deadline_is_a_duration_above_zero(deadline: Any) -> None:
    with pytest.raises(WrongUse) as refused:
        isolated(deadline=deadline)
    assert refused.value.code == "SW-JOB-SETTING"
    windows = Job("windows", semantics="at-most-once").source(ListSource([], Order), id="orders")
    window = windows.window(Fixed("1s"), key="shop", clock="processing", id="in-window", deadline=deadline)
    with pytest.raises(WrongUse):
        window.aggregate(InWindow, orders=count())


@pytest.mark.slow
@pytest.mark.spark
def test_a_job_that_cannot_run_on_this_spark(tmp_path: Path, spark: Any) -> None:
    launcher = SparkLauncher(spark)
    launcher.check(isolated().graph(), 2)
    with pytest.raises(Refused, match="3 tasks at the same time, and Spark on local.* has 2 slots") as refused:
        launcher.check(isolated().graph(), 3)
    assert refused.value.code == "SW-LIVE-SLOTS" and "local[5]" in refused.value.action
    write_views(tmp_path / "views", 0, 5)
    with pytest.raises(Refused, match="is a DataFrame") as refused:
        launcher.check(counting_job(views(tmp_path / "views"), tmp_path).graph(), 1)
    assert refused.value.code == "SW-LIVE-SOURCE"
