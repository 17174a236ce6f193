"""Sums per card from a Kafka topic into a Kafka topic, for the soak. Where the broker is stands in the environment."""

from __future__ import annotations

import os

from sample import Payment, Summing
from streamwork import Backoff, Job, KafkaSink, KafkaSource

GIVEN, MADE = "given", "made"
PARTITIONS = 2


def build(servers: str, every: str) -> Job:
    restart = Backoff(max_restarts=100_000, within="1h", first="100ms", factor=2.0, most="500ms")
    job = Job("kafka-soak", checkpoint_every=every, restart=restart)
    sums = job.source(KafkaSource(servers, GIVEN, Payment, max_events=200), id="payments").apply(
        Summing(), key="card", id="sums", parallelism=2
    )
    sums.sink(KafkaSink(servers, MADE, key="card", partitions=PARTITIONS), id="made")
    return job


if "STREAMWORK_SOAK_KAFKA" in os.environ:
    soak = build(os.environ["STREAMWORK_SOAK_KAFKA"], os.environ["STREAMWORK_SOAK_EVERY"])
