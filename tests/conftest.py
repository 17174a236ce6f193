"""Fixtures for all tests. One Spark is started for the whole run, and again if its JVM dies; what needs it is marked `spark`."""

from __future__ import annotations

import inspect
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import hypothesis
import pytest
from pyspark.sql import SparkSession

import closed
from gangs import end_gangs, gang_host
from prompt import wait_for_snapshots
from streamwork.epoch.host import Host
from streamwork.hosts.archive import OPTIONS
from streamwork.hosts.session import start_spark
from streamwork.hosts.spark_life import forget_spark, how_it_ended, spark_is_gone
from streamwork.run import drivers
from tiers import (  # noqa: F401  (hooks of pytest)
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_sessionfinish,
    pytest_terminal_summary,
    pytest_testnodedown,
)

hypothesis.settings.register_profile("streamwork", deadline=None)  # how long a case takes is a matter of the machine
hypothesis.settings.load_profile("streamwork")

# A shell that starts the tests in the background lets them, and all that they start, ignore SIGINT.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Folders of tests are in memory where there is room: a sync of a real disk takes longer than most of what is tested. Power cuts are
# those of simulated disks.
MEMORY = Path("/dev/shm")
if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 4 << 30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

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
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    """The database of oracles. One for all cases: a connection takes longer than a query."""
    with duckdb.connect(config={"threads": 1}) as connection:
        yield connection


@pytest.fixture(scope="session")
def shared_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Any]]:
    """The Spark of this process; a new one if there is none yet, or its JVM has died."""
    folder = tmp_path_factory.mktemp("spark")
    yield lambda: start_spark("local[2]", folder / f"spark-{time.monotonic_ns()}.log", MODULES)
    if (session := SparkSession.getActiveSession()) is not None:
        session.stop()


@pytest.fixture
def spark(shared_spark: Callable[[], Any]) -> Iterator[Any]:
    """A test in which the JVM dies fails and says how; the next one gets a new JVM."""
    yield shared_spark()
    if spark_is_gone():
        ended = how_it_ended()
        forget_spark()
        pytest.fail(f"the Spark that all tests of this process share died in this test: {ended}")


@pytest.fixture(autouse=True)
def no_gang_outlives_its_test() -> Iterator[None]:
    yield
    end_gangs()


@pytest.fixture
def prompt_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_snapshots(monkeypatch)


@pytest.fixture
def gang_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tasks of live mode are threads of this process: `run` needs no Spark for it."""
    start = drivers.start_spark_host
    named = inspect.signature(start)

    def start_host(*given: Any, **more: Any) -> Host:
        is_live = named.bind(*given, **more).arguments.get("live", False)
        return gang_host() if is_live else start(*given, **more)

    monkeypatch.setattr(drivers, "start_spark_host", start_host)


@pytest.fixture(params=["local", pytest.param("microbatch", marks=pytest.mark.spark), "live"])
def mode(request: pytest.FixtureRequest) -> str:
    """Every host: a test that takes `mode` runs on each. Live mode on Spark itself is in `hosts/test_live_on_spark.py`."""
    if request.param == "microbatch":
        request.getfixturevalue("spark")
    elif request.param == "live":
        request.getfixturevalue("gang_of_threads")
    return str(request.param)
