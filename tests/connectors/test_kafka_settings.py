"""What a user gives to the Kafka connectors is checked when the job is built, and secrets are never shown. No broker is needed."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from sample import Payment, Seen
from streamwork import AvroFormat, Event, Job, JobFailed, KafkaSink, KafkaSource, WrongUse
from streamwork.connectors.address import SecretsFile
from streamwork.connectors.kafka import cluster, topics
from streamwork.connectors.kafka.cluster import Cluster
from streamwork.connectors.kafka.formats import JsonFormat

SECRET = {
    "security.protocol": "SASL_SSL",
    "sasl.username": "jane",
    "sasl.password": "hunter2-long",
    "ssl.key.pem": "-----BEGIN-KEY",
}


def test_secrets_are_never_shown_and_are_not_in_what_is_sent(tmp_path: Path) -> None:
    source = KafkaSource("broker:9092", "t", Payment, settings=SECRET)
    sink: KafkaSink[Any] = KafkaSink(["a:1", "b:2"], "t", settings=SECRET)
    for one in (source, sink):
        assert "hunter2" not in repr(one) and "BEGIN" not in repr(one) and "jane" in repr(one)
        file = SecretsFile(tmp_path)
        with file.collecting():
            sent = pickle.dumps(one)
        file.write()
        assert b"hunter2" not in sent and b"BEGIN" not in sent
        assert pickle.loads(sent)._cluster.config()["sasl.password"] == "hunter2-long"
        assert one._cluster.config()["bootstrap.servers"] == one._cluster.servers
    assert sink._cluster.servers == "a:1,b:2"
    avro = AvroFormat("https://registry", user="jane:hunter2-long")
    file = SecretsFile(tmp_path)
    with file.collecting():
        assert b"hunter2" not in pickle.dumps(avro) and "hunter2" not in repr(avro)
    assert "hunter2" not in str(source._cluster.unreachable("asking", "sent hunter2-long to it"))


@pytest.mark.parametrize("name", ["isolation.level", "transactional.id", "enable.auto.commit", "auto.offset.reset"])
def test_settings_that_guarantees_depend_on_are_refused(name: str) -> None:
    with pytest.raises(WrongUse, match=f"SW-KAFKA-SETTING: Streamwork sets {name} itself"):
        KafkaSource("broker:9092", "t", Payment, settings={name: "x"})


def test_a_setting_that_the_client_does_not_know_is_refused_without_its_value() -> None:
    with pytest.raises(WrongUse, match="SW-KAFKA-SETTING") as refused:
        topics.describe(Cluster("broker:9092", {"sasl.passwort.secret": "hunter2-long"}), "t")
    assert "hunter2" not in str(refused.value)


def test_a_cluster_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "SECONDS", 1.0)
    with pytest.raises(JobFailed, match=r"SW-KAFKA-UNREACHABLE: describing topic t, 127\.0\.0\.1:1") as failed:
        KafkaSource("127.0.0.1:1", "t", Payment).partitions()
    assert failed.value.about_setup and failed.value.retryable


@pytest.mark.parametrize(
    "options",
    [{"timestamp": "card"}, {"key": "amount"}, {"headers": "card"}, {"key": "no-such-field"}],
)
def test_a_field_that_cannot_be_filled_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(WrongUse, match="SW-KAFKA-FIELD"):
        KafkaSource("broker:9092", "t", Payment, **options)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"key": "nothing"}, "SW-KEY-FIELD"),
        ({"headers": "card"}, "SW-KAFKA-FIELD"),
        ({"timestamp": "number"}, "SW-KAFKA-FIELD"),
        ({"format": "xml"}, "SW-KAFKA-FORMAT"),
        ({"format": "raw"}, "SW-KAFKA-FIELD"),
    ],
)
def test_a_sink_that_cannot_write_its_events_is_refused(options: dict[str, str], code: str) -> None:
    with pytest.raises(WrongUse, match=code):
        KafkaSink("broker:9092", "t", **options).check(Seen)


def test_previews_are_refused() -> None:
    job = Job("kafka")
    payments = job.source(KafkaSource("broker:9092", "t", Payment), id="in")
    payments.sink(KafkaSink("broker:9092", "u"), id="out", isolation="read-uncommitted")
    with pytest.raises(WrongUse, match=r"sink 'out' \(KafkaSink\) .* cannot show previews"):
        job.graph()


class Text(Event):
    body: str


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(WrongUse, match="SW-KAFKA-FORMAT"):
        KafkaSource("broker:9092", "t", Text, format="xml")
    with pytest.raises(WrongUse, match="SW-KAFKA-FIELD"):
        KafkaSource("broker:9092", "t", Text, format="raw")
    with pytest.raises(WrongUse, match="SW-KAFKA-SETTING"):
        AvroFormat("https://jane:secret@registry")


LINES = [b'{"card":"a","amount":1}', b'{"card":"b","amount":2}']


@pytest.mark.parametrize(
    "values",
    [
        [LINES[0] + b"\n" + LINES[1], b""],  # as many events as values
        [LINES[0] + LINES[1], b" "],
        [b'{"card":"a"', b'"amount":1}'],
        [b""],
        [b"[]", LINES[0]],
        [LINES[0], b'{"card":"a","amount":9223372036854775808}'],
    ],
)
def test_values_that_are_decoded_together_are_one_event_each(values: list[bytes]) -> None:
    with pytest.raises(Exception, match=r".+"):
        JsonFormat().decoder(Payment).many(values)


def test_an_event_over_several_lines_is_one_event() -> None:
    pretty = b'{\n "card": "a",\n "amount": 1\n}'
    assert JsonFormat().decoder(Payment).many([pretty, LINES[1]]) == [Payment("a", 1), Payment("b", 2)]
