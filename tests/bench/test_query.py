"""`bench query` measures what it says, and notices a wrong answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from streamwork.bench import query as bench


@pytest.mark.slow
def test_its_figures(tmp_path: Path) -> None:
    sizes = bench.Sizes(
        keys=2_000,
        gets=100,
        many=1_000,
        at_a_time=300,
        connections=2,
        repeats=2,
        busy_events=4_000_000,
        stretch=0.4,
        stretches=2,
        rate=50,
    )
    found = bench.run(tmp_path, sizes)
    assert found["get_per_s"] > 0 and found["get_p99_ms"] > 0 and found["get_many_keys_per_s"] > 0
    assert found["busy"]["gets"] == 20 and found["busy"]["job_slowdown"] > 0
    assert found["ratio_vs_redis"] is None
    assert len(found["spread"]["get_per_s"]["repeats"]) == 2


def test_a_wrong_answer_is_noticed(tmp_path: Path) -> None:
    asked = bench.Asked(tmp_path, bench.QUICK, lambda line: None)
    asked._events = [np.arange(bench.QUICK.keys), np.array([5, 5, 7] * 100_000)]
    before, after = 1, 2  # the fill is one epoch; the next one has EPOCH_EVENTS events
    events = np.concatenate(asked._events)[: bench.QUICK.keys + bench.EPOCH_EVENTS]
    right = [(5, before, 1), (5, after, int(np.count_nonzero(events == 5))), (8, after, 1)]
    asked._check_busy(right)
    with pytest.raises(bench.Wrong, match="5 was used"):
        asked._check_busy([*right, (5, after, 2)])
