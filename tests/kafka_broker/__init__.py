"""A Kafka broker for tests and benchmarks: its jars, fetched once by their coordinates, and the server."""

from __future__ import annotations
