"""A standalone cluster on this machine, from PySpark's own jars: a master, workers, and whoever they start.

Each worker is the parent of its executors (one JVM for each application), an executor of a Python daemon, and that one of the
Python workers. All of them are found by their parents, and ended by their process ids.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyspark

from streamwork.hosts.java import find_java

HOST = "127.0.0.1"
DEPLOY = "org.apache.spark.deploy"
SCALA = "2.13"  # a worker asks for it where Spark's shell scripts have not started it
QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")  # small programs that live for a minute
SECONDS = 60.0


class Cluster:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._jars = Path(pyspark.__file__).parent / "jars"
        self._java = find_java().home
        self._begun = 0
        self._master: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []
        self._orphans: list[psutil.Process] = []
        self.url = ""

    def start(self, workers: int, cores: int = 1) -> None:
        self._master, log = self._run("master.Master", "--port", "0", "--webui-port", "0")
        self.url = _wait_for(log, "Starting Spark master at ")
        for log in [self.add_worker(cores) for _ in range(workers)]:
            _wait_for(log, "Successfully registered with master ")

    def add_worker(self, cores: int = 1) -> Path:
        """It registers as soon as it can; its log says when."""
        worker, log = self._run(
            "worker.Worker", "--port", "0", "--webui-port", "0", "-c", str(cores), "-m", "2g",
            "-d", str(self._folder / f"work-{self._begun}"), self.url,
        )  # fmt: skip
        self.workers.append(worker)
        return log

    def lose_worker(self, worker: subprocess.Popen[bytes]) -> None:
        """With -9. Its executors end by themselves, as soon as they see that it is gone."""
        self._orphans += _children(worker.pid, recursive=True)
        worker.kill()
        worker.wait()
        self.workers.remove(worker)

    def executors(self) -> list[psutil.Process]:
        return [child for worker in self.workers for child in _children(worker.pid) if "java" in _name(child)]

    def python_workers(self) -> list[psutil.Process]:
        return [one for executor in self.executors() for one in python_workers(executor.pid)]

    def stop(self) -> None:
        """Whatever has become of them, nobody is left."""
        begun = [*self.workers, *([self._master] if self._master is not None else [])]
        families = [child for process in begun for child in _children(process.pid, recursive=True)]
        for process in begun:
            process.kill()
            process.wait()
        for child in [*families, *self._orphans]:
            kill(child)

    def _run(self, program: str, *arguments: str) -> tuple[subprocess.Popen[bytes], Path]:
        self._begun += 1
        log = self._folder / f"{program.partition('.')[0]}-{self._begun}.log"
        home = str(self._jars.parent)
        environment = {
            **{name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYSPARK_PYTHON")},
            "JAVA_HOME": str(self._java),
            "SPARK_HOME": home,
            "SPARK_LOCAL_IP": HOST,
            "SPARK_SCALA_VERSION": SCALA,
        }
        command = [str(self._java / "bin" / "java"), "-Xmx512m", *QUICK, "-cp", str(self._jars / "*")]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*command, f"{DEPLOY}.{program}", "--host", HOST, *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=self._folder,
            )
        return process, log


@contextlib.contextmanager
def standing(folder: Path, workers: int = 2) -> Iterator[Cluster]:
    cluster = Cluster(folder)
    try:
        cluster.start(workers)
        yield cluster
    finally:
        cluster.stop()


def python_workers(jvm: int) -> list[psutil.Process]:
    """The Python workers of a JVM: the children of its pyspark daemon."""
    daemons = [child for child in _children(jvm) if "_daemon" in _name(child) or "pyspark.daemon" in _name(child)]
    return [worker for daemon in daemons for worker in _children(daemon.pid)]


def kill(process: psutil.Process) -> bool:
    """True if it was alive. psutil does not mistake a newcomer with the same number for it."""
    try:
        process.send_signal(signal.SIGKILL)
    except psutil.NoSuchProcess:
        return False
    return True


def command_line(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "streamwork", *arguments]


def environment(folder: Path, *path: Path) -> dict[str, str]:
    """For a driver that is a process of its own: nothing of this one's Spark, modules from `path`, and small quick JVMs."""
    options = " ".join(QUICK)
    settings = {"spark.driver.extraJavaOptions": options, "spark.executor.extraJavaOptions": options}
    (folder / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    return {**kept, "PYTHONPATH": os.pathsep.join(map(str, path)), "SPARK_CONF_DIR": str(folder)}


def _children(pid: int, recursive: bool = False) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=recursive)
    except psutil.NoSuchProcess:
        return []


def _name(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _wait_for(log: Path, words: str) -> str:
    """What comes behind the words in a log, to the end of the line."""
    until = time.monotonic() + SECONDS
    while words not in (text := log.read_text()):
        assert time.monotonic() < until, f"{log} does not say {words!r}: {text[-2000:]}"
        time.sleep(0.05)
    return text.partition(words)[2].split()[0]
