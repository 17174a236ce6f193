"""A broker in trouble under a running job: killed, restarted, slow, unreachable, full. What a `read_committed` consumer finds is
compared with the input.
"""

from __future__ import annotations

import itertools
import json
import resource
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from confluent_kafka import Producer

from connectors.kits import entry, seen, staged
from kafka_broker.reading import committed_records, create_topic
from kafka_broker.server import KafkaServer
from sample import Payment, Seen, Summing, expected_journal, run_job
from servers import kafka  # noqa: F401  (fixture)
from streamwork import Backoff, Job, JobFailed, KafkaSink, KafkaSource
from streamwork.connectors.kafka import cluster
from streamwork.connectors.kafka.feed import feeds
from streamwork.connectors.kafka.outbox import Transactions
from waiting import wait_for

pytestmark = pytest.mark.slow
_numbers = itertools.count()
STRIKES: dict[str, list[Callable[[], None]]] = {}
"""By topic: what happens in the middle of a transaction of the sink, at each one in turn."""


class StruckSink(KafkaSink[Any]):
    def _send(self, outbox: Any, rows: Any) -> None:
        super()._send(outbox, rows)
        if strikes := STRIKES.get(self.topic):
            strikes.pop(0)()


class Bounced:
    """A job from topic to topic, and its broker."""

    def __init__(self, server: KafkaServer, folder: Path) -> None:
        number = next(_numbers)
        self.server, self.folder = server, folder
        self.given, self.made = f"from-{number}", f"to-{number}"
        self.events: list[Payment] = []
        create_topic(server.address, self.given, 2)

    def feed(self, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.server.address, "log_level": 0})
        for number in range(len(self.events), len(self.events) + count):
            event = Payment(f"card-{number % 7}", number)
            producer.produce(self.given, json.dumps({"card": event.card, "amount": number}), key=event.card)
            self.events.append(event)
        assert producer.flush(60) == 0

    def job(self, semantics: str = "exactly-once") -> Job:
        restart = Backoff(max_restarts=100, within="1h", first="10ms", factor=2.0, most="500ms")
        job = Job("bounced", semantics=semantics, checkpoint_every=0, restart=restart)  # type: ignore[arg-type]
        source = KafkaSource(self.server.address, self.given, Payment, max_events=40)
        rows = job.source(source, id="payments").apply(Summing(), key="card", id="sums")
        rows.sink(StruckSink(self.server.address, self.made, key="card", partitions=2), id="made")
        return job

    def run(self, semantics: str = "exactly-once", restart: bool = True) -> Any:
        return run_job(self.job(semantics), self.folder / "root", restart=restart)

    def rows(self) -> Counter[Seen]:
        found = committed_records(self.server.address, self.made)
        return Counter(msgspec.json.decode(one.value(), type=Seen) for one in found)

    def expected(self) -> Counter[Seen]:
        return Counter(Seen(*row) for row in expected_journal(self.events))


@pytest.fixture
def bounced(kafka: KafkaServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bounced]:  # noqa: F811
    monkeypatch.setattr(cluster, "SECONDS", 10.0)
    yield Bounced(kafka, tmp_path)
    STRIKES.clear()
    feeds.close()


@pytest.mark.proves("a Kafka broker killed or restarted in mid transaction")
def test_a_broker_that_is_killed_or_restarted_in_the_middle_of_a_transaction(bounced: Bounced) -> None:
    bounced.feed(120)
    STRIKES[bounced.made] = [lambda: bounced.server.restart(kill=True), lambda: None, bounced.server.restart]
    bounced.run()
    assert STRIKES[bounced.made] == [], "it did happen"
    assert bounced.rows() == bounced.expected()


@pytest.mark.parametrize("semantics", ["at-least-once", "at-most-once"])
def test_a_broker_that_is_killed_while_rows_are_written_at_once(bounced: Bounced, semantics: str) -> None:
    """The producer is idempotent, and repeats what was not answered: nothing is lost, and nothing comes twice."""
    bounced.feed(120)
    STRIKES[bounced.made] = [lambda: bounced.server.restart(kill=True)]
    bounced.run(semantics)
    assert STRIKES[bounced.made] == []
    found, wanted = bounced.rows(), bounced.expected()
    if semantics == "at-least-once":
        assert wanted - found == Counter(), "missing"
    else:
        assert found - wanted == Counter(), "twice, or never there"


