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
from streamwork.components import BatchCollector, Instance, Operator
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
        return Columns(AdView, views(values, self._decoder))


class Decode(Operator[AdLine, AdView]):
    """Lines of JSON to events."""

    names_rows = True

    def setup_instance(self, instance: Instance) -> None:
        self._decoder = msgspec.json.Decoder(AdText)

    def apply_batch(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        lines = batch.column("line").cast(pa.binary()).to_pylist()
        collector.emit_batch(views(lines, self._decoder), rows=np.arange(batch.num_rows))


def views(values: Sequence[bytes], decoder: msgspec.json.Decoder[AdText]) -> pa.RecordBatch:
    """The events of these values. Raises ValueError where they are not one object each.

    Four of seven fields are ignored, so decoding to objects is faster than Arrow's parser, which reads all of them.
    """
    data = b"\n".join(values)
    if not json_columns.are_objects(data, len(values)):
        raise ValueError("not one object per value")
    found = decoder.decode_lines(data)
    if len(found) != len(values):
        raise ValueError("not one object per value")
    ads = pa.array([one.ad_id for one in found], pa.string()).cast(pa.int64())
    kinds = pa.array([one.event_type for one in found], pa.string())
    times = pa.array([one.event_time for one in found], pa.string()).cast(pa.int64())
    columns = [ads, kinds, pc.multiply(times, 1000).cast(TIME)]
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(AdView))
