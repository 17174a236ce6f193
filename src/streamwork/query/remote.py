"""`RemoteState`: the same questions as of `query.open`, asked of a server: `query.connect`."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator, Mapping, Sequence
from email.message import Message
from typing import Any, TypeVar, cast
from urllib.parse import quote, urlencode

import msgspec
import pyarrow as pa

from streamwork.components import Record
from streamwork.query.answer import (
    Answer,
    Answers,
    Change,
    Consistency,
    Count,
    Selection,
    Stamp,
    TableAnswer,
)
from streamwork.query.connection import Http
from streamwork.query.local import stamped
from streamwork.query.shape import Shape
from streamwork.query.state import Chosen, Component, Span, State
from streamwork.query.version import unknown
from streamwork.serving.http import ARROW, EVENTS
from streamwork.statefiles.plain_values import plain

R = TypeVar("R", bound=Record)
AT_A_TIME = 100_000
"""Keys in one request."""
HEADER = "streamwork-answer"


class _Told(Stamp, frozen=True, kw_only=True):
    more: bool = False


class RemoteComponent(Component[R]):
    def __init__(self, http: Http, job: str, shape: Shape) -> None:
        super().__init__(shape)
        self._http = http
        self._prefix = job
        self._path = quote(shape.component, safe="")
        answer: Any = Answer[shape.record]  # type: ignore[name-defined]
        self._one = msgspec.json.Decoder(answer)

    def _get(self, parts: tuple[Any, ...], selection: Selection) -> Answer[R]:
        path = f"{self._prefix}/state/{self._path}"
        chosen = parameters(selection)
        if None in parts or "" in parts:
            path += "?" + urlencode([("key_json", self._key(parts)), *chosen])
        else:
            path += "".join(f"/{quote(str(plain_part(part)), safe='')}" for part in parts)
            path += f"?{urlencode(chosen)}" if chosen else ""
        body, _ = self._http.get(path)
        try:
            return cast(Answer[R], self._one.decode(body))
        except msgspec.ValidationError:  # a NaN
            found = self._get_many([parts if len(parts) > 1 else parts[0]], selection)
            return Answer(record=found.records[0], **stamped(Stamp(**told(found))))

    def _get_many(self, keys: Sequence[Any], selection: Selection) -> Answers[R]:
        batch = self.shape.key_batch(keys)
        asked = tuple(self.shape.keys_of(batch))
        path = with_parameters(f"{self._prefix}/state/{self._path}", parameters(selection))
        if self.shape.key_is_text:
            given: list[Any] = list(asked)
        else:
            kinds = [self.shape.schema.field(name).type for name in self.shape.key]
            columns = [
                [plain(part, kind) for part in column.to_pylist()]
                for column, kind in zip(batch.columns, kinds, strict=True)
            ]
            given = columns[0] if len(columns) == 1 else list(map(list, zip(*columns, strict=True)))
        body = msgspec.json.encode({"keys": given})
        data, headers = self._http.send("POST", path, ARROW, body)
        found = _of_header(headers)
        return Answers(shape=self.shape, table=_table(data), asked=asked, **_stamp(found))

    def _rows(self, span: Span | None, selection: Selection) -> Answers[R]:
        chosen = parameters(selection)
        if span is not None:
            ends = (("from", span.start), ("to", span.end), ("prefix", span.prefix), ("after", span.after))
            chosen += [(f"{name}_json", self._key(parts)) for name, parts in ends if parts is not None]
            chosen.append(("limit", str(span.limit)))
        path = f"{self._prefix}/{'scan' if span is None else 'range'}/{self._path}"
        data, headers = self._http.get(with_parameters(path, chosen), ARROW)
        table = _table(data)
        found = _of_header(headers, table)
        return Answers(shape=self.shape, table=table.replace_schema_metadata(None), more=found.more, **_stamp(found))

    def _count(self, selection: Selection) -> Count:
        body, _ = self._http.get(with_parameters(f"{self._prefix}/count/{self._path}", parameters(selection)))
        return msgspec.json.decode(body, type=Count)

    def _watch(self, parts: tuple[Any, ...] | None, selection: Selection) -> Iterator[Change]:
        path = f"{self._prefix}/watch/{self._path}"
        chosen = [("as", "arrow"), *parameters(selection)] + ([] if parts is None else [("key_json", self._key(parts))])
        with self._http.stream(with_parameters(path, chosen), EVENTS) as response:
            for line in response:
                if line.startswith(b"data: "):
                    found = msgspec.json.decode(line[6:])
                    if "rows" in found:
                        yield self._change(found)

    def _change(self, found: dict[str, Any]) -> Change:
        rows, gone = (_table(base64.b64decode(found[name])) for name in ("rows", "gone"))
        return Change(found["epoch"], self.shape, rows, gone, found["regressed"])

    def _key(self, parts: tuple[Any, ...]) -> str:
        return msgspec.json.encode([plain_part(part) for part in parts]).decode()


class RemoteState(State):
    def __init__(self, http: Http, job: str | None, types: Mapping[str, type[Record]]) -> None:
        self._http = http
        self._prefix = "" if job is None else f"/jobs/{quote(job, safe='')}"
        self._types = types
        self._lock = threading.Lock()
        self._shapes: dict[str, Shape] = {}

    def __getitem__(self, component: str) -> Component[Any]:
        shape = self._shapes.get(component)
        if shape is None:
            self._describe()
            shape = self._shapes.get(component)
        if shape is None:
            raise unknown(component, self._shapes)
        return RemoteComponent(self._http, self._prefix, shape)

    def components(self) -> list[str]:
        return list(self._describe())

    def sql(
        self,
        query: str,
        *,
        at: str | None = None,
        consistency: Chosen = Consistency.COMMITTED,
        at_least: int | None = None,
        timeout: float = 5.0,
    ) -> TableAnswer:
        chosen = parameters(Selection.of(at, consistency, at_least, timeout))
        body = msgspec.json.encode({"sql": query})
        data, headers = self._http.send("POST", with_parameters(f"{self._prefix}/sql", chosen), ARROW, body)
        table = _table(data)
        return TableAnswer(table=table.replace_schema_metadata(None), **_stamp(_of_header(headers)))

    def close(self) -> None:
        self._http.close()

    def _describe(self) -> Mapping[str, Shape]:
        body, _ = self._http.get(f"{self._prefix}/state")
        found = msgspec.json.decode(body)["components"]
        shapes = {}
        for name, one in found.items():
            schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(one["schema"])))
            shapes[name] = Shape(name, tuple(one["key"]), schema, one["class"], self._types.get(name))
        with self._lock:
            self._shapes = shapes
        return shapes


def plain_part(part: Any) -> Any:
    """A part of a key as JSON or text has it."""
    return {True: "true", False: "false"}[part] if isinstance(part, bool) else plain(part, None)


def parameters(selection: Selection) -> list[tuple[str, str]]:
    found = []
    if selection.at is not None:
        found.append(("at", selection.at))
    if selection.consistency is not Consistency.COMMITTED:
        found.append(("consistency", selection.consistency.value))
    if selection.at_least is not None:
        found += [("at_least", str(selection.at_least)), ("timeout", str(selection.timeout))]
    return found


def with_parameters(path: str, chosen: list[tuple[str, str]]) -> str:
    return f"{path}?{urlencode(chosen)}" if chosen else path


def told(stamp: Stamp | Answers[Any]) -> dict[str, Any]:
    return {name: getattr(stamp, name) for name in Stamp.__struct_fields__}


def _stamp(found: _Told) -> dict[str, Any]:
    return {name: getattr(found, name) for name in Stamp.__struct_fields__}


def _table(data: bytes) -> pa.Table:
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_all()


def _of_header(headers: Message, table: pa.Table | None = None) -> _Told:
    """Of an answer in Arrow, where it comes from."""
    found = headers.get(HEADER)
    if found is None and table is not None:
        found = (table.schema.metadata or {})[HEADER.encode()].decode()
    return msgspec.json.decode(found or "", type=_Told)


def connect(
    url: str, token: str | None = None, *, job: str | None = None, types: Mapping[str, type[Record]] | None = None
) -> RemoteState:
    """The state of a job that `streamwork serve` answers for, such as at ``http://127.0.0.1:8700``.

    `token`: that of the root; without it, the one in ``STREAMWORK_ACCESS_TOKEN``. `job`: which one, if the server answers for
    several. `types`: component -> the class of its records; without it one is made of the stored columns.
    """
    return RemoteState(Http(url, token), job, types or {})
