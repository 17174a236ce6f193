"""Is the Spark of this process still there, and what became of it?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from streamwork.errors import JobFailed
from streamwork.hosts import session, spark_life
from streamwork.hosts.spark_life import ASKS, how_it_ended, spark_gone, spark_is_gone


class FakeContext:
    """A SparkContext whose JVM fails the first calls."""

    def __init__(self, failures: int, stopped: bool = False) -> None:
        self.calls, self._failures, self._stopped = 0, failures, stopped
        self._jsc = self

    def sc(self) -> FakeContext:
        self.calls += 1
        if self.calls <= self._failures:
            raise ConnectionResetError("the machine is busy")
        return self

    def isStopped(self) -> bool:  # noqa: N802  (as in Java)
        return self._stopped


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Put a context and a process in the place of the real ones."""
    begun: list[subprocess.Popen[bytes]] = []

    def put(context: FakeContext, program: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE)
        begun.append(process)
        (tmp_path / "spark.log").write_text("first\n\tat java.lang.Thread.run\nERROR no room\n")
        monkeypatch.setattr(spark_life, "_context", lambda: context)
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=process, log=tmp_path / "spark.log"))
        return process

    yield put
    for process in begun:
        process.kill()
        process.communicate()


WAIT = "input()"


def test_one_call_that_fails_does_not_end_a_spark_whose_jvm_lives(fake: Any) -> None:
    """Before, it was dropped: a test process under load lost the Spark that all its tests share."""
    context = FakeContext(failures=ASKS - 1)
    fake(context, WAIT)
    assert not spark_is_gone(sleep=lambda seconds: None)
    assert context.calls == ASKS


def test_a_spark_that_never_answers_is_gone_and_so_is_one_that_was_stopped(fake: Any) -> None:
    """The negative control."""
    fake(FakeContext(failures=ASKS), WAIT)
    assert spark_is_gone(sleep=lambda seconds: None)
    fake(FakeContext(failures=0, stopped=True), WAIT)
    assert spark_is_gone(sleep=lambda seconds: None)


@pytest.mark.parametrize(
    ("program", "told"),
    [
        (f"import os; os.kill(os.getpid(), {int(signal.SIGKILL)})", "was killed by SIGKILL"),
        (f"import os; os.kill(os.getpid(), {int(signal.SIGTERM)})", "was killed by SIGTERM"),
        ("raise SystemExit(52)", "ended with exit code 52 (its memory was used up)"),
        ("raise SystemExit(1)", "ended with exit code 1;"),
    ],
)
def test_a_jvm_that_ended_is_described(fake: Any, program: str, told: str) -> None:
    context = FakeContext(failures=0)
    process = fake(context, program)
    process.wait()
    assert spark_is_gone()
    assert context.calls == 0, "a process that has ended is not asked"
    assert f"its JVM (process {process.pid}) {told}" in how_it_ended()
    assert how_it_ended().endswith("spark.log: first | ERROR no room")
    failure = spark_gone(ConnectionRefusedError("refused"))
    assert failure is not None and told in failure.cause


class Asked(Exception):
    """Like an error of py4j: its text is fetched from the JVM."""

    def __str__(self) -> str:
        raise ConnectionResetError("the JVM is gone")


def test_a_jvm_that_ends_while_spark_starts_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def start(*_: object) -> None:
        raise Asked

    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)  # other tests may have one
    monkeypatch.setattr(session, "_choose_python", lambda *_: None)
    monkeypatch.setattr(session, "_start", start)
    monkeypatch.setattr(session, "forget_spark", lambda: None)
    with pytest.raises(JobFailed, match="Spark did not start: its JVM has ended") as caught:
        session.start_spark("local[1]", tmp_path / "spark.log")
    assert caught.value.code == "SW-SPARK-START"


# ---- a shuffle file that is lost ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(("most", "then"), [("-", "lives"), ("3", "exit code 56")])
def test_a_local_spark_outlives_the_loss_of_a_shuffle_file(tmp_path: Path, most: str, then: str) -> None:
    """Its heartbeats fail from then on. Spark's own limit of 60, one every ten seconds, ended the JVM of a test process ten minutes
    after a test that removes such files: where the machine was slow enough for the process to be there still.

    The control has longer intervals: an answer must come within one, and on a busy machine three of 100 ms pass while Spark starts.
    """
    interval = "100ms" if most == "-" else "2s"
    (tmp_path / "spark-defaults.conf").write_text(f"spark.executor.heartbeatInterval {interval}\n")
    program = Path(__file__).parent / "lost_shuffle.py"
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path), most],
        env={**os.environ, "SPARK_CONF_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    assert done.stdout.strip() == then, done.stderr
