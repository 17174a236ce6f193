"""A Kafka topic as a source: read by ranges of offsets, without consumer groups."""

from __future__ import annotations

import base64
import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from operator import methodcaller
from secrets import token_hex
from typing import Any, Generic, TypeVar

import pyarrow as pa

from streamwork.components import Event, OffsetSource, OnError, ReadProgress, Slice, Start
from streamwork.components.columns import Columns
from streamwork.components.field_types import Misfit
from streamwork.components.schema import fields_of
from streamwork.components.source import check_on_error
from streamwork.components.times import BEGINNING
from streamwork.connectors.json_lines import field_at_fault, reason
from streamwork.connectors.kafka import topics
from streamwork.connectors.kafka.cluster import Cluster, Setting
from streamwork.connectors.kafka.feed import Feed, Removed, feeds
from streamwork.connectors.kafka.filled import Filled
from streamwork.connectors.kafka.formats import Decoder, ValueFormat, format_of
from streamwork.connectors.kafka.topics import Topic
from streamwork.errors import JobFailed, Refused, StreamworkError
from streamwork.log import Isolation
from streamwork.wording import plural

E = TypeVar("E", bound=Event)
_value = methodcaller("value")
_BINARY = "base64:"
LOOK_SECONDS = 30.0
"""How often partitions are looked up, at least."""


