"""Fixtures for all tests. One Spark is started for the whole run; tests that need it are marked `spark`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

import closed
from streamwork.hosts.archive import OPTIONS
from streamwork.hosts.session import start_spark

hypothesis.settings.register_profile("streamwork", deadline=None)  # how long a case takes is a matter of the machine
hypothesis.settings.load_profile("streamwork")

# A test's Spark lives for seconds or minutes: what the better of Java's two compilers costs never pays.
os.environ.setdefault(OPTIONS, "-XX:TieredStopAtLevel=1")

HERE = Path(__file__).parent
MODULES = [HERE, HERE.parent / "examples"]


@pytest.fixture(scope="session", autouse=True)
def closed_is_watched() -> Iterator[None]:
    with closed.watched():
        yield


@pytest.fixture(autouse=True)
def closed_holds(closed_is_watched: None) -> Iterator[None]:
    """Of every checkpoint that any test completes."""
    closed.violations.clear()
    yield
    assert not closed.violations, f"CLOSED: {closed.violations}"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    session = start_spark("local[2]", tmp_path_factory.mktemp("spark") / "spark.log", MODULES)
    yield session
    session.stop()


@pytest.fixture(params=["local", pytest.param("microbatch", marks=pytest.mark.spark)])
def mode(request: pytest.FixtureRequest) -> str:
    """Every host: a test that takes `mode` runs on each."""
    if request.param == "microbatch":
        request.getfixturevalue("spark")
    return str(request.param)


LONGEST = (
    "test_failpoints.py",
    "test_kill.py",
    "epoch/test_walks.py",
    "matrix/test_points.py",
    "matrix/test_at_once.py",
    "hosts/test_kills.py",
    "hosts/test_cluster.py",
    "hosts/test_exchange.py",
    "test_nothing_slips_through.py",
    "tools/test_cli.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, so that no worker is left waiting for one at the end."""
    place = {HERE / name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path, len(place)))
