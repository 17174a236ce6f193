"""The generator as a source: exactly-once needs no network, and no storage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from streamwork.bench.ysb.events import Ad, AdLine, CampaignAd, Stream
from streamwork.components import OffsetSource, Slice


class Generator(OffsetSource[Any]):
    """The events of a stream, `events` of them in all."""

    unit = "events"

    def __init__(self, stream: Stream, events: int, per_checkpoint: int) -> None:
        self._stream = stream
        self._end = events // stream.partitions
        self.max_events = per_checkpoint

    def partitions(self) -> list[str]:
        return [str(number) for number in range(self._stream.partitions)]

    def ends(self, starts: Mapping[str, int], limit: int) -> Mapping[str, int]:
        return {partition: min(start + limit, self._end) for partition, start in starts.items()}


class Ads(Generator):
    """As columns with seven fields."""

    event = Ad

    def read(self, partition: str, start: int, end: int) -> Iterator[Slice]:
        for offset, batch in self._stream.batches(int(partition), start, end):
            yield Slice(batch, offset)


class AdLines(Generator):
    """As JSON."""

    event = AdLine

    def read(self, partition: str, start: int, end: int) -> Iterator[Slice]:
        for offset, rows in self._stream.pieces(int(partition), start, end):
            yield Slice(rows.with_lines(offset), offset)


class CampaignAds(Generator):
    """As columns; each event names its campaign."""

    event = CampaignAd

    def read(self, partition: str, start: int, end: int) -> Iterator[Slice]:
        for offset, rows in self._stream.pieces(int(partition), start, end):
            yield Slice(rows.with_campaigns(), offset)
