"""A broker with TLS and passwords. A job goes from topic to topic; who is not accepted is told so soon; no secret is shown."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation, ResourceType

from cli.test_query_commands import started
from cluster import command_line, environment
from commands import call_in
from kafka_broker.reading import committed_records, create_topic, has_topic
from kafka_broker.secured import PASSWORD, POOR, POOR_PASSWORD, USER, Authority, SecuredKafkaServer
from sample import Payment, Seen, expected_journal
from streamwork.connectors.kafka import cluster, heard
from streamwork.connectors.kafka.cluster import Cluster
from streamwork.connectors.kafka.feed import Feed
from streamwork.connectors.kafka.outbox import Outbox, Transactions
from streamwork.connectors.kafka.topics import describe
from streamwork.errors import StreamworkError
from waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
TESTS = Path(__file__).parents[1]
EVENTS = 120
POISON = b"not an event"
SOON = 10.0
"""A call that is refused ends in a third of the time that it would wait for a broker that does not answer."""
JOB = f"""
import os

from sample import Payment, Summing
from streamwork import Job, KafkaSink, KafkaSource

servers, given, made = (os.environ[name] for name in ("SERVERS", "GIVEN", "MADE"))
settings = {{
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": os.environ["MECHANISM"],
    "sasl.username": "{USER}",
    "sasl.password": os.environ["KAFKA_PASSWORD"],
    "ssl.ca.location": os.environ["AUTHORITY"],
}}
job = Job("secured", checkpoint_every="50ms", parallelism=2)
source = KafkaSource(servers, given, Payment, max_events=40, on_error="dead-letter", settings=settings)
sums = job.source(source, id="payments").apply(Summing(), key="card", id="sums")
sums.sink(KafkaSink(servers, made, key="card", partitions=2, settings=settings), id="made")
print("settings of", job, source)
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[SecuredKafkaServer]:
    """Jane has the rights that docs/kafka.md names, and no other."""
    with SecuredKafkaServer.started() as server:
        server.grant(USER, ResourceType.TOPIC, "given", AclOperation.READ)
        server.grant(USER, ResourceType.TOPIC, "made", AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE)
        server.grant(USER, ResourceType.TRANSACTIONAL_ID, "streamwork.", AclOperation.WRITE)
        yield server


class Secured:
    """A folder with the job, its topics, and all that its programs print."""

    def __init__(self, broker: SecuredKafkaServer, folder: Path, name: str) -> None:
        self.broker, self.folder, self.root = broker, folder, folder / "root"
        self.given, self.made = f"given-{name}", f"made-{name}"
        (folder / "job.py").write_text(JOB)
        create_topic(broker.address, self.given, 2)
        self.said: list[str] = []
        self.events: list[Payment] = []
        self.environment = {
            **environment(folder, TESTS),
            "SERVERS": broker.secure_address,
            "GIVEN": self.given,
            "MADE": self.made,
            "MECHANISM": "SCRAM-SHA-512",
            "KAFKA_PASSWORD": PASSWORD,
            "AUTHORITY": str(broker.certificate),
        }

    def feed(self) -> None:
        producer = Producer({"bootstrap.servers": self.broker.address, "log_level": 0})
        for number in range(len(self.events), len(self.events) + EVENTS):
            event = Payment(f"card-{number % 7}", number)
            producer.produce(self.given, json.dumps({"card": event.card, "amount": number}), key=event.card)
            self.events.append(event)
        producer.produce(self.given, POISON)
        assert producer.flush(60) == 0

    def run(self) -> int:
        """In a process of its own: what its clients write to stderr is looked at too."""
        command = command_line("run", "job.py", "--mode", "local", "--root", str(self.root))
        command += ["--until-caught-up", "--json"]
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )
        self.said += [done.stdout, done.stderr]
        return done.returncode

    def command(self, *arguments: object) -> int:
        code, *said = call_in(self.folder, *arguments, **self.environment)
        self.said += said
        return code

    def rows(self) -> Counter[Seen]:
        found = committed_records(self.broker.address, self.made)
        return Counter(msgspec.json.decode(one.value(), type=Seen) for one in found)

    def expected(self) -> Counter[Seen]:
        return Counter(Seen(*row) for row in expected_journal(self.events))

    def places(self, word: str) -> list[str]:
        """Where a word is: files below the folder, by name or content, and "output"."""
        files = [path for path in self.folder.rglob("*") if path.is_file()]
        found = [str(path.relative_to(self.folder)) for path in files if word.encode() in _content(path)]
        return found + ["output"] * any(word in text for text in self.said)


def _content(path: Path) -> bytes:
    try:
        return path.name.encode() + path.read_bytes()
    except FileNotFoundError:  # files of a job that runs come and go
        return b""


