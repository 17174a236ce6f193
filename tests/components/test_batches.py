"""No code assumes that a table is one batch, and no batch is larger than Arrow's arrays can be."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamwork
from large_jobs import Page, Site, pages
from streamwork import Event, JobFailed
from streamwork.components import Key, batches, parquet_file
from streamwork.components.columns import Columns, as_columns, to_batch, to_batches, to_structs
from streamwork.state.rows import RowFormat, StateKind

SOURCE = Path(streamwork.__file__).parent
ALLOWED = {"components/batches.py", "components/parquet_file.py"}
JOINING = {"combine_chunks", "concat_batches", "concat_arrays", "unify_dictionaries", "write_table", "read_table"}
"""They make one of several, or fail, or keep several, depending on sizes: `components.batches` and `parquet_file` know how."""


def forbidden(code: str) -> list[str]:
    """Where code takes one batch or chunk for all of them."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Attribute) and node.attr in JOINING:
            found.append(f"line {node.lineno}: {node.attr}")
        picked = node.value if isinstance(node, ast.Subscript) else None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "next" and node.args:
            picked = node.args[0].args[0] if isinstance(node.args[0], ast.Call) and node.args[0].args else node.args[0]
        if isinstance(picked, ast.Call):
            picked = picked.func
        if isinstance(picked, ast.Attribute) and picked.attr in ("to_batches", "chunks", "iterchunks"):
            found.append(f"line {node.lineno}: one of {picked.attr}")
        if isinstance(node, ast.Attribute) and node.attr == "chunk":
            found.append(f"line {node.lineno}: chunk")
    return found


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_batches_are_joined_in_one_place_only(path: Path) -> None:
    name = path.relative_to(SOURCE).as_posix()
    if name in ALLOWED or name.startswith("bench/"):
        return
    assert not forbidden(path.read_text()), "use streamwork.components.batches or parquet_file"


@pytest.mark.parametrize(
    "code",
    [
        "pa.Table.from_batches(some).combine_chunks().to_batches()[0]",
        "table.to_batches()[0]",
        "next(iter(table.to_batches()))",
        "column.chunk(0)",
        "column.chunks[0]",
        "pa.concat_arrays(column.chunks)",
        "pq.write_table(table, path)",
    ],
)
def test_what_the_lint_refuses(code: str) -> None:
    assert forbidden(code)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(batches, "MOST_BYTES", 2_000)
    return 2_000


def all_within(some: list[pa.RecordBatch], limit: int) -> None:
    assert all(batch.num_rows == 1 or batch.nbytes <= limit for batch in some)


@settings(deadline=None)
@given(st.lists(st.integers(0, 600), max_size=60), st.integers(1, 40), st.integers(1, 8))
def test_joined_keeps_every_row_within_the_limit(sizes: list[int], rows: int, cut: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "MOST_BYTES", 700)
        whole = pa.table({"n": range(len(sizes)), "text": ["x" * size for size in sizes]})
        given = whole.to_batches(max_chunksize=cut)
        for some in (list(batches.joined(given, rows)), list(batches.joined(given))):
            all_within(some, 700)
            assert [n for batch in some for n in batch.column("n").to_pylist()] == list(range(len(sizes)))
        compacted = batches.compacted(pa.Table.from_batches(given, whole.schema))
        assert compacted.to_pylist() == whole.to_pylist()
        chosen = np.array(sorted(number for number in range(len(sizes)) for _ in range(number % 3)), np.int64)
        assert batches.take(compacted, chosen).to_pylist() == whole.take(pa.array(chosen)).to_pylist()


def test_events_become_several_batches(small: int) -> None:
    events = pages(200)
    made = to_batches(Page, events, "here")
    assert len(made) > 10
    all_within(made, small)
    assert [event for batch in made for event in to_structs(Page, batch)] == events
    pieces = as_columns(Page, [events[:50], Columns(Page, to_batch(Page, events[50:51], "here")), events[51:]], "here")
    all_within([piece.batch for piece in pieces], small)
    assert [event for piece in pieces for event in piece.events] == events


def test_a_parquet_file_is_read_row_group_by_row_group(small: int) -> None:
    table = pa.Table.from_batches(to_batches(Page, pages(200), "here"))
    data = parquet_file.to_bytes(table)
    assert parquet_file.from_bytes(data).to_pylist() == table.to_pylist()
    assert parquet_file.from_bytes(parquet_file.to_bytes(table.slice(0, 0))).schema == table.schema
    import pyarrow.parquet as pq

    file = pq.ParquetFile(pa.BufferReader(data))
    groups = [file.read_row_group(number) for number in range(file.num_row_groups)]
    assert len(groups) > 10 and all(group.num_rows == 1 or group.nbytes <= small for group in groups)


# ---- Arrow itself, with a lower limit -------------------------------------------------------------------------------


@pytest.fixture
def shrunk_arrow(monkeypatch: pytest.MonkeyPatch) -> int:
    """As Arrow does from 2 GiB on: several chunks of a text column, an error for one text that is too long."""
    limit, build = 1_000, pa.array

    def array(values: Any, kind: Any = None, **options: Any) -> Any:
        made = build(values, kind, **options)
        if kind != pa.string() or made.nbytes <= limit:
            return made
        if len(made) == 1:
            raise pa.ArrowCapacityError("array cannot contain more than 2147483646 bytes")
        return pa.chunked_array([made.slice(0, 1), made.slice(1)])

    monkeypatch.setattr(pa, "array", array)
    return limit


def test_what_arrow_makes_several_chunks_of_is_several_batches(shrunk_arrow: int) -> None:
    events = [page for page in pages(200) if len(page.text) + sum(map(len, page.words)) < 900]
    made = to_batches(Page, events, "here")
    assert len(made) > 10
    assert [event for batch in made for event in to_structs(Page, batch)] == events


def test_state_that_arrow_makes_several_chunks_of_is_several_pieces(shrunk_arrow: int) -> None:
    rows = RowFormat("sites", Page, Key(("site",)), Site, 256)
    state: Any = rows.new_state()
    for page in pages(300):
        state.records[page.site] = Site(page.number, page.words[:2], page.text)
    state.changed.update(state.records)
    expected = dict(state.records)
    assert len(rows.hashes(list(expected))) == len(expected)
    again: Any = rows.new_state()
    rows.decode(rows.encode(state, 1, everything=True), again)
    assert again.records == expected


class Noted(streamwork.Record):
    note: str = ""


def test_columns_that_arrow_makes_several_chunks_of_are_several_pieces(shrunk_arrow: int) -> None:
    rows = RowFormat("sites", Page, Key(("site",)), Noted, 256, kind=StateKind.COLUMNS)
    state: Any = rows.new_state()
    keys = [f"site-{number}" for number in range(100)]
    notes = np.array(["n" * (number % 200) for number in range(100)], object)
    for part in (slice(0, 50), slice(50, 100)):
        places = state.place(pa.record_batch({"site": keys[part]}))
        state.put("note", places, notes[part])
    again: Any = RowFormat("sites", Page, Key(("site",)), Noted, 256).new_state()
    rows.decode(rows.encode(state, 1, everything=False), again)
    assert again.records == {key: Noted("n" * (number % 200)) for number, key in enumerate(keys)}


class Note(Event):
    text: str


def test_one_event_that_no_array_can_hold_is_named(shrunk_arrow: int) -> None:
    with pytest.raises(JobFailed, match="SW-TYPE-VALUE.*Note.text: expected less than 2 GiB"):
        to_batches(Note, [Note("fine"), Note("x" * 2_000)], "here")
