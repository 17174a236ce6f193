"""Starts the JVM of Spark as a process that ignores signals to the driver's process group.

Ctrl-C in a terminal and `kill -- -GROUP` signal every process of a group; systemd signals every process of a service. The driver
answers by completing the epoch under way, for which it needs Spark. So the JVM has a session of its own and ignores SIGINT and
SIGTERM, and its Python workers survive SIGTERM (`hosts.daemon`). It ends when the driver does: its standard input is then closed.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

IGNORE_SIGNALS = ("/bin/sh", "-c", 'trap "" INT TERM; exec "$@"', "sh")
POLL_SECONDS = 0.05


def is_given() -> bool:
    """True if this process already has a JVM, or was started by one (`spark-submit`)."""
    from pyspark import SparkContext

    return SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ


class JavaEnded(Exception):
    """The JVM ended before it could be used."""


class Jvm:
    """The process of a JVM, from before it answers."""

    def __init__(self, settings: Mapping[str, str], log: Path | None) -> None:
        """`log` receives its standard error; with None it is inherited."""
        from pyspark.find_spark_home import _find_spark_home

        self.log = log
        self._folder = tempfile.TemporaryDirectory(prefix="streamwork-gateway-")
        self._answer = Path(self._folder.name) / "answer"
        program = Path(_find_spark_home()) / "bin" / "spark-submit"
        options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        options += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
        environment = {
            **os.environ,
            "SPARK_CONNECT_MODE": "0",
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._answer),
        }
        sys.stderr.flush()
        with _opened(log) as errors:
            self.process = subprocess.Popen(
                [*IGNORE_SIGNALS, str(program), *options],
                stdin=subprocess.PIPE,  # it ends when this is closed
                stderr=errors,
                env=environment,
                start_new_session=True,
            )

    def connect(self, check: Callable[[], None]) -> Any:
        """The gateway to it, as soon as it answers. `check` is called while waiting, and may raise."""
        from pyspark.java_gateway import launch_gateway
        from pyspark.serializers import UTF8Deserializer, read_int

        try:
            while not self._answer.exists():
                if (code := self.process.poll()) is not None:
                    raise JavaEnded(f"Java ended with exit code {code}")
                check()
                time.sleep(POLL_SECONDS)
            with self._answer.open("rb") as told:
                port, secret = read_int(told), UTF8Deserializer().loads(told)
            with _environment(PYSPARK_GATEWAY_PORT=str(port), PYSPARK_GATEWAY_SECRET=secret):
                gateway = launch_gateway()  # starts no JVM, because the port is set
        except BaseException:
            self.kill()
            raise
        finally:
            self._folder.cleanup()
        gateway.proc, gateway.log = self.process, self.log
        return gateway

    def kill(self) -> None:
        """Kill it and its children."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.close()

    @contextmanager
    def killed_when(self, asked: Callable[[], bool]) -> Iterator[None]:
        """Kill it as soon as `asked()` is true inside the block; a call into it that is in progress then raises."""
        over = threading.Event()

        def kill_when_asked() -> None:
            while not over.wait(POLL_SECONDS):
                if asked():
                    self.kill()
                    return

        watch = threading.Thread(target=kill_when_asked, name="streamwork-gateway", daemon=True)
        watch.start()
        try:
            yield
        finally:
            over.set()
            watch.join()


@contextmanager
def _opened(log: Path | None) -> Iterator[int | None]:
    if log is None:
        yield None
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    os.environ.update(values)
    try:
        yield
    finally:
        for name in values:
            del os.environ[name]