def test_a_job_goes_from_topic_to_topic_and_nothing_shows_its_password(
    broker: SecuredKafkaServer, tmp_path: Path
) -> None:
    job = Secured(broker, tmp_path, "shown")
    job.environment["MECHANISM"] = "PLAIN"
    for _ in range(2):
        job.feed()
        assert job.run() == 0, job.said
    assert job.rows() == job.expected()
    about = ("--root", job.root)
    for arguments in (
        ("status", "secured", *about, "--json"),
        ("checkpoints", "secured", *about),
        ("logs", "secured", *about),
        ("history", "secured", *about),
        ("explain", "secured", *about),
        ("check", "job.py", *about),
        ("dead-letters", "list", "secured", *about),
        ("savepoint", "create", "job.py", "kept", *about),
        ("savepoint", "show", "job.py", "kept", *about),
        ("savepoint", "fork", "job.py", "kept", *about, "--as", "other", "--target", f"made={job.made}-other"),
    ):
        assert job.command(*arguments) == 0, (arguments, job.said[-2:])
    job.said += list(_console(job.root))
    assert not job.places(PASSWORD)
    assert "output" in job.places(USER), "the control: the user is shown, and found"
    assert any(place.startswith("root/secured/checkpoints/") for place in job.places("payments/0"))


def _console(root: Path) -> Iterator[str]:
    """What the pages of the console are made of."""
    with started(root, "console", str(root), "--listen", "0", "--json", sends=signal.SIGINT) as (output, _):
        text = ""
        while not text.endswith("}\n"):
            text += output.readline()
        yield text
        said: dict[str, Any] = json.loads(text)
        token = Path(said["token"]).read_text().strip()
        job = "/api/jobs/secured"
        for path in ("/api/overview", job, *(f"{job}/{page}" for page in _PAGES)):
            connection = http.client.HTTPConnection(said["url"].removeprefix("http://"), timeout=120)
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            response = connection.getresponse()
            assert response.status == 200, path
            yield response.read().decode()
            connection.close()


_PAGES = (
    "history",
    "epochs",
    "epochs/1",
    "explain",
    "dead-letters",
    "log",
    "log?errors=1",
    "savepoints",
    "savepoints/kept",
)


@pytest.mark.spark
def test_on_spark_the_password_is_in_one_file_of_its_owner_while_the_job_runs(
    broker: SecuredKafkaServer, tmp_path: Path
) -> None:
    job = Secured(broker, tmp_path, "running")
    job.feed()
    command = command_line("run", "job.py", "--mode", "microbatch", "--master", "local[2]", "--root", str(job.root))
    with (tmp_path / "said.txt").open("wb") as output:
        process = subprocess.Popen(command, cwd=tmp_path, env=job.environment, stdout=output, stderr=output)
    try:
        wait_for(lambda: _has_written(job) and job.rows() == job.expected(), process, tmp_path / "said.txt")
        (place,) = job.places(PASSWORD)  # the control of the test above: it would be found
        assert place.startswith("root/secured/secrets/") and (tmp_path / place).stat().st_mode & 0o077 == 0
        lines = [line for one in psutil.Process(process.pid).children(recursive=True) if (line := _command_line(one))]
        assert lines and not any(PASSWORD in line for line in lines)
    finally:
        process.terminate()
        process.wait(120)
    assert not job.places(PASSWORD)


def _command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # or one that has just ended
        return ""


def _has_written(job: Secured) -> bool:
    return bool(has_topic(job.broker.address, job.made))


@pytest.mark.parametrize(
    ("wrong", "why", "action"),
    [
        ({"KAFKA_PASSWORD": "wr0ng-of-jane"}, "invalid credentials with SASL mechanism SCRAM-SHA-512", "sasl.password"),
        ({"KAFKA_PASSWORD": "wr0ng-of-jane", "MECHANISM": "PLAIN"}, "Invalid username or password", "sasl.password"),
        ({"MECHANISM": "SCRAM-SHA-256"}, "supported mechanisms: SCRAM-SHA-512,PLAIN", "sasl.mechanism"),
        ({"AUTHORITY": "another"}, "certificate verify failed", "ssl.ca.location"),
    ],
    ids=["password", "plain-password", "mechanism", "certificate"],
)
def test_a_job_that_is_not_accepted_ends_soon_and_says_why(
    broker: SecuredKafkaServer, tmp_path: Path, wrong: dict[str, str], why: str, action: str, request: Any
) -> None:
    job = Secured(broker, tmp_path, f"refused-{request.node.callspec.id}")
    if "AUTHORITY" in wrong:
        wrong = {"AUTHORITY": str(Authority.made(tmp_path / "another").certificate)}
    job.environment |= wrong
    began = time.monotonic()
    assert job.run() == 1
    assert time.monotonic() - began < SOON + 10.0, "the program itself takes seconds to start on a busy machine"
    error = json.loads(job.said[0][job.said[0].index("\n{") :])["error"]
    assert error["code"] == "SW-KAFKA-DENIED" and why in error["cause"] and action in error["action"]
    assert f"{broker.secure_address} as user {USER}" in error["cause"]
    assert not job.places(PASSWORD) and not job.places("wr0ng")


