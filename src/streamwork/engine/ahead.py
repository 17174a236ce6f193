"""Events whose time is too far ahead of processing time (`max_ahead`).

One such event would advance the watermark by a year, say, and close every window. So it is taken out before the watermark is
computed, and the source's `on_error` applies to it.
"""

from __future__ import annotations

import numpy as np

from streamwork.components.field_types import show
from streamwork.components.times import from_microseconds
from streamwork.engine.source_count import SourceCount
from streamwork.errors import JobFailed
from streamwork.flow.batch import Batch
from streamwork.flow.lineage import Array
from streamwork.job import Node

MAX_AHEAD = 86_400_000_000
"""The default, in microseconds: a day. A clock that is set to local time is at most 14 hours ahead."""


def limit_of(node: Node, now: int) -> int:
    """The latest time that an event of a source may have at this processing time, in microseconds."""
    return now + (MAX_AHEAD if node.max_ahead is None else node.max_ahead)


def taken_out(node: Node, batch: Batch, times: Array, limit: int, count: SourceCount) -> Array:
    """The places of the events that are not too far ahead. `on_error` is applied to the others."""
    on_error = node.component.on_error
    for place in np.flatnonzero(times > limit).tolist():
        event = batch[place : place + 1].events[0]
        why = (
            f"{node.id}: {node.time} is {from_microseconds(int(times[place])).isoformat()}, which is more than max_ahead beyond "
            f"processing time, {from_microseconds(limit).isoformat()} at most"
        )
        if on_error in (None, "fail"):
            raise JobFailed(
                "SW-TIME-AHEAD",
                f"{why}, in {show(event)}",
                "correct the event, or set it aside with on_error of the source; if times in the future are right, give "
                "the source a larger max_ahead=",
                retryable=False,
                about_one_event=True,
                component=node.id,
            )
        count.delivered -= 1
        if on_error == "dead-letter":
            count.letters.append((event, f"SW-TIME-AHEAD: {why}"))
        else:
            count.dropped += 1
    return np.flatnonzero(times <= limit)
