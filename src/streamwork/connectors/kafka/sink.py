"""A Kafka topic as a sink: rows and ledger record in one transaction."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import pyarrow as pa

from streamwork.components import Event, Key, LedgerEntry, LedgerRow, RowsRejected, Sink, SinkKind
from streamwork.components.commit_rule import Verdict, advanced, judge, registered, settle
from streamwork.components.schema import fields_of
from streamwork.components.sink import fenced
from streamwork.connectors.kafka import topics
from streamwork.connectors.kafka.cluster import Cluster, Setting
from streamwork.connectors.kafka.ledger import Ledger, LedgerRecord
from streamwork.connectors.kafka.messages import Messages
from streamwork.connectors.kafka.outbox import Outbox, TakenOver, Transactions
from streamwork.connectors.pieces import gathered
from streamwork.errors import JobFailed, Refused

E = TypeVar("E", bound=Event)
LARGEST = 1_000_000  # bytes of a record, where the user may not see the topic's setting
SETTLE_SECONDS = 2.0
"""How long a driver that was replaced waits to see who has replaced it."""
_TICK = 0.05


class KafkaSink(Sink[E], Generic[E]):
    """Writes one record per event to a topic, which it creates if there is none. Consumers that read committed records see each
    event of an exactly-once job once.

    `format` of values is "json", "raw" (the only field, bytes or text), or a function from an event to bytes, or to None for a
    tombstone. `key` names the fields of the record's key; `headers` a field dict[str, str] or dict[str, bytes], which is then not
    part of the value; `timestamp` a datetime field. `partitioner` is one of librdkafka's, by default that of Kafka's Java client,
    or a function from the key and the number of partitions to a partition. A topic that is created has `partitions` and `replicas`,
    by default those of the brokers.

    A start:
        1  a newer fence in the ledger refuses this driver, before it disturbs the newer one
        2  `init_transactions` with the id streamwork.UID.SINK: the broker ends what an older producer has left open, and refuses
           all that it still sends
        3  the ledger is read: only now is it complete
        4  the fence is written into it, in a transaction

    A commit:
        1  the commit rule is applied to the row in memory: for some time after a commit, a reader may see the record before
        2  a transaction: the rows, and one record of the ledger
        3  it is committed; without an answer, again, until there is one

    What a crash leaves, and what the next start finds:

        before 3 of a commit    an open transaction, which 2 of the start aborts: neither rows nor record
        during 3                the broker has decided or has not; 2 of the start waits until it has, 3 of the start reads it
        later                   rows and record
    """

    kind = SinkKind.TRANSACTIONAL

    def __init__(
        self,
        servers: str | Sequence[str],
        topic: str,
        *,
        key: str | Iterable[str] | None = None,
        format: str | Callable[[E], bytes | None] = "json",  # noqa: A002
        headers: str | None = None,
        timestamp: str | None = None,
        partitioner: str | Callable[[bytes | None, int], int] = "murmur2_random",
        partitions: int = -1,
        replicas: int = -1,
        settings: Mapping[str, Setting] | None = None,
    ) -> None:
        self.topic = topic
        self._cluster = Cluster(servers, settings)
        self._key = () if key is None else (key,) if isinstance(key, str) else tuple(key)
        self._format, self._headers, self._timestamp = format, headers, timestamp
        self._partitioner = partitioner
        self._partitions, self._replicas = partitions, replicas
        self._ledger = Ledger(self._cluster, topic)
        self._forget()

    def _forget(self) -> None:
        self._messages: Messages | None = None
        self._topic_id = ""
        self._transactions: Transactions | None = None  # of the driver
        self._outbox: Outbox | None = None  # of an instance that writes at once
        self._row: LedgerRow | None = None  # as of the last commit; None if that is not known
        self._owner = ("", "")  # uid and sink of `_row`

    def __repr__(self) -> str:
        return f"KafkaSink({self._cluster!r}, {self.topic!r})"

    def with_target(self, target: str) -> KafkaSink[E]:
        """TOPIC, of the same brokers: settings could hold a password, and targets are stored."""
        moved = copy.copy(self)
        moved.topic, moved._ledger = target, Ledger(self._cluster, target)
        moved._forget()
        return moved

    def used(self) -> str:
        found = topics.describe(self._cluster, self.topic)
        if found is None:
            return ""
        partitions = [str(number) for number in range(found.partitions)]
        ends = topics.end_offsets(self._cluster, self.topic, partitions, committed=False)
        return f"topic {self.topic} has records" if any(ends.values()) else ""

    def __getstate__(self) -> dict[str, Any]:
        """Each process opens its own clients."""
        mine = ("_messages", "_topic_id", "_transactions", "_outbox", "_row", "_owner")
        return {name: value for name, value in self.__dict__.items() if name not in mine}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    # ---- the target -------------------------------------------------------------------------------------------------

    def check(self, event: type[E]) -> None:
        fields_of(event)
        if self._key:
            Key.of(event, self._key)
        self._messages_of(event, 1, LARGEST)

    def check_target(self, uid: str, sink_id: str) -> None:
        self._ledger.of(uid, sink_id, "")

    def open(self, event: type[E]) -> None:
        found = topics.describe(self._cluster, self.topic)
        if found is None:
            topics.create(self._cluster, self.topic, self._partitions, self._replicas, {})
            found = topics.describe(self._cluster, self.topic)
        assert found is not None, "it was just there"
        self._topic_id = found.id
        self._largest = topics.setting(self._cluster, self.topic, "max.message.bytes", int, LARGEST)
        self._messages = self._messages_of(event, found.partitions, self._largest)

    def _messages_of(self, event: type[E], partitions: int, largest: int) -> Messages:
        choose = self._partitioner if callable(self._partitioner) else None
        return Messages(event, self._key, self._format, self._headers, self._timestamp, choose, partitions, largest)

    def rejects(self, rows: Sequence[pa.RecordBatch]) -> str:
        assert self._messages is not None
        return next((why for batch in rows if (why := self._messages.too_large(self._messages.of(batch)))), "")

    def close(self) -> None:
        for one in (self._transactions, self._outbox):
            if one is not None:
                one.end()
        self._transactions = self._outbox = self._row = None

    # ---- at once ----------------------------------------------------------------------------------------------------

    def write(self, batch: pa.RecordBatch) -> None:
        if self._outbox is None:
            self._outbox = Outbox(self._cluster, self._client_partitioner, self._largest, message_timeout_ms=30_000)
        outbox, self._outbox = self._outbox, None
        with outbox.translated(f"writing to topic {self.topic}"):
            self._send(outbox, batch)
            outbox.flush(self.topic)
        self._outbox = (
            outbox  # one that has failed is not used again: it may still send what is not known to be written
        )

    def _send(self, outbox: Outbox, batch: pa.RecordBatch) -> None:
        assert self._messages is not None
        messages = self._messages.of(batch)
        if why := self._messages.too_large(messages):
            raise RowsRejected(why)
        outbox.send(self.topic, messages)

    @property
    def _client_partitioner(self) -> str:
        return self._partitioner if isinstance(self._partitioner, str) else "murmur2_random"

    # ---- transactions -----------------------------------------------------------------------------------------------

    def register(self, uid: str, sink_id: str, fence: int) -> None:
        self.close()
        self._ledger.create(self._replicas)
        registered(self._ledger.of(uid, sink_id, self._topic_id), sink_id, fence)  # 1
        name = f"streamwork.{uid}.{sink_id}"
        self._transactions = Transactions(self._cluster, self._client_partitioner, self._largest, name)  # 2
        row = self._ledger.of(uid, sink_id, self._topic_id)  # 3
        self._transact(uid, sink_id, registered(row, sink_id, fence), iter(()), fence)  # 4
        if row is None:
            self._check_alone(uid, sink_id, fence)

    def _check_alone(self, uid: str, sink_id: str, fence: int) -> None:
        """Another job may have registered for the first time in the same moment. Then this one withdraws.

        Of two records the later one stands behind the earlier one, so its writer finds the earlier one, once both show.
        """
        assert self._row is not None and self._transactions is not None
        mine = LedgerRecord(uid, sink_id, self._topic_id, self._row)
        self._ledger.settle()
        if (other := self._ledger.newest(but=mine.key)) is not None:
            self._row = None
            with self._transactions.transaction():
                self._transactions.send(self._ledger.topic, [{**mine.message(), "value": None}])
            raise self._ledger.owned(other)

    def ledger(self, uid: str, sink_id: str) -> LedgerRow | None:
        if self._row is not None and self._owner == (uid, sink_id):
            return self._row
        found = topics.describe(self._cluster, self.topic)
        return None if found is None else self._ledger.of(uid, sink_id, found.id)

    def commit(self, entry: LedgerEntry, staged: Iterator[pa.RecordBatch]) -> None:
        row = self.ledger(entry.uid, entry.sink)
        if row is None or judge(row, entry) not in (Verdict.APPLY, Verdict.ADOPT):
            row = self._newer(entry.uid, entry.sink, row)
        verdict = settle(row, entry)  # 1
        if verdict is not Verdict.SKIP:
            rows = staged if verdict is Verdict.APPLY else iter(())
            self._transact(entry.uid, entry.sink, advanced(row, entry, verdict), rows, entry.fence)

    def _newer(self, uid: str, sink_id: str, row: LedgerRow | None) -> LedgerRow | None:
        """The row in the ledger, if a newer driver has registered; else the one in memory."""
        found = self._ledger.of(uid, sink_id, self._topic_id)
        return found if row is None or (found is not None and found.fence > row.fence) else row

    def _transact(self, uid: str, sink_id: str, row: LedgerRow, staged: Iterator[pa.RecordBatch], fence: int) -> None:
        """2 and 3: rows and ledger record, or neither. The row in memory stands if neither was written."""
        transactions = self._transactions
        if transactions is None:
            raise JobFailed(
                "SW-SINK-FAILED", f"sink {sink_id} is not registered", "the job restarts, and takes the sink over"
            )
        before, self._row = self._row, None
        try:
            with transactions.transaction():
                for batch in gathered(staged):
                    self._send(transactions, batch)
                record = LedgerRecord(uid, sink_id, self._topic_id, row)
                transactions.send(self._ledger.topic, [record.message()])
        except TakenOver:
            raise self._taken_over(uid, sink_id, fence) from None
        except Exception:
            if transactions.is_settled:
                self._row = before
            raise
        self._row, self._owner = row, (uid, sink_id)

    def _taken_over(self, uid: str, sink_id: str, fence: int) -> Refused | JobFailed:
        """The error for a driver whose producer was replaced. The newer one writes its fence soon after it has replaced it."""
        until = time.monotonic() + SETTLE_SECONDS
        while True:
            row = self._ledger.of(uid, sink_id, self._topic_id)
            if row is not None and row.fence > fence:
                return fenced(sink_id, row.fence, fence)
            if time.monotonic() > until:
                return JobFailed(
                    "SW-SINK-FAILED",
                    f"another producer has taken over the transactions of sink {sink_id}, and no newer driver has registered",
                    "the job restarts, and takes the sink over again; end programs that use its transactional id",
                )
            time.sleep(_TICK)
