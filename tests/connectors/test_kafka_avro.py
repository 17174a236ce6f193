"""Avro with a schema registry, through a real broker: evolved schemas, and values that cannot be decoded."""

from __future__ import annotations

import base64
import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Producer

from commands import call
from kafka_broker.reading import committed_records, create_topic
from kafka_broker.server import KafkaServer
from sample import run_job
from schema_registry import SchemaRegistry
from servers import kafka  # noqa: F401  (fixture)
from streamwork import AvroFormat, Backoff, Event, Job, JobFailed, KafkaSink, KafkaSource
from streamwork.connectors.kafka import avro, registry
from streamwork.connectors.kafka.feed import feeds
from streamwork.observe.dead_letters import DeadLetterBook

pytestmark = pytest.mark.slow
_numbers = itertools.count()
SECRET = "hunter2-long"


class Order(Event):
    """As of the second schema; `note` and `tags` are new in it."""

    id: int
    customer: str
    note: str = "none"
    tags: list[str] = []


def record(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "fields": [{"name": name, "type": kind} for name, kind in fields]}


TAGS = {"type": "array", "items": "string"}
FIRST = record(("id", "int"), ("customer", "string"), ("dropped", "double"))
SECOND = record(("tags", TAGS), ("note", ["null", "string"]), ("customer", "string"), ("id", "long"))
WITHOUT = record(("id", "long"))


class Orders:
    """A topic with one partition, so that the offset of a record is its place."""

    def __init__(self, server: KafkaServer, schemas: SchemaRegistry, folder: Path) -> None:
        number = next(_numbers)
        self.server, self.schemas, self.root = server, schemas, folder / "root"
        self.given, self.made = f"orders-{number}", f"read-{number}"
        create_topic(server.address, self.given)
        self.first, self.second, self.without = map(schemas.register, (FIRST, SECOND, WITHOUT))

    def row(self, id: int, schema: int) -> tuple[bytes, Order]:
        if schema == self.first:
            row = {"id": id, "customer": f"c{id % 3}", "dropped": 1.5}
            return self.schemas.wire(schema, row), Order(id, f"c{id % 3}")
        order = Order(id, f"c{id % 3}", "fast", ["a", "b"])
        return self.schemas.wire(schema, msgspec.to_builtins(order)), order

    def write(self, *values: bytes | None) -> None:
        producer = Producer({"bootstrap.servers": self.server.address, "log_level": 0})
        for value in values:
            producer.produce(self.given, value)
        assert producer.flush(60) == 0

    def run(self, on_error: Any = None, user: str = "", restart: bool = False) -> Any:
        policy = Backoff(max_restarts=20, within="1h", first="10ms", factor=1.0, most="10ms")
        job = Job("orders", checkpoint_every=0, restart=policy)
        source = KafkaSource(
            self.server.address,
            self.given,
            Order,
            format=AvroFormat(self.schemas.url, user=user),
            max_events=10,
            on_error=on_error,
        )
        job.source(source, id="orders").sink(KafkaSink(self.server.address, self.made), id="read")
        return run_job(job, self.root, restart=restart)

    def rows(self) -> list[Order]:
        found = committed_records(self.server.address, self.made)
        return [msgspec.json.decode(one.value(), type=Order) for one in found]


@pytest.fixture
def orders(kafka: KafkaServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Orders]:  # noqa: F811
    monkeypatch.setattr(registry, "_PAUSE", 0.0)
    monkeypatch.setattr(avro, "_schemas", {})
    with SchemaRegistry.started() as schemas:
        yield Orders(kafka, schemas, tmp_path)
    feeds.close()


def test_a_topic_whose_schema_evolves_between_and_within_runs(orders: Orders) -> None:
    """Each value is read with the schema of its own writer, whatever their order; each schema is fetched once."""
    wanted: list[Order] = []
    for kinds in ([orders.first] * 20, [orders.first, orders.second] * 15, [orders.second] * 20):
        made = [orders.row(len(wanted) + place, kind) for place, kind in enumerate(kinds)]
        orders.write(*(value for value, _ in made))
        wanted += [order for _, order in made]
        orders.run()
        assert orders.rows() == wanted
    assert orders.schemas.asked == [str(orders.first), str(orders.second)]


def bad(orders: Orders) -> dict[str, bytes | None]:
    """Values that are no orders, and a part of the reason that is given."""
    good, _ = orders.row(1, orders.second)
    return {
        "has no schema 77": b"\0\0\0\0\x4d" + good[5:],
        "does not fit the schema": good[:-1] if good[-1] else good[:8],
        "longer than the schema": good + b"\xff\xfe",
        "does not begin with the number of a schema": b'{"id":1,"customer":"c1"}',
        "customer": orders.schemas.wire(orders.without, {"id": 5}),
        "no value (a tombstone)": None,
    }


