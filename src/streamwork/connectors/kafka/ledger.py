"""The ledger of a KafkaSink: a compacted topic with one partition beside the target, `TOPIC.streamwork-ledger`.

A record has the key UID/SINK, and holds the whole ledger row and the id of the target topic: if the topic was deleted and
created again, its rows are gone, although the ledger is there. One job owns the target, so the newest record is that of the owner.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec

from streamwork.components import LedgerRow
from streamwork.components.position import from_plain, plain
from streamwork.connectors.kafka import cluster as clusters
from streamwork.connectors.kafka import topics
from streamwork.connectors.kafka.cluster import Cluster
from streamwork.connectors.kafka.feed import Feed
from streamwork.errors import Refused

SUFFIX = ".streamwork-ledger"
CONFIG = {"cleanup.policy": "compact", "segment.bytes": str(16 << 20)}
_TICK = 0.005
_BACK = 64  # records that are read at first, from the end on


class LedgerRecord(msgspec.Struct, frozen=True):
    uid: str
    sink: str
    topic_id: str
    row: LedgerRow

    @property
    def key(self) -> bytes:
        return f"{self.uid}/{self.sink}".encode()

    def message(self) -> dict[str, Any]:
        return {"value": msgspec.json.encode(self, enc_hook=plain), "key": self.key, "partition": 0}


class Ledger:
    def __init__(self, cluster: Cluster, target: str) -> None:
        self._cluster = cluster
        self.topic = target + SUFFIX

    def create(self, replicas: int) -> None:
        if topics.describe(self._cluster, self.topic) is None:
            topics.create(self._cluster, self.topic, 1, replicas, CONFIG)

    def newest(self, but: bytes = b"") -> LedgerRecord | None:
        """The newest committed record, of another key than `but`. What a producer has left open hides records, until
        `init_transactions` with its id has ended it.
        """
        if topics.describe(self._cluster, self.topic) is None:
            return None
        first = topics.first_offsets(self._cluster, self.topic, ["0"])["0"]
        end = topics.end_offsets(self._cluster, self.topic, ["0"], committed=True)["0"]
        feed, back = Feed(self._cluster, self.topic, 0, committed=True), _BACK
        try:
            while first < end:
                start = max(first, end - back)
                feed.move(start)
                last = {m.key(): m for piece in feed.take(end) for m in piece if m.key() != but}
                if there := [m for m in last.values() if m.value() is not None]:  # else it was withdrawn
                    newest = max(there, key=lambda message: message.offset())
                    return msgspec.json.decode(newest.value(), type=LedgerRecord, dec_hook=from_plain)
                if start == first:
                    return None
                back *= 16
            return None
        finally:
            feed.close()

    def settle(self) -> None:
        """Wait until all that is in the ledger now is committed or aborted, and shows: a commit does not show at once."""
        now = topics.end_offsets(self._cluster, self.topic, ["0"], committed=False)["0"]
        until = time.monotonic() + clusters.SECONDS
        while topics.end_offsets(self._cluster, self.topic, ["0"], committed=True)["0"] < now:
            if time.monotonic() > until:
                raise self._cluster.unreachable(f"reading {self.topic}", "a transaction of another producer stays open")
            time.sleep(_TICK)

    def of(self, uid: str, sink: str, topic_id: str) -> LedgerRow | None:
        """The row of this sink. Refuses a ledger that another one owns; `uid` is empty if the job is new."""
        found = self.newest()
        if found is None:
            return None
        if (found.uid, found.sink) != (uid, sink):
            raise self.owned(found)
        return found.row if found.topic_id == topic_id else None

    def owned(self, by: LedgerRecord) -> Refused:
        return Refused(
            "SW-SINK-OWNED",
            f"{self.topic} at {self._cluster.servers} belongs to sink {by.sink} of the job with uid {by.uid}",
            "run with the --root that the topic was written from, and the sink's old id; or choose another topic; or delete both "
            "topics to start from scratch",
        )