class KafkaSource(OffsetSource[E], Generic[E]):
    """The records of a topic. Partitions and offsets are those of the topic.

    Each instance reads ranges of offsets with consumers that stay open between checkpoints; positions are in the checkpoints, and
    no consumer group is joined. `publish="GROUP"` also commits them as the offsets of that group, for programs that watch the lag.

    `format` is "json", "raw", `AvroFormat(url)`, or a function from the value to an event. `timestamp`, `key` and `headers` name
    fields of the event that are filled from the record. `isolation="read-committed"` (the default) reads what is committed;
    "read-uncommitted" also records of open transactions, which may be aborted: then a replay may read other events.
    `on_error` applies to a record that is not an event, one without a value (a tombstone) included.
    `settings` are those of librdkafka; the values of passwords and the like are never shown.
    """

    unit = "events"

    def __init__(
        self,
        servers: str | Sequence[str],
        topic: str,
        event: type[E],
        *,
        format: ValueFormat | str | Callable[[bytes], E] = "json",  # noqa: A002
        timestamp: str | None = None,
        key: str | None = None,
        headers: str | None = None,
        isolation: Isolation | str = Isolation.READ_COMMITTED,
        on_error: OnError | None = None,
        max_events: int = 1_000_000,
        start: Start = "stored",
        bounded: bool = False,
        publish: str | None = None,
        settings: Mapping[str, Setting] | None = None,
    ) -> None:
        fields_of(event)
        self.event = event
        self.topic = topic
        self.max_events = max_events
        self.start = start
        self.bounded = bounded
        self.on_error = check_on_error(on_error)
        self.publish = publish
        self._cluster = Cluster(servers, settings)
        self._committed = Isolation(isolation) is Isolation.READ_COMMITTED
        self._format = format_of(format)
        self._fills = (timestamp, key, headers)
        self._format.check(Filled(event, *self._fills).payload)
        self._token = token_hex(8)  # its consumers are kept under it
        self._known: Topic | None = None
        self._looked = float("-inf")
        self._asked: set[str] = set()  # partitions whose marks were compared with what is known
        self._seen: dict[str, int] = {}  # the ends that `ends` found
        self._made: tuple[Filled, Decoder] | None = None

    def __repr__(self) -> str:
        return f"KafkaSource({self._cluster!r}, {self.topic!r}, {self.event.__name__}, format={self._format!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": None, "_looked": float("-inf"), "_asked": set()}

    # ---- the plan ---------------------------------------------------------------------------------------------------

    def partitions(self) -> list[str]:
        return [str(number) for number in range(self._topic(LOOK_SECONDS).partitions)]

    def fixed_partitions(self) -> int | None:
        return None

    def earliest(self, partitions: Sequence[str]) -> Mapping[str, int]:
        return topics.first_offsets(self._cluster, self.topic, partitions)

    def latest(self, partitions: Sequence[str]) -> Mapping[str, int]:
        return topics.end_offsets(self._cluster, self.topic, partitions, self._committed)

    def ends(self, starts: Mapping[str, int], limit: int) -> Mapping[str, int]:
        self._seen = topics.end_offsets(self._cluster, self.topic, starts.keys(), self._committed)
        for partition, start in starts.items():
            if self._seen[partition] < start:
                self._check_shrunk(partition, start)
        return {part: max(start, min(start + limit, self._seen[part])) for part, start in starts.items()}

    def has_more(self, ends: Mapping[str, int]) -> bool:
        return any(end < self._seen.get(partition, 0) for partition, end in ends.items())

    def at_time(self, partitions: Sequence[str], time: datetime) -> Mapping[str, int]:
        """By the timestamps of the records."""
        return topics.offsets_at(
            self._cluster, self.topic, partitions, math.ceil((time - BEGINNING) / timedelta(milliseconds=1))
        )

    def known_ends(self, starts: Mapping[str, int]) -> Mapping[str, int]:
        found = topics.end_offsets(self._cluster, self.topic, starts.keys(), self._committed)
        return {partition: max(start, found[partition]) for partition, start in starts.items()}

    # ---- the topic --------------------------------------------------------------------------------------------------

    def mark(self, partition: str, end: int) -> str | None:
        """The id of the topic: one that is deleted and created again gets another."""
        return self._topic(LOOK_SECONDS).id or None

    def recognises(self, partition: str, mark: str) -> bool:
        """Asked about every partition in turn: what one request answers serves a whole turn, and no more."""
        stale = partition in self._asked
        known = self._topic(0.0 if stale or not self._asked else LOOK_SECONDS)
        self._asked = {partition} if stale else {*self._asked, partition}
        return known.id in ("", mark)

    def _topic(self, seconds: float) -> Topic:
        """What is known of the topic, if it is not older than this."""
        now = time.monotonic()
        if self._known is None or now - self._looked >= seconds:
            found = topics.describe(self._cluster, self.topic)
            if found is None:
                raise JobFailed(
                    "SW-KAFKA-TOPIC",
                    f"there is no topic {self.topic} at {self._cluster.servers}",
                    "create the topic, or correct its name in the job",
                    about_setup=True,
                )
            self._known, self._looked = found, now
        return self._known

    def keep(self, progress: ReadProgress) -> None:
        if self.publish is None:
            return
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        with contextlib.suppress(StreamworkError):  # it is for monitors: the next report is in ten seconds
            offsets = [TopicPartition(self.topic, int(part), at) for part, at in progress.completed.items()]
            if offsets:
                with topics.admin(self._cluster, f"publishing offsets of group {self.publish}") as asking:
                    group = ConsumerGroupTopicPartitions(self.publish, offsets)
                    asking.answer(asking.client.alter_consumer_group_offsets([group])[self.publish])

    # ---- reading ----------------------------------------------------------------------------------------------------

    def available(self, starts: Mapping[str, int], limit: int) -> Mapping[str, int]:
        """What the consumers have fetched. Each fetches ahead, so that no request is made here."""
        found = {}
        for partition, start in starts.items():
            with self._feeding(partition, start) as feed:
                found[partition] = max(start, feed.available(limit))
        return found

    def read(self, partition: str, start: int, end: int) -> Iterator[Slice]:
        with self._feeding(partition, start) as feed:
            for messages in feed.take(end):
                yield self._slice(partition, messages)

    @contextlib.contextmanager
    def _feeding(self, partition: str, start: int) -> Iterator[Feed]:
        """The consumer of a partition, at this offset. One that has failed, or is left in the middle, is closed."""
        key = (self._token, partition, self._committed)
        feed = feeds.take(key)
        if feed is None:
            feed = Feed(self._cluster, self.topic, int(partition), self._committed)
        try:
            feed.move(start)
            yield feed
        except Removed as removed:
            feed.close()
            raise self._removed(partition, removed.offset) from None
        except BaseException:
            feed.close()
            raise
        feeds.give(key, feed)

    def _removed(self, partition: str, at: int) -> StreamworkError:
        first = topics.first_offsets(self._cluster, self.topic, [partition])[partition]
        if at < first:
            return Refused(
                "SW-KAFKA-GONE",
                f"offsets {at:,} to {first:,} of topic {self.topic}, partition {partition}, are gone: they were removed by the "
                "topic's retention, or deleted, before the job had read them",
                "keep the topic longer (retention.ms, retention.bytes); to accept the loss, give the source another id, with which "
                "it begins at the first offset that there is",
            )
        self._check_shrunk(partition, at)
        return JobFailed(
            "SW-KAFKA-FAILED",
            f"topic {self.topic}, partition {partition}, did not accept offset {at:,}, which it has",
            "the job continues from its last checkpoint",
        )

    def _check_shrunk(self, partition: str, at: int) -> None:
        """Refuse a partition that ends before an offset that was read. An open transaction hides records, and does not count."""
        end = topics.end_offsets(self._cluster, self.topic, [partition], committed=False)[partition]
        if end < at:
            raise Refused(
                "SW-KAFKA-SHRUNK",
                f"topic {self.topic}, partition {partition}, ends at offset {end:,}, but the job has already read "
                f"{plural(at, 'offset')}: records that had been acknowledged are lost, or the topic was created again",
                "restore the topic; or run the job in another --root, from the topic as it is",
            )

    def _slice(self, partition: str, messages: Sequence[Any]) -> Slice:
        filled, decoder = self._decoding()
        first, last = messages[0].offset(), messages[-1].offset()
        values = list(map(_value, messages))
        events: list[Any] | Columns | None = None
        try:
            if self.in_columns:
                with contextlib.suppress(ValueError, pa.ArrowException, Misfit):
                    payload_columns = decoder.columns(values)
                    events = None if payload_columns is None else filled.columns(payload_columns, messages)
            if events is None:
                events = filled.events(decoder.many(values), messages)
        except StreamworkError:
            raise
        except Exception:
            return self._one_by_one(partition, messages)
        if last - first == len(messages) - 1:
            return Slice(events, first)
        return Slice(events, [message.offset() for message in messages])

    def _one_by_one(self, partition: str, messages: Sequence[Any]) -> Slice:
        filled, decoder = self._decoding()
        offsets: list[int] = []
        piece = Slice([], offsets)
        for message in messages:
            value = message.value()
            try:
                if value is None:
                    raise ValueError("the record has no value (a tombstone)")
                piece.events.extend(filled.events([decoder.one(value)], [message]))
                offsets.append(message.offset())
            except StreamworkError:
                raise
            except Exception as error:
                shown = "" if value is None else _text(value)
                why = self._fault(partition, message.offset(), error)
                if self.on_error in (None, "fail"):
                    raise JobFailed(
                        "SW-SOURCE-BAD-EVENT",
                        f"{why}. The value: {shown[:200]}",
                        'set such records aside with on_error="dead-letter", or correct the event or the format',
                        retryable=False,
                        about_one_event=True,
                    ) from None
                piece.leave_out(self.on_error, shown, why)
        return piece

    def _fault(self, partition: str, offset: int, error: Exception) -> str:
        name = field_at_fault(error)
        named = f", field {name!r}" if name else ""
        place = f"topic {self.topic}, partition {partition}, offset {offset:,}"
        known = isinstance(error, Misfit | ValueError)  # msgspec's errors are ValueErrors
        return f"{place}{named}: {'' if known else type(error).__name__ + ': '}{reason(error)}"

    def _decoding(self) -> tuple[Filled, Decoder]:
        """Made once per object, and not pickled."""
        if self._made is None:
            filled = Filled(self.event, *self._fills)
            self._made = filled, self._format.decoder(filled.payload)
        return self._made


def _text(value: bytes) -> str:
    """A value as it is shown and kept as a dead letter, from which it can be had back: text, or what is not UTF-8 in base64."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return _BINARY + base64.b64encode(value).decode()
