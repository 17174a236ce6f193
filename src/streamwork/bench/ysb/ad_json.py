"""Seven-field JSON objects, all values text, to the three fields that the query uses: a format of `KafkaSource`, and a step."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamwork.bench.ysb.events import TIME, AdLine, AdText, AdView
from streamwork.components import BatchCollector, Operator
from streamwork.components.columns import Columns
from streamwork.components.schema import arrow_schema
from streamwork.components.times import BEGINNING
from streamwork.connectors.kafka import json_columns
from streamwork.connectors.kafka.formats import ValueFormat


class AdJson(ValueFormat):
    def decoder(self, kind: Any) -> _AdJson:
        return _AdJson()

    def __repr__(self) -> str:
        return "AdJson()"


class _AdJson:
    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(AdText)

    def many(self, values: Sequence[bytes]) -> list[AdView]:
        return list(map(self.one, values))

    def one(self, value: bytes) -> AdView:
        text = self._decoder.decode(value)
        return AdView(int(text.ad_id), text.event_type, BEGINNING + timedelta(milliseconds=int(text.event_time)))

    def columns(self, values: Sequence[bytes]) -> Columns:
        return Columns(AdView, views(json_columns.columns(AdText, values).batch))


class Decode(Operator[AdLine, AdView]):
    """Lines of JSON to events."""

    names_rows = True

    def apply_batch(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        lines = batch.column("line").cast(pa.binary()).to_pylist()
        collector.emit_batch(views(json_columns.columns(AdText, lines).batch), rows=np.arange(batch.num_rows))


def views(text: pa.RecordBatch) -> pa.RecordBatch:
    """`AdText` events as `AdView` events."""
    ads = text.column("ad_id").cast(pa.int64())
    times = pc.multiply(text.column("event_time").cast(pa.int64()), 1000).cast(TIME)
    return pa.RecordBatch.from_arrays([ads, text.column("event_type"), times], schema=arrow_schema(AdView))
