"""The benchmark of the Kafka connectors runs, checks what it measured, and reports every number."""

from __future__ import annotations

import pytest

from kafka_broker.server import KafkaServer
from servers import kafka  # noqa: F401  (fixture)
from streamwork.bench import kafka as bench
from streamwork.bench.contest import Wrong


@pytest.mark.slow
def test_a_small_run(kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    numbers = bench.run(kafka.address, bench.QUICK)
    for name in ("json", "raw_columns", "by_hand"):
        assert numbers["source"][name]["events_per_s"]["median"] > 0
    for name in ("kafka_sink", "by_hand"):
        assert numbers["sink"][name]["events_per_s"]["median"] > 0
        assert numbers["empty_commit"][name]["p50_ms"]["median"] > 0
    monkeypatch.setattr(bench, "_total", lambda given: -1.0)
    with pytest.raises(Wrong, match="json: 2000 events"):
        bench.run(kafka.address, bench.QUICK)