def test_values_that_cannot_be_decoded_become_dead_letters(orders: Orders) -> None:
    wanted: list[Order] = []
    for value in bad(orders).values():
        made = [orders.row(len(wanted) + place, orders.second) for place in range(4)]
        orders.write(*(one for one, _ in made), value)
        wanted += [order for _, order in made]
    outcome = orders.run("dead-letter")
    assert orders.rows() == wanted and outcome.dead_letters == len(bad(orders))
    letters = DeadLetterBook(orders.root, "orders").all()
    for place, (one, (why, value)) in enumerate(zip(letters, bad(orders).items(), strict=True)):
        assert why in one.letter.error and f"partition 0, offset {5 * place + 4}" in one.letter.error
        assert kept(one.letter.event) == (value or b""), "the value can be had back, byte for byte"
    code, said, _ = call("dead-letters", "show", "orders", letters[0].letter.id, "--root", orders.root)
    assert code == 0 and letters[0].letter.error in said


def kept(text: str) -> bytes:
    return base64.b64decode(text[7:]) if text.startswith("base64:") else text.encode()


def test_values_that_cannot_be_decoded_are_dropped(orders: Orders) -> None:
    made = [orders.row(place, orders.first) for place in range(8)]
    orders.write(*bad(orders).values(), *(value for value, _ in made))
    outcome = orders.run("drop")
    assert orders.rows() == [order for _, order in made] and outcome.dead_letters == 0


@pytest.mark.parametrize("why", ["has no schema 77", "does not fit the schema", "longer than the schema"])
def test_a_value_that_cannot_be_decoded_ends_the_job_and_is_named(orders: Orders, why: str) -> None:
    orders.write(*(orders.row(place, orders.first)[0] for place in range(3)), bad(orders)[why])
    with pytest.raises(JobFailed, match=f"SW-SOURCE-BAD-EVENT: topic {orders.given}, partition 0, offset 3: .*{why}"):
        orders.run("fail", restart=True)


def test_any_damage_is_either_noticed_or_an_event(orders: Orders) -> None:
    """Bytes are changed, removed and added at random. The job goes on; what it takes for an event is one."""
    rng = random.Random(20)
    values = []
    for place in range(300):
        value = bytearray(orders.row(place, orders.second)[0])
        at = rng.randrange(len(value))
        damage = rng.choice(["change", "cut", "add"])
        if damage == "change":
            value[at] ^= 1 << rng.randrange(8)
        elif damage == "cut":
            del value[at:]
        else:
            value[at:at] = rng.randbytes(3)
        values.append(bytes(value))
    last, order = orders.row(1000, orders.second)
    orders.write(*values, last)
    outcome = orders.run("dead-letter")
    rows = orders.rows()
    assert rows[-1] == order and len(rows) + outcome.dead_letters == len(values) + 1
    assert outcome.dead_letters > 100


def test_a_registry_that_is_away_for_a_while_costs_no_event(orders: Orders) -> None:
    """It is not the values' fault: nothing is dropped, the job restarts."""
    made = [orders.row(place, orders.first) for place in range(5)]
    orders.write(*(value for value, _ in made))
    orders.run("drop")
    more = [orders.row(5 + place, orders.second) for place in range(5)]
    orders.write(*(value for value, _ in more))
    avro._schemas.clear()  # another process
    orders.schemas.failing = 3 * registry.ATTEMPTS
    with pytest.raises(JobFailed, match="SW-KAFKA-REGISTRY: .* 503"):
        orders.run("drop", restart=True)  # nothing was read since the start: the address may be wrong
    orders.schemas.failing = registry.ATTEMPTS - 1
    orders.run("drop")
    assert orders.rows() == [order for _, order in (*made, *more)]


def test_a_registry_that_refuses_the_user_is_named_without_the_password(orders: Orders) -> None:
    orders.schemas.wanted = "Basic " + base64.b64encode(f"jane:{SECRET}".encode()).decode()
    value, order = orders.row(1, orders.first)
    orders.write(value)
    with pytest.raises(JobFailed, match="SW-KAFKA-REGISTRY: .* 401") as refused:
        orders.run("drop", user=f"jane:{SECRET}-wrong")
    assert SECRET not in str(refused.value) and "rights of its user" in refused.value.action
    orders.run("drop", user=f"jane:{SECRET}")
    assert orders.rows() == [order]
    encoded = base64.b64encode(f"jane:{SECRET}".encode())
    texts = [path.read_bytes() for path in orders.root.rglob("*") if path.is_file()]
    assert texts and not any(SECRET.encode() in text or encoded[:16] in text for text in texts)
