"""The events of the benchmark. Each is a function of its partition and offset, so that a source can read it again."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import cache
from ipaddress import IPv4Address
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamwork.components import Event
from streamwork.components.hashing import mix

Array = np.ndarray[Any, Any]

KINDS = ("view", "click", "purchase")
TYPES = ("banner", "modal", "sponsored-search", "mail", "mobile")
ADS_PER_CAMPAIGN = 10
BEGIN = 1_767_225_600_000_000
"""2026-01-01, in microseconds: a multiple of each window's size."""
BLOCK = 1 << 16
"""Rows that are made at a time."""
TIME = pa.timestamp("us", tz="UTC")


class Ad(Event, frozen=True):
    """An event with all seven fields."""

    user: int
    page: int
    ad: int
    ad_type: str
    kind: str
    at: datetime
    ip: int


class AdView(Event, frozen=True):
    """The fields of an event that the query uses."""

    ad: int
    kind: str
    at: datetime


class AdText(Event, frozen=True):
    """The same fields as they are in JSON."""

    ad_id: str
    event_type: str
    event_time: str  # milliseconds


class AdLine(Event, frozen=True):
    """An event with all seven fields, as a JSON object; and its time, beside it."""

    line: str
    at: datetime


class CampaignAd(Event, frozen=True):
    """An event that names its campaign."""

    campaign: int
    kind: str
    at: datetime


class CampaignView(Event, frozen=True):
    campaign: int
    at: datetime


class Counted(Event, frozen=True):
    campaign: int
    window_start: datetime
    window_end: datetime
    views: int


class Stream(msgspec.Struct, frozen=True):
    """The events of some partitions. `step` is the event time between two events of a partition, in microseconds."""

    partitions: int = 2
    campaigns: int = 100
    step: int = 2

    @property
    def ads(self) -> int:
        return self.campaigns * ADS_PER_CAMPAIGN

    def rows(self, partition: int, first: int, count: int) -> Rows:
        """The events from offset `first` on."""
        offsets = np.arange(first, first + count, dtype=np.int64)
        numbers = mix((offsets * self.partitions + partition).view(np.uint64))
        ads = (numbers >> np.uint64(32)) % np.uint64(self.ads)
        kinds = (numbers & np.uint64(0xFFFFFFFF)) % np.uint64(len(KINDS))
        return Rows(ads.view(np.int64), kinds.view(np.int64), BEGIN + offsets * self.step)

    def campaigns_of_ads(self) -> pa.Table:
        """The table that events are joined with."""
        ads = np.arange(self.ads, dtype=np.int64)
        return pa.table({"ad": ads, "campaign": ads // ADS_PER_CAMPAIGN})

    def pieces(self, partition: int, start: int, end: int) -> Iterator[tuple[int, Rows]]:
        """(offset, the events from there on) of a range of offsets."""
        while start < end:
            count = min(BLOCK - start % BLOCK, end - start)
            yield start, self.rows(partition, start, count)
            start += count

    def batches(self, partition: int, start: int, end: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """(offset, the events from there on) of a range of offsets, with all seven fields."""
        for at, rows in self.pieces(partition, start, end):
            yield at, rows.as_batch(at)


class Rows(NamedTuple):
    """The columns of some events that the query uses: numbers of ads, numbers of kinds, times."""

    ads: Array
    kinds: Array
    times: Array

    def as_batch(self, first: int) -> pa.RecordBatch:
        """As `Ad` events, the first of which has this offset. The fields that the query ignores repeat from block to block."""
        block, at = _ignored(), first % BLOCK
        columns = {
            **{name: column.slice(at, len(self.ads)) for name, column in block.items()},
            "ad": pa.array(self.ads),
            "kind": _KINDS.take(pa.array(self.kinds)),
            "at": pa.array(self.times).cast(TIME),
        }
        names = list(Ad.__struct_fields__)
        return pa.RecordBatch.from_arrays([columns[name] for name in names], names=names)

    def with_campaigns(self) -> pa.RecordBatch:
        """As `CampaignAd` events."""
        columns = [
            pa.array(self.ads // ADS_PER_CAMPAIGN),
            _KINDS.take(pa.array(self.kinds)),
            pa.array(self.times).cast(TIME),
        ]
        return pa.RecordBatch.from_arrays(columns, names=list(CampaignAd.__struct_fields__))

    def with_lines(self, first: int) -> pa.RecordBatch:
        """As `AdLine` events, the first of which has this offset."""
        columns = [self.as_lines(first), pa.array(self.times).cast(TIME)]
        return pa.RecordBatch.from_arrays(columns, names=list(AdLine.__struct_fields__))

    def as_lines(self, first: int) -> pa.Array:
        """As seven-field JSON objects, all values text, as in the benchmark as published."""
        begins, middles, ends = (part.slice(first % BLOCK, len(self.ads)) for part in _text())
        ads, times = pa.array(self.ads).cast(pa.string()), pa.array(self.times // 1000).cast(pa.string())
        parts = (begins, ads, middles, _KINDS.take(pa.array(self.kinds)), '","event_time":"', times, ends, "")
        return pc.binary_join_element_wise(*parts)

    def as_json(self, first: int) -> list[bytes]:
        """The same as bytes."""
        found: list[bytes] = self.as_lines(first).cast(pa.binary()).to_pylist()
        return found


_KINDS = pa.array(KINDS)
_block: dict[str, pa.Array] = {}


def _ignored() -> dict[str, pa.Array]:
    """The fields that the query ignores, of one block."""
    if not _block:
        rng = np.random.default_rng(20)
        _block.update(
            user=pa.array(rng.integers(0, 1 << 48, BLOCK)),
            page=pa.array(rng.integers(0, 1 << 48, BLOCK)),
            ad_type=pa.array(TYPES).take(pa.array(rng.integers(0, len(TYPES), BLOCK))),
            ip=pa.array(rng.integers(0, 1 << 32, BLOCK)),
        )
    return _block


@cache
def _text() -> tuple[pa.Array, pa.Array, pa.Array]:
    """The parts of the JSON objects of one block that the query ignores: before, between and behind the fields that it uses."""
    users, pages, types, ips = (_ignored()[name].to_pylist() for name in ("user", "page", "ad_type", "ip"))
    return (
        pa.array(
            f'{{"user_id":"{user:032x}","page_id":"{page:032x}","ad_id":"'
            for user, page in zip(users, pages, strict=True)
        ),
        pa.array(f'","ad_type":"{one}","event_type":"' for one in types),
        pa.array(f'","ip_address":"{IPv4Address(ip)}"}}' for ip in ips),
    )
