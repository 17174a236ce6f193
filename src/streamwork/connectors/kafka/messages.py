"""Rows of events as Kafka messages: value, key, headers, timestamp, partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from streamwork.components import Event
from streamwork.components.field_types import FieldType, MapType, TimeType
from streamwork.components.schema import fields_of
from streamwork.connectors.kafka.outbox import Message
from streamwork.connectors.kafka.values import encoder
from streamwork.connectors.text import as_bytes, joined_keys, with_text
from streamwork.errors import WrongUse

Format = str | Callable[[Any], bytes | None]
Choose = Callable[[bytes | None, int], int]
_OVERHEAD = 512  # bytes around the record, at most, in a batch of one


class Messages:
    def __init__(
        self,
        event: type[Event],
        key: Sequence[str],
        format: Format,  # noqa: A002
        headers: str | None,
        timestamp: str | None,
        choose: Choose | None,
        partitions: int,
        largest: int,
    ) -> None:
        """`choose` gives the partition of a key; None leaves it to the client. `largest` is what the topic accepts, in bytes."""
        _check_field(event, headers, "headers", _holds_headers, "a dict[str, str] or dict[str, bytes]")
        _check_field(event, timestamp, "timestamp", lambda field: isinstance(field, TimeType), "a datetime")
        self._encode = encoder(event, format, [headers] if headers else [])
        self._key, self._headers, self._timestamp = key, headers, timestamp
        self._choose, self._partitions, self._largest = choose, partitions, largest

    def of(self, batch: pa.RecordBatch) -> list[Message]:
        """The messages of these rows, in order."""
        found = [{"value": value} for value in self._encode(batch)]
        if self._key:
            columns = [[as_bytes(value) for value in with_text(batch.column(name))] for name in self._key]
            keys = columns[0] if len(columns) == 1 else list(joined_keys([[v or b"" for v in c] for c in columns]))
            for message, key in zip(found, keys, strict=True):
                message["key"] = key
        if self._timestamp:
            times = batch.column(self._timestamp).cast(pa.int64()).to_pylist()
            for message, at in zip(found, times, strict=True):
                if at is not None:
                    message["timestamp"] = at // 1000
        if self._headers:
            for message, headers in zip(found, batch.column(self._headers).to_pylist(), strict=True):
                if headers:
                    message["headers"] = headers
        if self._choose is not None:
            for message in found:
                message["partition"] = self._choose(message.get("key"), self._partitions)
        return found

    def too_large(self, messages: Sequence[Message]) -> str:
        """Why the topic does not accept one of them; empty if it accepts all."""
        limit = self._largest - _OVERHEAD
        for message in messages:
            size = len(message["value"] or b"") + len(message.get("key") or b"")
            size += sum(len(name) + len(value or b"") for name, value in message.get("headers", ()))
            if size > limit:
                return f"the record has {size:,} bytes; the topic accepts at most {limit:,} (max.message.bytes)"
        return ""


def _holds_headers(field: FieldType) -> bool:
    return isinstance(field, MapType) and field.item.name in ("str", "bytes")


def _check_field(
    event: type[Event], name: str | None, what: str, fits: Callable[[FieldType], bool], wanted: str
) -> None:
    if name is not None and (name not in fields_of(event) or not fits(fields_of(event)[name])):
        raise WrongUse(
            "SW-KAFKA-FIELD",
            f"{what}={name!r} does not name a field of {event.__name__} that holds {wanted}",
            f"name a field of this type, or leave {what}= out",
        )
