"""Answers as JSON or Arrow.

JSON is for small answers: values as in `statefiles.plain_values`, keys as objects with the names of their parts. An answer in
Arrow is a stream of the format of Arrow IPC; its origin is in the header `streamwork-answer` and in the metadata of its schema.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from streamwork.query.answer import Change, Stamp
from streamwork.query.shape import Shape
from streamwork.serving.http import ARROW, Response, too_large
from streamwork.statefiles.plain_values import plain_lists, plain_rows

HEADER = b"streamwork-answer"
MOST_JSON_ROWS = 10_000
MOST_JSON_BYTES = 32 << 20
MOST_ARROW_ROWS = 1_000_000
PIECE_ROWS = 1 << 16
_encoder = msgspec.json.Encoder()


def record(shape: Shape, row: pa.RecordBatch | None, stamp: Stamp) -> Response:
    """The answer for one key."""
    found: Any = None
    if row is not None:
        found = shape.records_of(row)[0]
        floats = shape.floats
        if floats is None or not all(math.isfinite(getattr(found, name) or 0.0) for name in floats):
            found = _plain(shape, row)  # JSON has no NaN
    return Response(body=_encoder.encode({"record": found, **origin(stamp)}))


def rows(shape: Shape, table: pa.Table, stamp: Stamp, more: bool, arrow: bool) -> Response:
    if arrow:
        return table_as_arrow(table, {**origin(stamp), "more": more})
    found = [split(shape, row) for row in plain_rows(table)]
    return in_json({"rows": found, "more": more, **origin(stamp)})


def many(shape: Shape, asked: Sequence[Any], table: pa.Table, stamp: Stamp, arrow: bool) -> Response:
    """One row for each requested key, in that order; in Arrow, only the rows that are there."""
    if arrow:
        return table_as_arrow(table, {**origin(stamp), "more": False})
    found = {}
    for key, row in zip(keys_of(shape, table), plain_rows(table), strict=True):
        found[key] = split(shape, row)["record"]
    keys = keys_of(shape, pa.Table.from_batches([shape.key_batch(asked)]))
    names = [split(shape, row)["key"] for row in plain_rows(pa.Table.from_batches([shape.key_batch(asked)]))]
    answers = [{"key": name, "record": found.get(key)} for name, key in zip(names, keys, strict=True)]
    return in_json({"rows": answers, "more": False, **origin(stamp)})


def keys_of(shape: Shape, table: pa.Table) -> list[Any]:
    return [key for batch in table.to_batches() for key in shape.keys_of(batch)]


def sql_result(table: pa.Table, stamp: Stamp, arrow: bool) -> Response:
    """Lists, because several columns may have one name."""
    if arrow:
        return table_as_arrow(table, origin(stamp))
    if table.num_rows > MOST_JSON_ROWS:
        raise too_large(f"the result has {table.num_rows:,} rows", f"add a LIMIT, or accept {ARROW}")
    columns = [{"name": field.name, "type": str(field.type)} for field in table.schema]
    return in_json({"columns": columns, "rows": list(plain_lists(table)), **origin(stamp)})


def in_json(answer: Any) -> Response:
    body = _encoder.encode(answer)
    if len(body) > MOST_JSON_BYTES:
        raise too_large(f"the answer has {len(body):,} bytes", f"ask for fewer rows, or accept {ARROW}")
    return Response(body=body)


def table_as_arrow(table: pa.Table, facts: dict[str, Any]) -> Response:
    header = _encoder.encode(facts)
    sink = pa.BufferOutputStream()
    schema = table.schema.with_metadata({HEADER: header})
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in table.to_batches():
            writer.write_batch(batch.replace_schema_metadata(schema.metadata))
    return Response(kind=ARROW, body=memoryview(sink.getvalue()), headers=((HEADER, header),))  # type: ignore[arg-type]


def began(epoch: int) -> bytes:
    """The first event of a watch: the checkpoint that its changes follow."""
    return b"event: began\nid: %d\ndata: %s\n\n" % (epoch, _encoder.encode({"epoch": epoch}))


def event(change: Change, arrow: bool) -> bytes:
    """A change as a server-sent event."""
    shape = change.shape
    if change.rows.num_rows + change.gone.num_rows > MOST_JSON_ROWS:  # too many to send: they can be read
        return event(Change(change.epoch, shape, change.rows.slice(0, 0), change.gone.slice(0, 0), True), arrow)
    if arrow:
        found: dict[str, Any] = {
            "rows": _base64(change.rows),
            "gone": _base64(change.gone),
            "regressed": change.regressed,
        }
    else:
        rows = [split(shape, row) for row in plain_rows(change.rows)]
        found = {"rows": rows, "gone": list(plain_rows(change.gone)), "regressed": change.regressed}
    data = _encoder.encode({"epoch": change.epoch, **found})
    return b"event: change\nid: %d\ndata: %s\n\n" % (change.epoch, data)


def _base64(table: pa.Table) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write(table)
    return base64.b64encode(memoryview(sink.getvalue())).decode()


def pieces(schema: pa.Schema, batches: Iterator[pa.RecordBatch], facts: dict[str, Any]) -> Iterator[bytes]:
    """A stream in the format of Arrow IPC, piece by piece."""
    schema = schema.with_metadata({HEADER: _encoder.encode(facts)})
    sink = _Sink()
    with pa.ipc.new_stream(pa.PythonFile(sink, "w"), schema) as writer:
        for batch in batches:
            for start in range(0, batch.num_rows, PIECE_ROWS):
                writer.write_batch(batch.slice(start, PIECE_ROWS).replace_schema_metadata(schema.metadata))
                yield sink.taken()
    yield sink.taken()


class _Sink:
    """Collects what a writer writes."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        self.closed = True

    def taken(self) -> bytes:
        found = b"".join(self._parts)
        self._parts.clear()
        return found


def split(shape: Shape, row: dict[str, Any]) -> dict[str, Any]:
    """A row as key and record."""
    return {"key": {name: row.pop(name) for name in shape.key}, "record": row}


def origin(stamp: Stamp) -> dict[str, Any]:
    return {
        "epoch": stamp.epoch,
        "committed": stamp.committed,
        "age": stamp.age,
        "regressed": stamp.regressed,
        "possibly_undone": stamp.possibly_undone,
    }


def _plain(shape: Shape, row: pa.RecordBatch) -> dict[str, Any]:
    (found,) = plain_rows(pa.Table.from_batches([row]).select([n for n in shape.schema.names if n not in shape.key]))
    return found
