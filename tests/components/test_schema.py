from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, Optional

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamwork import Digits, Event, JobFailed, WrongUse
from streamwork.components.columns import to_batch, to_structs
from streamwork.components.schema import arrow_schema


class Place(Event):
    name: str
    at: Optional[datetime] = None  # noqa: UP045 (people write it)


class Everything(Event):
    text: str
    whole: int
    real: float
    flag: bool
    raw: bytes
    when: datetime
    day: date
    price: Annotated[Decimal, Digits(12, 2)]
    tags: list[str]
    sizes: dict[str, int]
    place: Place
    places: list[Place]
    maybe: int | None
    maybe_place: Place | None
    maybe_tags: list[int | None] | None


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
whole = st.integers(-(2**63), 2**63 - 1)
times = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))
places = st.builds(Place, texts, st.none() | times)
everything = st.builds(
    Everything,
    text=texts,
    whole=whole,
    real=st.floats(allow_nan=False),
    flag=st.booleans(),
    raw=st.binary(max_size=8),
    when=times,
    day=st.dates(),
    price=st.decimals("-9999999999", "9999999999", places=2),
    tags=st.lists(texts, max_size=3),
    sizes=st.dictionaries(texts, whole, max_size=3),
    place=places,
    places=st.lists(places, max_size=3),
    maybe=st.none() | whole,
    maybe_place=st.none() | places,
    maybe_tags=st.none() | st.lists(st.none() | whole, max_size=3),
)


@given(st.lists(everything, max_size=6))
def test_events_come_back_from_arrow_as_they_went_in(events: list[Everything]) -> None:
    batch = to_batch(Everything, events, "test")
    batch.validate(full=True)
    assert batch.schema == arrow_schema(Everything)
    assert to_structs(Everything, batch) == events


@given(st.lists(everything, min_size=1, max_size=3))
def test_they_survive_arrow_s_file_format(events: list[Everything]) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, arrow_schema(Everything)) as writer:
        writer.write_batch(to_batch(Everything, events, "test"))
    assert to_structs(Everything, pa.ipc.open_stream(sink.getvalue()).read_next_batch()) == events


@given(st.lists(everything, min_size=1, max_size=3))
def test_and_parquet(events: list[Everything]) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_batches([to_batch(Everything, events, "test")]), sink)
    table = pq.read_table(pa.BufferReader(sink.getvalue()))
    assert table.schema.equals(arrow_schema(Everything))
    assert to_structs(Everything, table.combine_chunks().to_batches()[0]) == events


def example(**changes: Any) -> Everything:
    fitting: dict[str, Any] = {
        "text": "", "whole": 1, "real": 1.0, "flag": True, "raw": b"", "when": datetime.now(UTC), "day": date.today(),
        "price": Decimal("1.50"), "tags": [], "sizes": {}, "place": Place("x"), "places": [], "maybe": None,
        "maybe_place": None, "maybe_tags": None,
    }  # fmt: skip
    return Everything(**{**fitting, **changes})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("text", 1),
        ("text", None),
        ("whole", 1.5),
        ("whole", True),
        ("whole", 2**63),
        ("whole", math.nan),
        ("real", "1"),
        ("real", True),
        ("flag", 1),
        ("raw", "text"),
        ("when", datetime(2026, 1, 1)),
        ("when", date(2026, 1, 1)),
        ("day", datetime(2026, 1, 1, tzinfo=UTC)),
        ("price", Decimal("1.505")),
        ("price", 1.5),
        ("tags", "ab"),
        ("tags", [1]),
        ("sizes", {"a": "b"}),
        ("sizes", {1: 1}),
        ("place", None),
        ("place", {"name": "x"}),
        ("places", [None]),
        ("maybe", "1"),
        ("maybe_tags", [1.5]),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_is_refused_naming_field_and_event(field: str, value: object) -> None:
    with pytest.raises(JobFailed) as caught:
        to_batch(Everything, [example(text="good"), example(**{"text": "the culprit", field: value})], "per-card")
    assert caught.value.code == "SW-TYPE-VALUE"
    assert f"Everything.{field}" in caught.value.cause
    assert "per-card" in caught.value.cause


def test_the_event_is_named() -> None:
    with pytest.raises(JobFailed, match="the culprit"):
        to_batch(Everything, [example(text="good"), example(text="the culprit", whole=1.5)], "per-card")


def test_another_type_of_event_is_refused() -> None:
    with pytest.raises(JobFailed, match="SW-TYPE-EVENT.*expected Place but got Everything"):
        to_batch(Place, [Place("x"), example()], "per-card")


def test_subclasses_of_values_are_welcome() -> None:
    class Colour(str):
        pass

    assert to_batch(Place, [Place(Colour("red"))], "test").column(0).to_pylist() == ["red"]


@pytest.mark.parametrize("annotation", [list, dict, set[int], complex, int | str, dict[int, str], Decimal, object])
def test_a_type_without_a_place_in_arrow_is_refused(annotation: Any) -> None:
    kind = type("Strange", (Event,), {"__annotations__": {"field": annotation}})
    with pytest.raises(WrongUse, match="SW-TYPE-FIELD.*Strange.field"):
        arrow_schema(kind)


def test_a_type_that_is_not_known_is_told() -> None:
    class Unknown(Event):
        field: Nowhere  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(WrongUse, match="SW-TYPE-FIELD.*Nowhere"):
        arrow_schema(Unknown)


def test_names_with_two_underscores_are_ours() -> None:
    class Strange(Event):
        __epoch: int

    with pytest.raises(WrongUse, match="SW-TYPE-FIELD.*Strange.__epoch starts with two underscores"):
        arrow_schema(Strange)
