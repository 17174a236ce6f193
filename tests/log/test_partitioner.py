"""Keys to partitions: the golden vectors, key by key and column by column."""

from __future__ import annotations

import json
import re
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import pytest

from streamwork.components import Digits, Event
from streamwork.components.columns import to_batch
from streamwork.components.keys import Key, canonical
from streamwork.log.partitioner import Partitioner

FILE = json.loads((Path(__file__).parent.parent / "components" / "key_vectors.json").read_text())
READ: dict[str, Any] = {
    "bytes": bytes.fromhex,
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "decimal": Decimal,
}
KINDS: dict[str, Any] = {"str": str, "int": int, "bool": bool, "bytes": bytes, "datetime": datetime, "date": date}


def event_and_value(vector: dict[str, Any]) -> tuple[type[Event], tuple[str, ...], list[Any]]:
    fields, values = [], []
    for place, (kind, value) in enumerate(zip(vector["types"], vector["values"], strict=True)):
        annotation = KINDS.get(kind)
        if digits := re.fullmatch(r"decimal\((\d+),(\d+)\)", kind):
            kind, annotation = "decimal", Annotated[Decimal, Digits(int(digits[1]), int(digits[2]))]
        fields.append((f"k{place}", annotation | None))
        values.append(value if value is None or kind not in READ else READ[kind](value))
    event = msgspec.defstruct("Keyed", fields, bases=(Event,), frozen=True, gc=False)
    return event, tuple(name for name, _ in fields), values  # type: ignore[return-value]


@pytest.mark.parametrize("vector", FILE["vectors"], ids=lambda v: f"{v['types']}{v['values']}")
def test_golden_vectors(vector: dict[str, Any]) -> None:
    event, fields, values = event_and_value(vector)
    key = Key.of(event, fields)
    value = values[0] if len(values) == 1 else tuple(values)
    if not key.scales:
        assert canonical(value).hex() == vector["canonical"]
    assert key.groups([value], FILE["groups"]) == [vector["group"]]
    # The log's way, by columns, finds the same group: with as many partitions as groups, the partition is the group.
    batch = to_batch(event, [event(*values)] * 3, "test")
    ((partition, part),) = Partitioner(event, fields, FILE["groups"], FILE["groups"]).split(batch)
    assert partition == vector["group"]
    assert part.num_rows == 3


class Keyed(Event):
    key: str
    number: int


def test_splitting_keeps_order_and_loses_nothing() -> None:
    rng = np.random.default_rng(1)
    partitioner, key = Partitioner(Keyed, ("key",), 5, 256), Key.of(Keyed, "key")
    for _ in range(20):
        events = [Keyed(f"k{k}", n) for n, k in enumerate(rng.integers(0, 200, 300).tolist())]
        seen = []
        for partition, part in partitioner.split(to_batch(Keyed, events, "test")):
            numbers = part.column("number").to_pylist()
            assert numbers == sorted(numbers)
            assert {g * 5 // 256 for g in key.groups(part.column("key").to_pylist())} == {partition}
            seen += numbers
        assert sorted(seen) == list(range(300))
