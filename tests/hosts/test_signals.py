"""Signals to a job on Spark, as terminals, shells and service managers send them: to every process of a group or a service."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import pytest

from streamwork import JobFailed
from streamwork.hosts.gateway import Jvm
from streamwork.hosts.master import reach
from streamwork.run.outcome import NOT_STARTED
from waiting import wait_for

pytestmark = pytest.mark.spark
JOB = Path(__file__).parents[1] / "waiting_job.py"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(JOB, tmp_path / "waiting_job.py")
    (tmp_path / "lines.jsonl").write_text("".join(f'{{"number": {number}}}\n' for number in range(10)))
    return tmp_path


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A driver that leads a process group of its own."""
    command = [
        sys.executable,
        "-m",
        "streamwork",
        "run",
        "waiting_job.py",
        "--master",
        "local[2]",
        *arguments,
    ]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    with subprocess.Popen(
        command,
        cwd=folder,
        env={**kept, "PYTHONPATH": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        family: list[psutil.Process] = []
        try:
            yield process
        finally:
            family = descendants(process)
            process.kill()
            for one in family:
                with_patience(one)


def with_patience(process: psutil.Process) -> None:
    """A JVM ends when its driver has; its daemon and workers end with it."""
    try:
        process.wait(30)
    except psutil.TimeoutExpired:
        process.kill()


def descendants(process: subprocess.Popen[str]) -> list[psutil.Process]:
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def to_group(process: subprocess.Popen[str]) -> None:
    """As `kill -- -GROUP`, and as a terminal does."""
    os.killpg(process.pid, signal.SIGTERM)


def to_service(process: subprocess.Popen[str]) -> None:
    """As systemd: to each process of the service, whatever its group."""
    for one in [psutil.Process(process.pid), *descendants(process)]:
        one.send_signal(signal.SIGTERM)


@pytest.mark.slow
@pytest.mark.parametrize("send", [to_group, to_service], ids=["group", "service"])
@pytest.mark.proves("SIGTERM to all processes of a job on Spark")
def test_a_signal_to_all_processes_of_a_job_on_spark_is_a_clean_stop(
    folder: Path, send: Callable[[subprocess.Popen[str]], None]
) -> None:
    with running(folder) as process:
        wait_for((folder / "computing").exists, process)
        family = {one.pid for one in descendants(process)}
        send(process)
        time.sleep(0.5)  # a process that would end from the signal has time to
        assert {one.pid for one in descendants(process)} >= family, "the JVM, its daemon and its workers live"
        (folder / "go").touch()
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 0, out
    assert "stopped at checkpoint 1: 10 events" in out and "restart" not in out
    with closing(sqlite3.connect(folder / "out.db")) as db:
        assert db.execute("SELECT count(*), count(DISTINCT number) FROM lines").fetchone() == (10, 10)
    wait_for(lambda: not any(psutil.pid_exists(pid) for pid in family))


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["launcher", "java"])
@pytest.mark.proves("SIGTERM while Spark starts")
def test_a_signal_while_spark_starts_ends_the_run_and_leaves_no_process(folder: Path, moment: str) -> None:
    def begun() -> bool:
        """`launcher`: any process of Spark; `java`: its JVM, which is then starting up."""
        names = [_command(one) for one in descendants(process)]
        return any(
            "spark" in name if moment == "launcher" else "org.apache.spark.deploy.SparkSubmit" in name for name in names
        )

    with running(folder) as process:
        wait_for(begun, process)
        family = descendants(process)
        to_group(process)
        out, _ = process.communicate(timeout=120)
        assert process.returncode == 0, out
        assert NOT_STARTED in out and "Traceback" not in out
        wait_for(lambda: not any(one.is_running() for one in family))
    assert not (folder / ".streamwork" / "waiting" / "job.json").exists()


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@pytest.mark.proves("a Spark master that does not answer")
def test_a_master_that_does_not_answer_is_told_at_once(folder: Path) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # taken, and nobody listens
        port = held.getsockname()[1]
        with running(folder, "--master", f"spark://127.0.0.1:{port}") as process:
            out, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "SW-SPARK-UNREACHABLE" in out and f"127.0.0.1:{port}" in out and "what to do:" in out
    assert "restart" not in out and "java" not in out.lower() and "Traceback" not in out
    assert "starting" not in out


def test_one_of_several_masters_is_enough() -> None:
    """The negative control: a master that listens is not refused."""
    with socket.socket() as held, socket.create_server(("127.0.0.1", 0)) as master:
        held.bind(("127.0.0.1", 0))
        dead, alive = held.getsockname()[1], master.getsockname()[1]
        reach(f"spark://127.0.0.1:{dead},127.0.0.1:{alive}")
        with pytest.raises(JobFailed, match="SW-SPARK-UNREACHABLE"):
            reach(f"spark://127.0.0.1:{dead}")
        with pytest.raises(JobFailed, match="SW-SPARK-UNREACHABLE"):
            reach("spark://127.0.0.1:99999")
    reach("local[2]")


def test_a_start_that_is_given_up_kills_java(tmp_path: Path) -> None:
    jvm = Jvm({}, tmp_path / "spark.log")

    def check() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        jvm.connect(check)
    assert jvm.process.returncode == -signal.SIGKILL
