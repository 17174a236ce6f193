"""The records of one partition, in order, from a consumer that stays open and fetches ahead.

Offsets have holes: markers of transactions, rows of aborted ones, what compaction has removed. So a range [a, b) is complete when
`reached` is at least b, and records are never counted. What moves `reached`:

    a record at offset o        o + 1: the broker gives records in order
    the end of the partition    its offset: nothing below it is left to come (`enable.partition.eof`)
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from streamwork.connectors.kafka.cluster import Cluster, error_name, is_fatal
from streamwork.connectors.kafka.heard import Heard, Patience
from streamwork.connectors.kafka.kept import Kept

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

PIECE = 16_384
PIECE_BYTES = 8 << 20
"""Maximum records and bytes of values in one piece, where there is more than one record."""
_WAIT = 0.5
_IN_PASSING = ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT")  # the client reconnects by itself
_NO_GROUP = (
    "GROUP_AUTHORIZATION_FAILED"  # the client asks for the group's coordinator, and needs none: no group is joined
)

feeds = Kept(lambda feed: feed.close())


class Removed(Exception):
    """The next offset is not in the partition: removed by retention, or beyond its end."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


class Feed:
    def __init__(self, cluster: Cluster, topic: str, partition: int, committed: bool) -> None:
        from confluent_kafka import Consumer, KafkaException

        self.at = -1
        """Where the next range must begin, or the consumer is moved there."""
        self._cluster = cluster
        self._topic, self._partition = topic, partition
        self._pending: list[Message] = []  # received, and not yet taken; offsets from `at` on
        self._bytes = 0  # of values, in what is pending
        self._reached = -1
        self._heard = Heard()
        settings = cluster.config(
            group_id="streamwork-unused",  # the client asks for one; no group is ever joined
            fetch_wait_max_ms=50,  # a range that ends with a marker is known to be complete after so long
            fetch_queue_backoff_ms=5,
            fetch_max_bytes=50 << 20,
            max_partition_fetch_bytes=8 << 20,
            queued_min_messages=100_000,
            queued_max_messages_kbytes=64 << 10,
            reconnect_backoff_ms=50,
            reconnect_backoff_max_ms=1_000,
        )
        settings |= {
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",  # "earliest" would skip what retention has removed
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "error_cb": self._heard,
        }
        try:
            self._consumer: Consumer = Consumer(settings)
        except KafkaException as error:
            raise cluster.wrong_setting(error) from None

    def move(self, start: int) -> None:
        """Begin to read at `start`, unless it is there already."""
        from confluent_kafka import TopicPartition

        if self.at != start:
            self.at, self._reached, self._pending, self._bytes = start, start, [], 0
            self._consumer.assign([TopicPartition(self._topic, self._partition, start)])

    def available(self, limit: int) -> int:
        """The offset after the next `limit` records, or after those that have come. Does not wait."""
        if len(self._pending) < limit and self._bytes < PIECE_BYTES:
            self._receive(limit - len(self._pending), 0)
        if len(self._pending) >= limit:
            return _offset(self._pending[limit - 1]) + 1
        return self._reached

    def take(self, end: int) -> Iterator[Sequence[Message]]:
        """All records from `at` up to, not including, `end`, in pieces. Waits for them."""
        patience = Patience(self._heard)
        while True:
            while self._reached < end and len(self._pending) < PIECE and self._bytes < PIECE_BYTES:
                if self._receive(min(PIECE, end - self._reached), _WAIT):
                    patience.renew()
                elif patience.is_over:
                    raise self._heard.error(self._cluster, f"reading {self._place(self._reached)}")
            cut = bisect_left(self._pending, end, key=_offset)
            if piece := self._pending[:cut]:
                self._pending = self._pending[cut:]
                self._bytes = sum(map(len, self._pending))
                self.at = _offset(piece[-1]) + 1
                yield piece
            if self._reached >= end and not (self._pending and _offset(self._pending[0]) < end):
                self.at = end
                return

    def close(self) -> None:
        self._consumer.close()

    def _receive(self, count: int, wait: float) -> bool:
        """Take what has come, waiting for the first of it. `consume` with a time waits all of it, even if records are there."""
        found = self._consumer.consume(count, 0)
        if not found and wait:
            one = self._consumer.poll(wait)
            found = [one] if one is not None else []
        if any(map(_error, found)):  # a KafkaError is true
            found = [message for message in found if not self._is_event(message)]
        if found:
            self._heard.forget()
            self._pending += found
            self._bytes += sum(map(len, found))
            self._reached = max(self._reached, _offset(found[-1]) + 1)
            return True
        return False

    def _is_event(self, message: Message) -> bool:
        """True for what is not a record. Raises what makes it impossible to go on."""
        error = message.error()
        if error is None:
            # Records that stand before the end of the partition in one answer
            self._reached = max(self._reached, _offset(message) + 1)
            return False
        name = error_name(error)
        if name == "_PARTITION_EOF":
            self._heard.forget()
            self._reached = max(self._reached, _offset(message))
        elif name in ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"):
            raise Removed(self._reached)
        elif name in _IN_PASSING and not is_fatal(error):
            self._heard(error)
        elif name != _NO_GROUP:
            raise self._cluster.failed(error, f"reading {self._place(self._reached)}")
        return True

    def _place(self, offset: int) -> str:
        return f"topic {self._topic}, partition {self._partition}, offset {offset:,}"


_error = methodcaller("error")


def _offset(message: Any) -> int:
    return int(message.offset())
