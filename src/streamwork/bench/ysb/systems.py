"""The systems of the variant `state`: each reads the events from a topic and writes counts of windows to another.

live, microbatch   Streamwork, exactly-once
spark              plain Structured Streaming, by hand; its Kafka sink is at-least-once
flink              Flink SQL, exactly-once; without the join, which its SQL can only do with state for the stream
pathway            at-least-once, nothing is durable; without the join
bytewax            without recovery: nothing is durable; without the join
quix               Quix Streams, exactly-once, one process; without the join
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

import streamwork
from streamwork.bench.jars import jars
from streamwork.bench.peers import environment, peer_folder
from streamwork.bench.ysb import state_job
from streamwork.bench.ysb.events import Stream

FINAL = "-final"
"""What Streamwork's topic of closed windows has at the end of its name."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What a system is to do."""

    servers: str
    topic: str
    output: str
    stream: Stream
    window_ms: int
    every_ms: int = 1_000
    """The checkpoint interval."""
    most: int = 1_000_000
    """In micro-batches: the most events of one."""


Command = tuple[list[object], dict[str, str]]
"""A command, and additions to its environment."""


def _streamwork(mode: str) -> Callable[[Task, Path], Command]:
    def command(task: Task, folder: Path) -> Command:
        params = {"servers": task.servers, "topic": task.topic, "output": task.output}
        params |= {"window": f"{task.window_ms}ms", "per-checkpoint": str(task.most)}
        params |= {name: str(getattr(task.stream, name)) for name in ("partitions", "campaigns", "step")}
        options = [part for name, value in params.items() for part in ("--param", f"{name}={value}")]
        command = [
            sys.executable,
            "-m",
            "streamwork",
            "run",
            state_job.__file__,
            "--mode",
            mode,
            "--root",
            folder / "root",
        ]
        options += ["--checkpoint-every", f"{task.every_ms}ms"]
        options += ["--master", "local[2]"] if mode != "local" else []
        places = [str(Path(streamwork.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        return [*command, "--no-restart", *options], {"PYTHONPATH": os.pathsep.join(filter(None, places))}

    return command


def _spark(task: Task, folder: Path) -> Command:
    paths = ",".join(map(str, jars("pyspark")))
    words = [task.servers, task.topic, task.output, folder / "checkpoint", paths, task.window_ms]
    words += [f"{task.every_ms} milliseconds", task.most, task.stream.ads]
    return [sys.executable, peer_folder("pyspark") / "ysb.py", *words], {"PYSPARK_PYTHON": sys.executable}


def _flink(task: Task, folder: Path) -> Command:
    paths = ",".join(map(str, jars("flink")))
    words = [task.servers, task.topic, task.output, folder, paths, task.window_ms, task.every_ms]
    return [_python("flink"), peer_folder("flink") / "ysb.py", *words], {"JAVA_TOOL_OPTIONS": "-Xmx1g"}


def _pathway(task: Task, folder: Path) -> Command:
    words = [task.servers, task.topic, task.output, folder, task.window_ms, task.every_ms, task.stream.ads]
    return [_python("pathway"), peer_folder("pathway") / "ysb.py", *words], {"PATHWAY_THREADS": "2"}


def _bytewax(task: Task, folder: Path) -> Command:
    words = [task.servers, task.topic, task.output, folder, task.window_ms]
    return [_python("bytewax-kafka"), peer_folder("bytewax-kafka") / "ysb.py", *words], {}


def _quix(task: Task, folder: Path) -> Command:
    words = [task.servers, task.topic, task.output, folder, task.window_ms, task.every_ms]
    return [_python("quix"), peer_folder("quix") / "ysb.py", *words], {}


def _python(name: str) -> Path:
    return environment(name, peer_folder(name) / "requirements.txt")


SYSTEMS: dict[str, Callable[[Task, Path], Command]] = {
    "live": _streamwork("live"),
    "microbatch": _streamwork("microbatch"),
    "local": _streamwork("local"),
    "spark": _spark,
    "flink": _flink,
    "pathway": _pathway,
    "bytewax": _bytewax,
    "quix": _quix,
}
OURS = ("live", "microbatch", "local")


def topics_of(system: str, output: str) -> list[str]:
    return [output, output + FINAL] if system in OURS else [output]


def command_of(system: str, task: Task, folder: Path) -> Command:
    """Raises `Unavailable` if a peer cannot be installed here."""
    return SYSTEMS[system](task, folder)
