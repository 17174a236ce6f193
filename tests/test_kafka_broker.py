"""The broker of the tests: its jars have pinned hashes, and it keeps its data and its port over a kill."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_broker import jars
from kafka_broker.server import KafkaServer


def test_a_jar_with_another_hash_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jar").write_bytes(b"a")
    jars.check(tmp_path, {"a.jar": jars.hash_of(tmp_path / "a.jar")})
    with pytest.raises(jars.NoBroker, match=r"a\.jar does not have the hash"):
        jars.check(tmp_path, {"a.jar": "0" * 64})
    with pytest.raises(jars.NoBroker, match=r"other jars than .*: b\.jar"):
        jars.check(tmp_path, {"a.jar": jars.hash_of(tmp_path / "a.jar"), "b.jar": "0" * 64})


def test_where_the_jars_cannot_be_had_the_reason_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMWORK_KAFKA_JARS", str(tmp_path))
    with pytest.raises(jars.NoBroker, match="other jars"):
        jars.folder()


def test_nothing_of_the_broker_names_a_host() -> None:
    for path in (*jars.HERE.glob("*.xml"), jars.HASHES):
        assert "://" not in path.read_text(), path


@pytest.mark.slow
def test_what_was_acknowledged_is_there_after_a_kill() -> None:
    with KafkaServer.started() as broker:
        admin = AdminClient({"bootstrap.servers": broker.address})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(30)
        producer = Producer({"bootstrap.servers": broker.address, "log_level": 0})
        producer.produce("t", b"one")
        assert producer.flush(30) == 0
        address = broker.address
        broker.restart(kill=True)
        assert broker.address == address
        consumer = Consumer({"bootstrap.servers": address, "group.id": "none", "log_level": 0})
        consumer.assign([TopicPartition("t", 0, 0)])
        found = consumer.poll(30)
        assert found is not None and found.value() == b"one"
        consumer.close()
        running = broker.pid
        os.kill(running, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(running, 0)


@pytest.mark.slow
def test_a_benchmark_gets_the_address() -> None:
    command = [sys.executable, str(Path(__file__).parent / "real_servers.py"), sys.executable, "-c"]
    command += ["import sys; print(sys.argv[1])", "kafka={kafka}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("kafka=127.0.0.1:")
