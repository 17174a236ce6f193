"""Producers: one that writes at once, and one whose records become visible in transactions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from streamwork.components import RowsRejected
from streamwork.connectors.kafka import cluster as clusters
from streamwork.connectors.kafka.cluster import Cluster, error_name, is_fatal, is_retriable, needs_abort
from streamwork.connectors.kafka.heard import Heard, Patience
from streamwork.errors import JobFailed

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer

Message = dict[str, Any]
"""Arguments of `Producer.produce`, without the topic."""
QUEUE = 200_000  # messages that may wait in the client
QUEUE_BYTES = 256 << 20
TOGETHER = 20_000  # messages in one call
TRANSACTION_SECONDS = 60
"""A transaction that is open for longer is aborted by the broker: of a driver that hangs, or is gone."""
_SLICE = 1.0
"""Seconds of one call of the client that waits. Between two of them it reports errors of its connections."""
_FENCED = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING")
_TOO_LARGE = ("_MSG_SIZE_TOO_LARGE", "MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "RECORD_TOO_LARGE")


class TakenOver(Exception):
    """Another producer has the id of this one: the broker accepts nothing more from here."""


class Outbox:
    """A producer, and what it reports. `partitioner` is one of librdkafka's."""

    def __init__(self, cluster: Cluster, partitioner: str, largest: int, **settings: clusters.Setting) -> None:
        from confluent_kafka import KafkaException, Producer

        self.cluster = cluster
        self._undelivered: KafkaError | None = None
        self._heard = Heard()
        made = cluster.config(
            linger_ms=20,
            message_max_bytes=largest,
            queue_buffering_max_messages=QUEUE,
            queue_buffering_max_kbytes=2 * QUEUE_BYTES >> 10,
            reconnect_backoff_ms=50,
            reconnect_backoff_max_ms=1_000,
            **settings,
        )
        made |= {
            "enable.idempotence": True,
            "partitioner": partitioner,
            "delivery.report.only.error": True,
            "error_cb": self._heard,
        }
        try:
            self.producer: Producer = Producer(made)
        except KafkaException as error:
            raise cluster.wrong_setting(error) from None

    def send(self, topic: str, messages: Sequence[Message]) -> None:
        """Hand messages to the client, in order. Waits where too many of them wait."""
        for start in range(0, len(messages), TOGETHER):
            some = messages[start : start + TOGETHER]
            size = sum(len(one["value"] or b"") for one in some)
            if size > QUEUE_BYTES // 8 or any("headers" in one or "timestamp" in one for one in some):
                for one in some:
                    self._send_one(topic, one)
                continue
            self._wait_until(lambda waiting: waiting <= QUEUE - TOGETHER)
            for partition, together in _by_partition(some).items():
                self.producer.produce_batch(topic, together, partition=partition, on_delivery=self._not_delivered)
                if (failed := next((one["_error"] for one in together if "_error" in one), None)) is not None:
                    raise self._refused(failed)

    def _send_one(self, topic: str, message: Message) -> None:
        from confluent_kafka import KafkaException

        while True:
            try:
                self.producer.produce(topic, **message, on_delivery=self._not_delivered)
                return
            except BufferError:
                waiting = len(self.producer)
                self._wait_until(lambda now: now < waiting)  # noqa: B023  called at once
            except KafkaException as error:
                if error_name(error) in _TOO_LARGE:
                    raise RowsRejected(f"a row is too large: {error.args[0].str()}") from None
                raise

    def flush(self, topic: str) -> None:
        """Wait until all that was sent is acknowledged."""
        patience = Patience(self._heard, clusters.SECONDS + 5)
        while left := self._serve(self.producer.flush, _SLICE):
            if self._undelivered is not None or patience.is_over:
                break
        if self._undelivered is not None:
            raise self._refused(self._undelivered)
        if left:
            raise self._heard.error(self.cluster, f"writing to topic {topic}")
        self._heard.forget()

    def end(self) -> None:
        """What still waits is not sent. An open transaction stays open, until the next producer with its id ends it."""
        with contextlib.suppress(Exception):
            self.producer.purge(blocking=False)

    @contextlib.contextmanager
    def translated(self, doing: str) -> Iterator[None]:
        """Errors of the client become errors of Streamwork."""
        from confluent_kafka import KafkaException

        try:
            yield
        except KafkaException as error:
            raise self.cluster.failed(error, doing, self._heard.text) from None

    def _serve(self, call: Callable[[float], Any], seconds: float) -> Any:
        """Let the client call back. It raises a fatal error; if another callback runs then, that is the cause of a SystemError."""
        from confluent_kafka import KafkaException

        try:
            return call(seconds)
        except SystemError as error:
            if isinstance(error.__cause__, KafkaException):
                raise error.__cause__ from None
            raise

    def _wait_until(self, enough: Callable[[int], bool]) -> None:
        patience = Patience(self._heard)
        least = len(self.producer)
        self._serve(self.producer.poll, 0)
        while not enough(waiting := len(self.producer)):
            if waiting < least:
                least = waiting
                patience.renew()
                self._heard.forget()
            if self._undelivered is not None:
                raise self._refused(self._undelivered)
            if patience.is_over:
                raise self._heard.error(self.cluster, "writing")
            self._serve(self.producer.poll, 0.02)

    def _refused(self, error: Any) -> Exception:
        if not hasattr(error, "name"):  # `produce_batch` may give a text
            return JobFailed(
                "SW-SINK-FAILED", f"the Kafka client: {error}", "the job continues from its last checkpoint"
            )
        if error_name(error) in _TOO_LARGE:
            return RowsRejected(f"a row is too large: {error.str()}")
        return self.cluster.failed(error, "writing", self._heard.text)

    def _not_delivered(self, error: KafkaError | None, message: object) -> None:
        if error is not None and self._undelivered is None:
            self._undelivered = error


