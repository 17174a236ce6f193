"""`WaitingEvents`: events that are not done yet, under acknowledging."""

from __future__ import annotations

from collections import Counter

import msgspec

from streamwork.delivery import Inbox
from streamwork.epoch.store import Store
from streamwork.errors import Refused

MOST_LISTED = 20
"""Maximum number of events listed one by one."""
READS = 3
"""Maximum number of reads: a running job may remove a file before it is read."""


class WaitingEvent(msgspec.Struct, frozen=True):
    """An event that is not done."""

    id: str
    component: str  # that failed it, or has not acknowledged it yet
    attempts: int
    error: str
    pending: bool
    due_seconds: float  # until it is replayed or, if it is pending, until it counts as failed
    owed: dict[str, int] = {}  # if it is pending: component -> number of missing acknowledgements


class WaitingEvents(msgspec.Struct, frozen=True):
    """The events that wait at the newest checkpoint; `first` are those that are due next."""

    count: int = 0
    pending: int = 0
    first: tuple[WaitingEvent, ...] = ()
    problem: str = ""


def read_waiting(store: Store, now: float) -> WaitingEvents:
    """The waiting events of the newest completed checkpoint; `now` is in seconds since 1970."""
    for left in reversed(range(READS)):
        done = next((one.manifest for one in store.stored() if one.completed and one.manifest is not None), None)
        try:
            found = Inbox(store.disk, store.folder).read_waiting(done.failed if done is not None else ())
        except Refused as damaged:
            if left:
                continue
            return WaitingEvents(problem=damaged.cause)
        listed = tuple(
            WaitingEvent(
                one.id,
                one.component,
                one.attempts,
                one.error,
                one.pending,
                round(one.due / 1_000_000 - now, 3),
                dict(Counter(by.rpartition("/")[0] for by in one.owed)),
            )
            for one in sorted(found, key=lambda one: one.due)[:MOST_LISTED]
        )
        return WaitingEvents(len(found), sum(one.pending for one in found), listed)
    raise AssertionError
