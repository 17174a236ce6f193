"""Position: a vector of offsets with a partial order, and the same JSON in every file that holds one."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamwork.components import LedgerRow, Position
from streamwork.epoch.manifest import Manifest, Plan, SinkPart, to_bytes

NAMES = ["a/0", "a/1", "b/0", "inbox", "clock"]
positions = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 3)).map(Position)


@given(positions, positions)
def test_comparisons_are_component_by_component_and_a_missing_component_is_0(a: Position, b: Position) -> None:
    pairs = [(dict(a).get(name, 0), dict(b).get(name, 0)) for name in NAMES]
    assert a.reaches(b) == all(x >= y for x, y in pairs)
    assert (a == b) == all(x == y for x, y in pairs)
    assert a.beyond(b) == (all(x >= y for x, y in pairs) and any(x > y for x, y in pairs))
    assert a != b or hash(a) == hash(b)


@given(positions, positions, positions)
def test_reaching_is_a_partial_order(a: Position, b: Position, c: Position) -> None:
    assert a.reaches(a) and a.reaches(Position())
    assert not (a.reaches(b) and b.reaches(a)) or a == b
    assert not (a.reaches(b) and b.reaches(c)) or a.reaches(c)
    assert a.beyond(b) == (a.reaches(b) and a != b)


@given(positions, positions, positions)
def test_the_furthest_of_two_is_their_least_upper_bound(a: Position, b: Position, c: Position) -> None:
    both = a.furthest(b)
    assert both.reaches(a) and both.reaches(b)
    assert c.reaches(both) == (c.reaches(a) and c.reaches(b)), "nothing less reaches both"
    assert both == b.furthest(a) and a.furthest(a) == a and a.furthest(Position()) == a


@given(positions, positions)
def test_components_are_replaced_and_removed(a: Position, b: Position) -> None:
    moved = a.moved(b)
    assert all(moved[name] == (b[name] if name in b else a[name]) for name in NAMES)
    assert a.without({"a"}) == {name: offset for name, offset in a.items() if not name.startswith("a/")}
    assert {f"a/{part}": offset for part, offset in a.of("a").items()} == dict(a.without({"b", "inbox", "clock"}))
    assert a.sources == {name[0] for name in a if "/" in name}


@given(positions)
def test_a_position_survives_every_way_that_it_is_stored(position: Position) -> None:
    again: list[Position | None] = [
        Position.from_json(position.to_json()),
        Position.from_json(position.to_json().encode()),
        LedgerRow.from_json(LedgerRow(1, position, "m1").to_json()).position,
        pickle.loads(pickle.dumps(position)),
        copy.deepcopy(position),
    ]
    assert [dict(one or {}) for one in again] == [dict(position)] * len(again), "components that are 0 are kept, too"
    assert Position.from_json(position.to_json()).to_json() == position.to_json()


@pytest.mark.parametrize(
    "offsets",
    [
        {"a": 1},
        {"/0": 1},
        {"a/": 1},
        {"": 1},
        {3: 1},
        {"a/0": -1},
        {"a/0": 1.0},
        {"a/0": True},
        {"a/0": "1"},
        {"a/0": None},
    ],
)
def test_what_is_no_position_is_refused(offsets: Any) -> None:
    with pytest.raises(ValueError, match="is no (component|offset) of"):
        Position(offsets)


@pytest.mark.parametrize("text", ['{"a/0": -1}', '{"a": 1}', "[]", "1", "null", '{"a/0": 1.5}', "{"])
def test_json_that_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Position.from_json(text)
    stored = f'{{"fence": 1, "position": {text}, "manifest_sha256": ""}}'
    if text != "null":  # there it means that the sink was never written to
        with pytest.raises(msgspec.DecodeError):
            LedgerRow.from_json(stored)


def test_a_position_is_frozen() -> None:
    given_offsets = {"a/0": 1}
    position = Position(given_offsets)
    given_offsets["a/0"] = 2
    assert position["a/0"] == 1 and position["b/0"] == 0 and "b/0" not in position and position.get("b/0", 7) == 7
    with pytest.raises(AttributeError):
        position._offsets = {}
    with pytest.raises(TypeError):
        position["a/0"] = 2  # type: ignore[index]


def test_text_is_readable() -> None:
    assert str(Position()) == "the beginning"
    assert str(Position({"lines/0": 1200, "clock": 0})) == "clock at 1970-01-01 00:00:00 UTC, lines/0 at 1,200"
    assert str(Position({"clock": 10**30})).startswith("clock at 1,000"), "a damaged clock does not hide the error"


def test_files_have_the_bytes_that_they_always_had() -> None:
    """Written by the version before `Position` was a type; hashes in ledgers and children rest on them."""
    end = Position({"b/1": 7, "a/0": 0, "inbox": 2, "clock": 1_763_300_000_000_000})
    manifest = Manifest(3, 2, "ab", 1, "u", end, {}, {"out": SinkPart()}, {"b": {"processed": 7}}, "f")
    assert manifest.sha256 == "fcc587a943b4d78988fdc9d9a06d4fb2c145a5e168bbc749ffb7cc4c7cce426e"
    plan = Plan(3, 2, 1, Position({"b/1": 4}), end, (1_763_300_000_000_000,))
    assert to_bytes(plan) == (
        b'{\n "epoch": 3,\n "fence": 1,\n "from": {\n  "b/1": 4\n },\n "parent": 2,\n "seal": '
        b'"50c38f23d6a952ae9bc54e845f0f127af47c71377c4c8881d67142ff5cf4e777",\n "ticks": [\n  1763300000000000\n ],\n '
        b'"to": {\n  "a/0": 0,\n  "b/1": 7,\n  "clock": 1763300000000000,\n  "inbox": 2\n }\n}\n'
    )
    assert end.to_json() == '{"a/0":0,"b/1":7,"clock":1763300000000000,"inbox":2}'
