"""A contest takes turns, compares epoch by epoch, leaves out those that fail, and reports no speed of wrong results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from streamwork.bench.contest import Contest, Contestant, Epoch, Timed, Wrong, turned, with_worst
from streamwork.bench.spark_peers import QueryFailed

BATCH = pa.record_batch({"id": [1, 2, 3, 4]})


class Fake(Contestant):
    """Takes these times, one after another."""

    def __init__(self, seconds: list[float], log: list[str], name: str, wrong: bool = False) -> None:
        self._seconds: Iterator[float] = iter(seconds)
        self._log, self._name, self._wrong = log, name, wrong
        self.closed = 0

    def run(self, epoch: Epoch) -> Timed:
        self._log.append(self._name)
        seconds = next(self._seconds, None)
        if seconds is None:
            raise QueryFailed("no epoch in 1 s")
        return Timed(seconds, seconds / 2)

    def check(self) -> None:
        if self._wrong:
            raise Wrong(f"{self._name}: one window is wrong")

    def close(self) -> None:
        self.closed += 1


def held(
    ours: list[float], spark: list[float], log: list[str] | None = None, warm: int = 0
) -> tuple[Contest, dict[str, Fake]]:
    order = [] if log is None else log
    fakes = {"fused": Fake(ours, order, "fused"), "spark": Fake(spark, order, "spark")}
    contest = Contest(fakes, warm, 2, lambda line: None)
    contest.run(lambda: {"views": BATCH})
    return contest, fakes


def test_the_first_epochs_do_not_count_and_each_begins_with_another_one() -> None:
    order: list[str] = []
    contest, _ = held([9.0, 2.0, 4.0], [9.0, 4.0, 6.0], order, warm=1)
    assert order == ["spark", "fused", "fused", "spark", "spark", "fused"]
    fused = contest.figures(("spark",))["fused"]
    assert fused["spread"]["ratio_vs_spark"]["repeats"] == [2.0, 1.5]
    assert fused["ratio_vs_spark"] == 1.75 and fused["events_per_s"] == 2
    assert fused["cpu_s_per_million"] == pytest.approx(0.375e6)
    assert "ratio_vs_spark" not in contest.figures(("spark",))["spark"]


def test_one_that_fails_is_left_out() -> None:
    contest, fakes = held([1.0, 1.0], [3.0])
    assert contest.skipped == {"spark": "no epoch in 1 s"} and fakes["spark"].closed == 1
    assert contest.figures(("spark",)).keys() == {"fused"}
    assert contest.figures(("spark",))["fused"]["ratio_vs_spark"] is None
    contest.close()
    assert fakes["fused"].closed == fakes["spark"].closed == 1


def test_wrong_results_have_no_speed() -> None:
    contest = Contest({"fused": Fake([1.0], [], "fused", wrong=True)}, 0, 1, lambda line: None)
    contest.run(lambda: {"views": BATCH})
    with pytest.raises(Wrong, match="fused: one window is wrong"):
        contest.check()


def test_the_smaller_ratio_counts() -> None:
    figures: dict[str, Any] = {
        name: {"ratio_vs_spark": ratio, "spread": {"ratio_vs_spark": {"median": ratio, "min": 1, "max": 9}}}
        for name, ratio in (("fused", 3.0), ("shuffled", 1.2))
    }
    found = with_worst(figures, ("fused", "shuffled"), ("spark",))
    assert found["ratio_vs_spark"] == 1.2 and found["spread"]["ratio_vs_spark"]["median"] == 1.2
    assert found["fused"] is figures["fused"]
    figures["shuffled"] = {"ratio_vs_spark": None, "spread": {}}
    assert with_worst(figures, ("fused", "shuffled"), ("spark",))["ratio_vs_spark"] is None


def test_turns() -> None:
    assert [turned(["a", "b"], repeat) for repeat in (-1, 0, 1)] == [["b", "a"], ["a", "b"], ["b", "a"]]