class Transactions(Outbox):
    """A producer with a transactional id. A new one with the same id ends what an older one has left open, and the broker refuses
    all that the older one sends from then on.
    """

    def __init__(self, cluster: Cluster, partitioner: str, largest: int, name: str) -> None:
        super().__init__(
            cluster,
            partitioner,
            largest,
            transactional_id=name,
            transaction_timeout_ms=TRANSACTION_SECONDS * 1000,
        )
        self._lost = ""
        with self.translated("taking over the transactions of this sink"):
            self._insist(self.producer.init_transactions, "taking over the transactions of this sink")

    @property
    def is_settled(self) -> bool:
        """True if the last transaction was either committed or aborted, and this producer can go on."""
        return not self._lost

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """What is sent in the block is committed at its end, and aborted if it raises.

        Raises `TakenOver`; and a `JobFailed` if it is not known whether it was committed: then this producer cannot be used again,
        and the next one with its id finds out.
        """
        if self._lost:
            raise JobFailed("SW-SINK-FAILED", self._lost, "the job restarts, and settles the transaction")
        self._undelivered = None
        with self.translated("writing a transaction"):
            self.producer.begin_transaction()
            try:
                yield
                self._insist(self.producer.commit_transaction, "committing a transaction")
            except BaseException as error:
                if not self._lost and not _is_over(error):
                    self._abort()
                raise

    @contextlib.contextmanager
    def translated(self, doing: str) -> Iterator[None]:
        from confluent_kafka import KafkaException

        try:
            yield
        except KafkaException as error:
            if error_name(error) in _FENCED:
                self._lost = "another producer has taken over the transactions of this sink"
                raise TakenOver from None
            if is_fatal(error):
                self._lost = self.cluster.redact(f"the producer of this sink has failed: {error.args[0].str()}")
            if self._undelivered is not None:
                raise self._refused(self._undelivered) from None
            raise self.cluster.failed(error, doing, self._heard.text) from None

    def _insist(self, call: Callable[[float], None], doing: str) -> None:
        """Call until there is an answer. A call whose answer was lost is repeated: the broker remembers what it has decided."""
        from confluent_kafka import KafkaException

        patience = Patience(self._heard, 2 * clusters.SECONDS)
        while True:
            try:
                self._serve(call, min(_SLICE, clusters.SECONDS))
                self._heard.forget()
                return
            except KafkaException as error:
                if needs_abort(error) or is_fatal(error) or not is_retriable(error):
                    raise
                self._serve(self.producer.poll, 0)  # it may report why there is no answer
                if patience.is_over:
                    self._lost = f"{doing}: the broker has not answered"
                    raise self._heard.error(self.cluster, doing) from None

    def _abort(self) -> None:
        try:
            self._insist(self.producer.abort_transaction, "aborting a transaction")
        except Exception as failed:
            self._lost = self.cluster.redact(f"a transaction could not be aborted: {failed}")


def _by_partition(messages: Sequence[Message]) -> dict[int, list[Message]]:
    """The messages by the partition that was chosen for them; -1 if none was. One call of the client is for one partition."""
    found: dict[int, list[Message]] = {}
    for message in messages:
        found.setdefault(message.get("partition", -1), []).append(message)
    return found


def _is_over(error: BaseException) -> bool:
    """True if the producer cannot even abort."""
    from confluent_kafka import KafkaException

    return isinstance(error, KafkaException) and (is_fatal(error) or error_name(error) in _FENCED)
