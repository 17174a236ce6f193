"""The generator as a source: exactly-once needs no network, and no storage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from streamwork.bench.ysb.events import Ad, Stream
from streamwork.components import OffsetSource, Slice


class Ads(OffsetSource[Ad]):
    """The events of a stream, `events` of them in all, as columns with seven fields."""

    event = Ad
    unit = "events"

    def __init__(self, stream: Stream, events: int, per_checkpoint: int) -> None:
        self._stream = stream
        self._end = events // stream.partitions
        self.max_events = per_checkpoint

    def partitions(self) -> list[str]:
        return [str(number) for number in range(self._stream.partitions)]

    def ends(self, starts: Mapping[str, int], limit: int) -> Mapping[str, int]:
        return {partition: min(start + limit, self._end) for partition, start in starts.items()}

    def read(self, partition: str, start: int, end: int) -> Iterator[Slice]:
        for offset, batch in self._stream.batches(int(partition), start, end):
            yield Slice(batch, offset)