def unanswered(monkeypatch: pytest.MonkeyPatch, away: Callable[[], None], back: Callable[[], None]) -> list[str]:
    """The first commit is sent to a broker that goes away meanwhile, and comes back after the client has given up waiting."""
    calls: list[str] = []
    insist = Transactions._insist

    def insisting(self: Any, call: Any, doing: str) -> None:
        def late(seconds: float) -> None:
            calls.append(doing)
            if len(calls) == 1:
                threading.Timer(0.002, away).start()  # sometimes before the broker has decided, sometimes after
                try:
                    call(1.0)
                finally:
                    time.sleep(0.01)
                    back()
            else:
                call(seconds)

        insist(self, late if "committing" in doing else call, doing)

    monkeypatch.setattr(Transactions, "_insist", insisting)
    return calls


@pytest.mark.parametrize("how", ["killed", "suspended"])
@pytest.mark.proves("a Kafka broker does not answer to a commit")
def test_a_commit_that_is_not_answered_is_settled(bounced: Bounced, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    server = bounced.server
    sink: KafkaSink[Any] = KafkaSink(server.address, bounced.made)
    sink.open(Seen)
    sink.register("u", bounced.made, 1)
    away, back = (server.kill, server.start) if how == "killed" else (server.pause, server.resume)
    calls = unanswered(monkeypatch, away, back)
    offered = entry(1, 0, 3, sink=bounced.made)
    for _ in range(2):  # the driver offers it again, if it was not told
        try:
            sink.commit(offered, staged(seen(1, 2, 3)))
        except JobFailed:  # the broker has aborted it: the job restarts
            sink.close()
            sink.open(Seen)
            sink.register("u", bounced.made, 1)
    sink.commit(entry(2, 3, 4, sink=bounced.made), staged(seen(4)))
    assert calls
    numbers = [msgspec.json.decode(one.value())["number"] for one in committed_records(server.address, bounced.made)]
    assert numbers == [1, 2, 3, 4]
    sink.close()


def test_a_broker_that_does_not_answer_for_a_while(bounced: Bounced) -> None:
    """It hangs in the middle of a transaction and of reading: the job waits, and does not even restart."""
    bounced.feed(120)

    def hang() -> None:
        bounced.server.pause()
        threading.Timer(1.5, bounced.server.resume).start()

    STRIKES[bounced.made] = [hang]
    bounced.run(restart=False)
    assert STRIKES[bounced.made] == [] and bounced.rows() == bounced.expected()


def test_a_broker_that_is_not_there_at_the_start(bounced: Bounced, monkeypatch: pytest.MonkeyPatch) -> None:
    bounced.feed(40)
    monkeypatch.setattr(cluster, "SECONDS", 0.5)
    bounced.server.stop()
    try:
        for answered in (set[str](), {bounced.server.address}):
            monkeypatch.setattr(cluster, "_answered", answered)
            with pytest.raises(JobFailed, match="SW-KAFKA-UNREACHABLE") as failed:
                bounced.run(restart=False)
            assert failed.value.retryable
            assert failed.value.about_setup is not bool(answered), (
                "an address that has answered is right: restarts help"
            )
    finally:
        bounced.server.start()
    monkeypatch.setattr(cluster, "SECONDS", 10.0)
    bounced.run()
    assert bounced.rows() == bounced.expected()


@pytest.mark.proves("a Kafka broker whose disk is full")
def test_a_broker_whose_disk_is_full(bounced: Bounced) -> None:
    """None of its files may grow: it cannot write, and ends itself. Then there is room, and it is started again."""
    bounced.feed(120)
    server, process = bounced.server, psutil.Process(bounced.server.pid)
    ended: list[bool] = []

    def make_room() -> None:
        wait_for(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE)
        ended.append(True)
        server.restart(kill=True)

    keeper = threading.Thread(target=make_room)

    def fill() -> None:
        process.rlimit(psutil.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
        keeper.start()

    STRIKES[bounced.made] = [lambda: None, fill]
    bounced.run()
    keeper.join()
    assert ended and bounced.rows() == bounced.expected()
