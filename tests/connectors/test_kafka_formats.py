"""Values of Kafka records to events: Arrow columns as objects, and Avro with a schema registry. No broker is needed."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sample import Payment
from schema_registry import SchemaRegistry
from streamwork import AvroFormat, Digits, Event, JobFailed
from streamwork.components.columns import Columns
from streamwork.connectors.kafka import avro, json_columns, registry
from streamwork.connectors.kafka.formats import JsonFormat, RawFormat


class Plain(Event):
    text: str
    number: int
    ratio: float
    flag: bool
    maybe: str | None = None


class Nested(Event):
    tags: list[str]


class Named(Event, rename={"text": "TEXT"}):
    text: str


class Defaulted(Event):
    number: int = 7


_TOKENS = {
    "text": ['"a"', '"\\u00e9"', '"\\ud800"', '"\x01"', "1", "null", '"\\u0000"', '"a\\nb"', '"}{"', '"NaN"', '"Infinite"'],
    "number": ["1", "-0", "1.0", "1e3", '"1"', "null", str(2**63), str(2**63 - 1), str(-(2**63)), "01", "true"],
    "ratio": ["1", "1.5", "1e999", "NaN", "9007199254740993", "-0", "-0.0", "1e-400", "0.1", '"1.5"', "null", "Infinity"],
    "flag": ["true", "false", "null", "1", '"true"', "True"],
    "maybe": ['"x"', "null", "1", None],
    "more": [None, '[1,{"a":2}]', "01", '"\\ud800"', "NaN", "1e999", '{"text":3}',
             '1,"number":2', '1,"\\u006eumber":5', "", '1}{"text":"a"'],
}  # fmt: skip
_EDGES = [("", ""), (" ", ""), ("", " "), ("\ufeff", ""), ("", "x"), ("", "}"), ("{", "}"), ("\n", ""), ("", "\n{}")]


@st.composite
def values(draw: st.DrawFn) -> bytes:
    """A JSON object of the plain event, in which now and then something is odd."""
    chosen = {}
    for name, tokens in _TOKENS.items():
        usual = tokens[0]
        chosen[name] = draw(st.sampled_from([usual, usual, usual, usual, *tokens]))
    fields = [f'"{name}":{token}' for name, token in chosen.items() if token is not None]
    before, after = draw(st.sampled_from([_EDGES[0]] * 12 + _EDGES))
    text = before + "{" + ",".join(draw(st.permutations(fields))) + "}" + after
    return text.encode("utf-8", "surrogatepass")


@settings(max_examples=400, deadline=None)
@given(st.lists(values(), min_size=1, max_size=4))
def test_columns_have_the_events_that_the_decoder_of_objects_gives(some: list[bytes]) -> None:
    """Arrow may leave values to the other decoder; what it accepts must be the same, to the last bit."""
    decoder = JsonFormat().decoder(Plain)
    try:
        found = json_columns.columns(Plain, some)
    except Exception:
        return
    assert repr(found.events) == repr([decoder.one(value) for value in some])


def test_usual_values_become_columns() -> None:
    """The control of the test above: the usual case does not fall back."""
    some = [
        json.dumps({"more": 1, "text": "ü\n", "number": n, "ratio": n / 3, "flag": True}).encode() for n in range(9)
    ]
    found = json_columns.columns(Plain, some)
    assert found.events == JsonFormat().decoder(Plain).many(some)
    assert found.events == [Plain("ü\n", n, n / 3, True, None) for n in range(9)]


class Line(Event):
    text: str


def test_raw_values_become_columns() -> None:
    decoder = RawFormat("text").decoder(Line)
    found = decoder.columns([b"a", "ü".encode()])
    assert isinstance(found, Columns) and found.events == decoder.many([b"a", "ü".encode()]) == [Line("a"), Line("ü")]
    with pytest.raises(Exception, match="UTF8"):
        decoder.columns([b"\xff"])


@pytest.mark.parametrize("kind", [Nested, Named, Defaulted])
def test_events_that_arrow_would_read_differently_are_not_plain(kind: type[Event]) -> None:
    assert not json_columns.is_plain(kind)


# ---- Avro ----------------------------------------------------------------------------------------------------------------


class Order(Event):
    id: str
    amount: int
    at: datetime
    price: Annotated[Decimal, Digits(10, 2)]
    note: str = "none"


class Sale(Event):
    by: dict[str, dict[str, str]]
    id: dict[str, str]


_FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "string"},
    {"name": "amount", "type": "long"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
]
_SCHEMAS: dict[int, dict[str, Any]] = {
    1: {"type": "record", "name": "Order", "fields": _FIELDS},
    2: {"type": "record", "name": "Order", "fields": [{"name": "note", "type": ["null", "string"]}, *_FIELDS[::-1]]},
    3: {"type": "record", "name": "Order", "fields": _FIELDS[:1]},
}
AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
WRITTEN = {"id": "o1", "amount": 3, "at": AT, "price": Decimal("1.50"), "note": "fast"}


@pytest.fixture
def schemas(monkeypatch: pytest.MonkeyPatch) -> Iterator[SchemaRegistry]:
    monkeypatch.setattr(registry, "_PAUSE", 0.0)
    monkeypatch.setattr(avro, "_schemas", {})
    with SchemaRegistry.started() as server:
        for number, schema in _SCHEMAS.items():
            assert server.register(schema) == number
        assert server.register("syntax", schemaType="PROTOBUF") == 4
        assert server.register("{}", references=[{"name": "Item", "subject": "items", "version": 1}]) == 5
        yield server


def wire(number: int, row: dict[str, Any]) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(_SCHEMAS[number]), row)
    return b"\0" + number.to_bytes(4, "big") + body.getvalue()


def test_avro_is_decoded_with_the_schema_of_its_writer(schemas: SchemaRegistry) -> None:
    schemas.failing = 2
    decoder = AvroFormat(schemas.url).decoder(Order)
    assert decoder.columns([wire(1, WRITTEN)]) is None
    first, second, third = decoder.many([wire(1, WRITTEN), wire(2, WRITTEN), wire(1, WRITTEN)])
    assert first == third == Order("o1", 3, AT, Decimal("1.50"))
    assert second == Order("o1", 3, AT, Decimal("1.50"), "fast")
    assert schemas.asked == ["1", "1", "1", "2"], "twice without success, and each schema once"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"", "does not begin with the number"),
        (b"{}", "does not begin with the number"),
        (b"\x01" + wire(1, WRITTEN)[1:], "does not begin with the number"),
        (b"\0\0\0\0\x07rest", "has no schema 7"),
        (b"\0\0\0\0\x04rest", "is of type PROTOBUF, not AVRO"),
        (b"\0\0\0\0\x05rest", "has no version 1 of schema items"),
        (wire(1, WRITTEN)[:-2], "does not fit the schema"),
        (wire(1, WRITTEN) + b"x", "longer than the schema"),
        (wire(3, {"id": "o1"}), "amount"),
    ],
)
def test_a_value_that_is_not_avro_of_its_schema_is_named(schemas: SchemaRegistry, value: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        AvroFormat(schemas.url).decoder(Order).one(value)


def test_a_schema_may_refer_to_others(schemas: SchemaRegistry) -> None:
    """The registry gives each with its own references; one that two others refer to is read once."""

    def register(name: str, fields: dict[str, Any], *references: str) -> int:
        made = {"type": "record", "name": name, "fields": [{"name": one, "type": kind} for one, kind in fields.items()]}
        named = [{"name": one, "subject": f"of/{one}", "version": 1} for one in references]
        return schemas.register(made, f"of/{name}", references=named)

    register("shop.Id", {"text": "string"})
    register("shop.Customer", {"id": "shop.Id"}, "shop.Id")
    number = register("shop.Sale", {"by": "shop.Customer", "id": "shop.Id"}, "shop.Customer", "shop.Id")
    value = b"\0" + number.to_bytes(4, "big") + b"\x04c1" + b"\x04s1"
    assert AvroFormat(schemas.url).decoder(Sale).one(value) == Sale({"id": {"text": "c1"}}, {"text": "s1"})
    assert schemas.asked == [str(number), "1", "1"]


def test_a_registry_may_want_a_user_who_is_not_shown(schemas: SchemaRegistry) -> None:
    schemas.wanted = "Basic " + base64.b64encode(b"jane:hunter2-long").decode()
    assert AvroFormat(schemas.url, user="jane:hunter2-long").decoder(Order).one(wire(1, WRITTEN)).id == "o1"
    avro._schemas.clear()
    with pytest.raises(JobFailed, match="SW-KAFKA-REGISTRY: schema 1 .* 401") as refused:
        AvroFormat(schemas.url, user="jane:hunter3-long").decoder(Order).one(wire(1, WRITTEN))
    assert refused.value.about_setup and "hunter" not in str(refused.value) and "amFuZ" not in str(refused.value)


def test_a_registry_that_does_not_answer_is_not_a_bad_event(schemas: SchemaRegistry) -> None:
    schemas.failing = 99
    with pytest.raises(JobFailed, match="SW-KAFKA-REGISTRY") as failed:
        AvroFormat(schemas.url).decoder(Order).many([wire(1, WRITTEN)])
    assert failed.value.retryable and not failed.value.about_one_event
    assert len(schemas.asked) == registry.ATTEMPTS


def test_payments_are_plain() -> None:
    assert json_columns.is_plain(Payment) and json_columns.is_plain(Plain)
