"""The variant `million` of the Yahoo streaming benchmark: the counts in Redis and in the state are those of the events."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pytest

from real_servers import RedisServer
from streamwork.bench.contest import Wrong
from streamwork.bench.plot import Plot, plot
from streamwork.bench.ysb import million
from streamwork.bench.ysb.events import ADS_PER_CAMPAIGN, Stream

SIZES = msgspec.structs.replace(million.QUICK, stream=Stream(campaigns=50, step=10))


def test_the_oracle_counts_views_of_campaigns() -> None:
    wanted = Counter[int]()
    for partition in (0, 1):
        rows = SIZES.stream.rows(partition, 0, 500)
        wanted.update(ad // ADS_PER_CAMPAIGN for ad, kind in zip(rows.ads, rows.kinds, strict=True) if kind == 0)
    found = million.expected(SIZES.stream, 1_000)
    assert {campaign: int(views) for campaign, views in enumerate(found) if views} == wanted


def test_wrong_counts_are_found() -> None:
    right = list(enumerate(million.expected(SIZES.stream, 1_000).tolist()))
    million.check("direct", iter(right), SIZES, 1_000)
    for wrong in (right[1:], [*right, right[1]], [(0, right[0][1] + 1), *right[1:]]):
        with pytest.raises(Wrong, match="1 of 50 campaigns"):
            million.check("direct", iter(wrong), SIZES, 1_000)


def test_old_reads_are_said_to_be_old() -> None:
    runs = [{"events_per_s": 5.0, "reads": 9.0, "age_p99_s": age} for age in (1.0, 2.1, 2.2)]
    assert million._row(runs[:1])["fresh"] and not million._row(runs)["fresh"]


def test_reads_come_at_a_fixed_rate_and_count_from_the_warm_up() -> None:
    asked: list[int] = []

    def read(campaign: int) -> float:
        asked.append(campaign)
        return 0.5

    with million.Reads(read, SIZES) as reads:
        while len(asked) < 3:
            pass
        with pytest.raises(Wrong, match="no read"):
            reads.figures()
        reads.measure()
        until = len(asked) + 4
        while len(asked) < until:
            pass
    found = reads.figures()
    assert 0 < found["reads"] < len(asked) and found["age_p99_s"] == 0.5
    assert np.all(np.array(asked) < 50)


@pytest.mark.slow
def test_a_small_run(tmp_path: Path, redis_server: RedisServer) -> None:
    found = million.run(redis_server.url, tmp_path, million.QUICK)
    assert found["direct_vs_redis"] > 0 and found["systems"]["direct"]["reads"] > 0
    assert isinstance(plot("ysb-million", found), Plot) and not list(tmp_path.iterdir())