def settings(broker: SecuredKafkaServer, **changed: str) -> dict[str, Any]:
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
        "ssl.ca.location": str(broker.certificate),
    }
    return given | {name.replace("_", "."): value for name, value in changed.items()}


def calls(at: Cluster, topic: str) -> dict[str, Any]:
    """Each client of a job: they meet a refusal at different places."""

    def read() -> None:
        feed = Feed(at, topic, 0, committed=True)
        try:
            feed.move(0)
            list(feed.take(1))
        finally:
            feed.close()

    def write() -> None:
        outbox = Outbox(at, "murmur2_random", 1_000_000)
        try:
            with outbox.translated("writing"):
                outbox.send(topic, [{"value": b"x"}])
                outbox.flush(topic)
        finally:
            outbox.end()

    def take_over() -> None:
        Transactions(at, "murmur2_random", 1_000_000, "streamwork.calls").end()

    return {"ask": lambda: describe(at, topic), "write": write, "read": read, "take over": take_over}


@pytest.mark.parametrize(
    ("changed", "why"), [({"sasl_password": "wr0ng"}, "credentials"), ({"ssl_ca_location": ""}, "certificate")]
)
def test_every_client_notices_that_it_is_refused(
    broker: SecuredKafkaServer, changed: dict[str, str], why: str, tmp_path: Path
) -> None:
    topic = f"made-calls-{why}"
    create_topic(broker.address, topic)
    for call in calls(Cluster(broker.secure_address, settings(broker)), topic).values():
        call()
    if "ssl_ca_location" in changed:
        changed = {"ssl_ca_location": str(Authority.made(tmp_path / "another").certificate)}
    for name, call in calls(Cluster(broker.secure_address, settings(broker, **changed)), topic).items():
        began = time.monotonic()
        with pytest.raises(StreamworkError, match=f"SW-KAFKA-DENIED.*{why}") as refused:
            call()
        assert time.monotonic() - began < SOON, name
        assert "wr0ng" not in str(refused.value) and refused.value.about_setup


def test_without_what_clients_report_a_refusal_is_a_silence(
    broker: SecuredKafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: the client itself waits, and then names no reason."""
    monkeypatch.setattr(cluster, "SECONDS", 3.0)
    monkeypatch.setattr(heard, "is_refused", lambda error: False)
    monkeypatch.setattr(cluster, "_answered", set[str]())
    with pytest.raises(StreamworkError, match="SW-KAFKA-UNREACHABLE"):
        describe(Cluster(broker.secure_address, settings(broker, sasl_password="wr0ng")), "made")


def test_a_right_that_is_missing_is_named(broker: SecuredKafkaServer) -> None:
    create_topic(broker.address, "seen-only")
    broker.grant(POOR, ResourceType.TOPIC, "seen-only", AclOperation.DESCRIBE)
    producer = Producer({"bootstrap.servers": broker.address, "log_level": 0})
    producer.produce("seen-only", b"x")
    assert producer.flush(60) == 0
    poor = Cluster(broker.secure_address, settings(broker, sasl_username=POOR, sasl_password=POOR_PASSWORD))
    made = calls(poor, "seen-only")
    assert made.pop("ask")() is not None
    for name, right in {"read": "TOPIC", "write": "(TOPIC|CLUSTER)", "take over": "TRANSACTIONAL_ID"}.items():
        began = time.monotonic()
        with pytest.raises(StreamworkError, match=f"SW-KAFKA-DENIED.*{right}_AUTHORIZATION_FAILED") as refused:
            made[name]()
        assert time.monotonic() - began < SOON, name
        assert "grant" in refused.value.action and POOR_PASSWORD not in str(refused.value)


def test_a_certificate_file_that_is_missing_is_named(broker: SecuredKafkaServer) -> None:
    with pytest.raises(StreamworkError, match="SW-KAFKA-SETTING.*ssl.ca.location is /nowhere/ca.pem"):
        describe(Cluster(broker.secure_address, settings(broker, ssl_ca_location="/nowhere/ca.pem")), "made")


def test_a_client_without_security_is_told_to_look_at_it(
    broker: SecuredKafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker closes the connection and gives no reason, so that this looks like a broker that is not there."""
    monkeypatch.setattr(cluster, "SECONDS", 3.0)
    with pytest.raises(StreamworkError, match="SW-KAFKA-UNREACHABLE") as refused:
        describe(Cluster(broker.secure_address), "made")
    assert "security.protocol" in refused.value.action
