"""The counts that the query must give, from the events themselves, without the engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from streamwork.bench.contest import Wrong
from streamwork.bench.ysb.events import ADS_PER_CAMPAIGN, BEGIN, BLOCK, Array, Rows, Stream

WINDOW = 10_000_000
"""Microseconds."""
VIEW = 0
Counts = dict[tuple[int, int], int]
"""(campaign, start of the window in microseconds) -> views"""


class Oracle:
    """Counts views per campaign and window, from the beginning on."""

    def __init__(self, stream: Stream, window: int = WINDOW) -> None:
        """`window` is the size of windows, in microseconds."""
        self._stream, self._window = stream, window
        self._read = [0] * stream.partitions
        self._counts: dict[int, Array] = {}  # number of the window -> views by campaign

    def read_up_to(self, offsets: Mapping[int, int]) -> None:
        """Count the events before these offsets, by partition."""
        for partition, end in offsets.items():
            while (start := self._read[partition]) < end:
                count = min(BLOCK, end - start)
                self._add(self._stream.rows(partition, start, count))
                self._read[partition] += count

    def _add(self, rows: Rows) -> None:
        views = rows.kinds == VIEW
        campaigns = rows.ads[views] // ADS_PER_CAMPAIGN
        windows = (rows.times[views] - BEGIN) // self._window
        for window in np.unique(windows).tolist():
            mine = np.bincount(campaigns[windows == window], minlength=self._stream.campaigns)
            self._counts[window] = self._counts.get(window, 0) + mine

    def counts(self, closed: bool = False) -> Counts:
        """Of all windows with views; or of those that are `closed`: each partition has an event at their end, or after it."""
        through = min((at - 1) * self._stream.step for at in self._read)
        return {
            (campaign, BEGIN + window * self._window): views
            for window, by_campaign in self._counts.items()
            if not closed or (window + 1) * self._window <= through
            for campaign, views in enumerate(by_campaign.tolist())
            if views
        }


def check(name: str, found: Iterable[tuple[int, int, int]], wanted: Counts) -> None:
    """Compare (campaign, window, views) with what is wanted. Raises `Wrong`."""
    rows = list(found)
    counts = {(campaign, window): views for campaign, window, views in rows}
    if len(counts) != len(rows):
        raise Wrong(f"{name}: {len(rows) - len(counts)} windows came more than once")
    if counts != wanted:
        differ = sorted(one for one in counts.keys() | wanted.keys() if counts.get(one) != wanted.get(one))
        one = differ[0]
        raise Wrong(
            f"{name}: {len(differ)} of {len(wanted)} windows are wrong; campaign {one[0]}, window {one[1]}: "
            f"{counts.get(one)} views, should be {wanted.get(one)}"
        )
