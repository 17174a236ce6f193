"""``streamwork bench console``: how long the console takes to show a root with many jobs and long histories.

    root        so many jobs, each with a history of so many epochs: the counts of every instance of the last thousand, samples of
                the input of two hours, sizes of its state of a day. This process holds every job: a job at rest is cheaper
    first       a console that has just been started, as `streamwork console` does: from the request for the overview to its answer
    repeated    the same again, while a browser listens to changes
    job, epochs, epoch    one job; a page of its epochs; one epoch

Answers are compared with what was written (jobs, checkpoints, epochs, how many were abandoned) before a time is reported.
The files are in the page cache of the operating system, as they are after a job has written them.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from streamwork.bench.console_root import ABANDONED, JOB_NAME, make_root
from streamwork.bench.spread import spread

Note = Callable[[str], None]
PAGE = 100


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    jobs: int = 100
    epochs: int = 10_000
    starts: int = 5  # of a console: each gives one first load
    repeats: int = 20


FULL = Sizes()
QUICK = Sizes(jobs=3, epochs=300, starts=1, repeats=3)


class Wrong(AssertionError):
    """An answer is wrong: no time is reported."""


def run(folder: Path | None = None, sizes: Sizes = FULL, note: Note = lambda line: None) -> dict[str, Any]:
    """Measure and return all figures. Raises `Wrong` if an answer is wrong. `note` receives progress lines."""
    with tempfile.TemporaryDirectory(prefix="bench-console-", dir=folder) as name:
        root = Path(name) / "root"
        note(f"making {sizes.jobs:,} jobs of {sizes.epochs:,} epochs")
        newest = make_root(root, sizes.jobs, sizes.epochs)
        size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
        found: dict[str, list[float]] = {}
        for number in range(sizes.starts):
            with Started(root) as console:
                for what, seconds in _loads(console, sizes, newest).items():
                    found.setdefault(what, []).extend(seconds)
            note(f"{number + 1} of {sizes.starts}: first load {found['first_s'][-1]:.3f} s")
    return {**{what: spread(seconds) for what, seconds in found.items()}, "root_bytes": size} | {
        "settings": msgspec.to_builtins(sizes)
    }


def _loads(console: Started, sizes: Sizes, newest: int) -> dict[str, list[float]]:
    """Seconds of each request, by kind."""
    job = f"jobs/{JOB_NAME.format(0)}"
    found = {"first_s": [_overview(console, sizes, newest)]}
    found["job_s"] = [console.timed(f"{job}", lambda one: _check_job(one, newest))]
    found["epochs_s"] = [console.timed(f"{job}/epochs?limit={PAGE}", lambda page: _check_page(page, sizes))]
    found["epoch_s"] = [console.timed(f"{job}/epochs/{newest}", lambda one: _same(one["epoch"], newest, "an epoch"))]
    found["repeated_s"] = [_overview(console, sizes, newest) for _ in range(sizes.repeats)]
    return found


def _overview(console: Started, sizes: Sizes, newest: int) -> float:
    def check(found: Any) -> None:
        jobs = found["jobs"]
        _same([one["job"] for one in jobs], [JOB_NAME.format(n) for n in range(sizes.jobs)], "the names of jobs")
        for one in jobs:
            _same(one["problem"], "", "a problem")
            _same((one["running"], one["checkpoint"]), (True, newest), f"the state of {one['job']}")
            _same(one["abandoned"], ABANDONED, f"the abandoned epochs of {one['job']}")
            if not (one["verdict"] and one["lag"]):  # a rate is shown for as long as its samples are new
                raise Wrong(f"{one['job']} has no verdict or lag")

    return console.timed("overview", check)


def _check_job(found: Any, newest: int) -> None:
    _same(found["status"]["checkpoint"], newest, "the checkpoint of a job")
    _same(len(found["graph"]["nodes"]), 3, "the number of components")


def _check_page(page: Any, sizes: Sizes) -> None:
    _same((len(page["epochs"]), page["kept"]), (min(PAGE, sizes.epochs), sizes.epochs), "a page of epochs")


def _same(found: Any, wanted: Any, what: str) -> None:
    if found != wanted:
        raise Wrong(f"{what}: {str(found)[:200]} instead of {str(wanted)[:200]}")


class Started:
    """A console in a process of its own, until the block ends."""

    def __init__(self, root: Path) -> None:
        command = [sys.executable, "-m", "streamwork", "console", str(root), "--listen", "0", "--json"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._token = ""
        self._address = ""

    def __enter__(self) -> Started:
        assert self._process.stdout is not None
        text = ""
        while not text.endswith("}\n"):
            line = self._process.stdout.readline()
            if not line:
                raise Wrong(f"the console has ended: {text}")
            text += line
        said = json.loads(text)
        self._address = said["url"].removeprefix("http://")
        self._token = said["open"].partition("#token=")[2]
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.communicate()

    def timed(self, path: str, check: Callable[[Any], None]) -> float:
        """Seconds from the request to the whole answer, over a connection of its own."""
        began = time.perf_counter()
        connection = http.client.HTTPConnection(self._address, timeout=300)
        connection.request("GET", f"/api/{path}", headers={"Authorization": f"Bearer {self._token}"})
        response = connection.getresponse()
        body = response.read()
        took = time.perf_counter() - began
        connection.close()
        if response.status != 200:
            raise Wrong(f"{path}: {response.status} {body[:200]!r}")
        check(json.loads(body))
        return took
