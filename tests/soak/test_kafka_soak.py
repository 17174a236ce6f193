"""Random kills, with -9, of driver, Python workers and broker, while a job reads a topic and writes another one, exactly-once.

In the end a `read_committed` consumer of the output is compared with the input, card by card and in order. Transactions are also
under way on the side of the input. `make soak-kafka KAFKA_KILLS=100`, and `make soak`, divide the kills among
three modes, two of them on Spark. Otherwise there are a few kills on the local host.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psutil
import pytest
from confluent_kafka import KafkaException, Producer

from cluster import command_line, environment, kill, python_workers
from kafka_broker.reading import committed_records, create_topic
from kafka_broker.server import KafkaServer
from sample import Payment, Seen, expected_journal
from soak.kafka_soak_job import GIVEN, MADE, PARTITIONS
from streamwork.run.stop_request import request_stop
from streamwork.world import RealClock

TESTS = Path(__file__).parents[1]
LONG = bool(float(os.environ.get("STREAMWORK_SOAK_SECONDS", "0"))) or "STREAMWORK_KAFKA_KILLS" in os.environ
SEED = int(os.environ.get("STREAMWORK_SOAK_SEED", random.SystemRandom().randrange(10**6)))
KILLS = int(os.environ.get("STREAMWORK_KAFKA_KILLS", "100" if LONG else "3"))
FED = 15
PATIENCE = 240.0
ON_SPARK = ["driver", "worker", "worker", "broker"]
KINDS = {"local": ["driver", "broker"], "microbatch": ON_SPARK, "live": ON_SPARK}
EVERY = {"local": "20ms", "microbatch": "1s", "live": "200ms"}
MASTER = {"microbatch": "local[2]", "live": "local[4]"}  # tasks of live mode run all at the same time
"""Slices are sized by the interval: it should not be far below the fixed cost of a Spark job on a busy machine."""


class Soaked:
    """The job, its driver, its broker and its input."""

    def __init__(self, folder: Path, mode: str, rng: random.Random) -> None:
        self.folder, self.mode, self.rng = folder, mode, rng
        self.broker = KafkaServer(folder / "k")
        self.events: list[Payment] = []
        self.kills: Counter[str] = Counter()
        self._process: subprocess.Popen[bytes] | None = None

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        try:
            self.broker.start()
            create_topic(self.broker.address, GIVEN, PARTITIONS)
            self._producer = Producer(
                {"bootstrap.servers": self.broker.address, "enable.idempotence": True, "log_level": 0}
            )
            self.feed()
            self._drive()
            yield
        finally:
            self._end_driver()
            self.broker.stop()

    def feed(self) -> None:
        """By card, so that the events of a card keep their order. The producer repeats what was not acknowledged."""
        for _ in range(FED):
            number = len(self.events)
            event = Payment(f"card-{number * 31 % 7}", number)
            self._producer.produce(GIVEN, json.dumps({"card": event.card, "amount": number}), key=event.card)
            self.events.append(event)
        self._producer.poll(0)

    def abort_some(self) -> None:
        """Records in the topic that a job must never see, and a marker."""
        other = Producer({"bootstrap.servers": self.broker.address, "transactional.id": "other", "log_level": 0})
        with contextlib.suppress(KafkaException):
            other.init_transactions(PATIENCE)
            other.begin_transaction()
            other.produce(GIVEN, json.dumps({"card": "stranger", "amount": 1}), key="stranger")
            other.flush(PATIENCE)
            other.abort_transaction(PATIENCE)

    def strike(self, kind: str) -> None:
        if kind == "driver":
            self._end_driver()
            self._drive()
        elif kind == "worker":
            self.wait_until(self._worker_killed)
        else:
            self.broker.restart(kill=True)
        self.kills[kind] += 1

    def _worker_killed(self) -> bool:
        self.feed()
        assert self._process is not None
        below = psutil.Process(self._process.pid).children(recursive=True)
        found = [worker for process in below for worker in python_workers(process.pid)]
        return bool(found) and kill(self.rng.choice(found))

    def wait_until(self, true: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE
        while not true():
            said = (self.folder / "driver.txt").read_text()[-3000:]
            assert self._process is not None and self._process.poll() is None, said
            assert time.monotonic() < until, f"it does not go on: {said}"
            time.sleep(0.05)

    def epoch(self) -> int:
        found = (self.folder / "root" / "kafka-soak" / "checkpoints").glob("*.json")
        return max((int(path.stem) for path in found if path.name.count(".") == 1), default=0)

    def rows(self) -> list[Seen]:
        found = committed_records(self.broker.address, MADE)
        return [msgspec.json.decode(one.value(), type=Seen) for one in found]

    def end(self) -> None:
        assert self._producer.flush(PATIENCE) == 0
        self.wait_until(lambda: len(self.rows()) >= len(self.events))
        assert self._process is not None
        request_stop(self.folder / "root", "kafka-soak", PATIENCE, RealClock(), lambda line: None)
        assert self._process.wait(PATIENCE) == 0, (self.folder / "driver.txt").read_text()[-3000:]

    def _drive(self) -> None:
        command = command_line("run", str(TESTS / "soak" / "kafka_soak_job.py:soak"), "--mode", self.mode, "--json")
        command += ["--root", str(self.folder / "root")]
        command += ["--master", MASTER[self.mode]] if self.mode in MASTER else []
        env = {**environment(self.folder, TESTS), "STREAMWORK_SOAK_KAFKA": self.broker.address}
        env["STREAMWORK_SOAK_EVERY"] = EVERY[self.mode]
        with (self.folder / "driver.txt").open("ab") as output:
            self._process = subprocess.Popen(command, cwd=self.folder, env=env, stdout=output, stderr=subprocess.STDOUT)

    def _end_driver(self) -> None:
        """With -9, and all that it has started."""
        if self._process is None:
            return
        family = psutil.Process(self._process.pid).children(recursive=True) if self._process.poll() is None else []
        self._process.kill()
        self._process.wait()
        for child in family:
            kill(child)
        self._process = None


def check(rows: list[Seen], events: list[Payment]) -> None:
    """Every result once, and those of a card in order."""
    wanted = [Seen(*row) for row in expected_journal(events)]
    found, expected = Counter(rows), Counter(wanted)
    odd = found - expected, expected - found
    assert not any(odd), f"EXACTLY-ONCE: too many {list(odd[0])[:5]}, missing {list(odd[1])[:5]}"
    by_card: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        by_card[row.card].append(row.number)
    assert all(numbers == sorted(numbers) for numbers in by_card.values()), "ORDER"


def check_the_check(rows: list[Seen], events: list[Payment]) -> None:
    for tampered in ([*rows, rows[-1]], rows[1:], [rows[-1], *rows[:-1]]):
        with pytest.raises(AssertionError, match="EXACTLY-ONCE|ORDER"):
            check(tampered, events)


def one_round(folder: Path, mode: str, kills: int, seed: str) -> Counter[str]:
    rng = random.Random(seed)
    soaked = Soaked(folder, mode, rng)
    kinds = KINDS[mode] if LONG else []
    chosen = [rng.choice(kinds) for _ in range(kills)] if kinds else ["driver", "broker", "driver"][:kills]
    began = time.monotonic()
    with soaked.running():
        soaked.wait_until(lambda: soaked.epoch() > 0)
        for place, kind in enumerate(chosen):
            before = soaked.epoch()
            for _ in range(rng.randint(2, 12)):
                soaked.feed()
                time.sleep(0.05)
            if place % 10 == 1:
                soaked.abort_some()
            if kind == "driver":  # else drivers would be killed before they have done anything
                soaked.wait_until(lambda: soaked.epoch() > before)  # noqa: B023  called at once
                soaked.feed()
            time.sleep(rng.uniform(0, 0.2))
            soaked.strike(kind)
            if place % 10 == 9:
                print(f"{mode}: {place + 1} of {kills} kills, {time.monotonic() - began:.0f} s", flush=True)
        soaked.feed()
        soaked.end()
        rows = soaked.rows()
    check(rows, soaked.events)
    check_the_check(rows, soaked.events)
    took = time.monotonic() - began
    print(f"{mode}: {dict(soaked.kills)} in {took:.0f} s; {len(rows)} rows, nothing missing, nothing twice", flush=True)
    return soaked.kills


@pytest.fixture
def short_folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="soak-"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(7_200 if LONG else 900)
def test_nobody_s_death_costs_a_record(short_folder: Path) -> None:
    kills = f"STREAMWORK_KAFKA_KILLS={KILLS} " if LONG else ""
    command = ".venv/bin/python -m pytest -n 0 -s tests/soak/test_kafka_soak.py"
    print(f"replay with: {kills}STREAMWORK_SOAK_SEED={SEED} {command}", flush=True)
    modes = list(KINDS) if LONG else ["local"]
    total: Counter[str] = Counter()
    for number, mode in enumerate(modes):
        folder = short_folder / mode
        folder.mkdir()
        (folder / "k").mkdir()
        share = KILLS // len(modes) + (number < KILLS % len(modes))
        total += one_round(folder, mode, share, f"{SEED}/{mode}")
    print(f"{total.total()} kills {dict(total)} without a violation, seed {SEED}", flush=True)
