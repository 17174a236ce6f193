"""What a cluster knows of a topic: its id, its partitions, and the offsets at their ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from streamwork.connectors.kafka import cluster as clusters
from streamwork.connectors.kafka.cluster import Cluster, error_name
from streamwork.connectors.kafka.heard import Heard
from streamwork.connectors.kafka.kept import Kept
from streamwork.errors import StreamworkError

_admins = Kept(lambda admin: None)  # it ends with its last reference
_TICK = 0.05
_HEAR = 0.1
"""How often a call that waits reads what the client reports, in seconds."""
_MOVING = ("NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "OFFSET_NOT_AVAILABLE", "_TRANSPORT")
"""The partition is being moved, or its broker has just started."""
_NEWER = ("UNKNOWN_LEADER_EPOCH", "FENCED_LEADER_EPOCH")
"""What this client knows of the partition is not what the broker knows, which was restarted."""
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # of brokers that give topics no ids


class _Outdated(Exception):
    """A new client is needed."""


class Topic(NamedTuple):
    id: str  # empty if the broker gives none
    partitions: int


class Admin:
    """An AdminClient, and what it reports of its connections."""

    def __init__(self, cluster: Cluster) -> None:
        from confluent_kafka.admin import AdminClient

        self._heard = Heard()
        self.client = AdminClient({**cluster.config(), "error_cb": self._heard})
        self._cluster, self._doing = cluster, ""

    def begin(self, doing: str) -> None:
        self._doing = doing
        self._heard.forget()

    def answer(self, asked: Future[Any]) -> Any:
        """The result of a request. Raises soon after brokers have refused this client, which itself waits until its time-out."""
        while True:
            try:
                return asked.result(_HEAR)
            except TimeoutError:
                self.client.poll(0)
            if self._heard.is_refused:
                raise self._heard.error(self._cluster, self._doing)

    def failed(self, error: Any) -> StreamworkError:
        self.client.poll(0)
        if error_name(error) == "_TIMED_OUT":  # whose reason the client does not name
            return self._heard.error(self._cluster, self._doing)
        return self._cluster.failed(error, self._doing, self._heard.text)


@contextmanager
def admin(cluster: Cluster, doing: str) -> Iterator[Admin]:
    """Errors of the client become errors of Streamwork."""
    from confluent_kafka import KafkaException

    found: Admin | None = _admins.take(cluster)
    if found is None:
        try:
            found = Admin(cluster)
        except KafkaException as error:
            raise cluster.wrong_setting(error) from None
    found.begin(doing)
    try:
        yield found
    except KafkaException as error:
        raise found.failed(error) from None
    cluster.has_answered()
    _admins.give(cluster, found)


def describe(cluster: Cluster, topic: str) -> Topic | None:
    """None if there is no such topic."""
    from confluent_kafka import KafkaException, TopicCollection

    with admin(cluster, f"describing topic {topic}") as asking:
        asked = asking.client.describe_topics(TopicCollection([topic]), request_timeout=clusters.SECONDS)
        try:
            found = asking.answer(asked[topic])
        except KafkaException as error:
            if error_name(error) == "UNKNOWN_TOPIC_OR_PART":
                return None
            raise
        number = str(found.topic_id)
        return Topic("" if number == _NO_ID else number, len(found.partitions))


def first_offsets(cluster: Cluster, topic: str, partitions: Collection[str]) -> dict[str, int]:
    from confluent_kafka.admin import OffsetSpec

    return _offsets(cluster, topic, dict.fromkeys(partitions, OffsetSpec.earliest()), committed=False)


def end_offsets(cluster: Cluster, topic: str, partitions: Collection[str], committed: bool) -> dict[str, int]:
    """The offset after the last record; if `committed`, the one of the first open transaction, if there is one."""
    from confluent_kafka.admin import OffsetSpec

    return _offsets(cluster, topic, dict.fromkeys(partitions, OffsetSpec.latest()), committed)


def offsets_at(cluster: Cluster, topic: str, partitions: Collection[str], milliseconds: int) -> dict[str, int]:
    """The first offset with a timestamp at this time or later; the end of the partition if there is none."""
    from confluent_kafka.admin import OffsetSpec

    found = _offsets(cluster, topic, dict.fromkeys(partitions, OffsetSpec.for_timestamp(milliseconds)), committed=False)
    after = [partition for partition, offset in found.items() if offset < 0]
    return found | end_offsets(cluster, topic, after, committed=False)


def _offsets(cluster: Cluster, topic: str, specs: Mapping[str, Any], committed: bool) -> dict[str, int]:
    """One request for all partitions (and broker). It is repeated while a partition has no leader."""
    from confluent_kafka import IsolationLevel, KafkaException, TopicPartition

    if not specs:
        return {}
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    wanted = {TopicPartition(topic, int(name)): spec for name, spec in specs.items()}
    until = time.monotonic() + clusters.SECONDS
    while True:
        with suppress(_Outdated), admin(cluster, f"asking for the offsets of topic {topic}") as asking:
            while True:
                asked = asking.client.list_offsets(wanted, isolation_level=level, request_timeout=clusters.SECONDS)
                try:
                    return {str(place.partition): int(asking.answer(one).offset) for place, one in asked.items()}
                except KafkaException as error:
                    name = error_name(error)
                    if name not in (*_MOVING, *_NEWER) or time.monotonic() > until:
                        raise
                    if name in _NEWER:
                        raise _Outdated from None
                    time.sleep(_TICK)
        time.sleep(_TICK)


def create(cluster: Cluster, topic: str, partitions: int, replicas: int, config: Mapping[str, str]) -> None:
    """Create a topic, unless there is one, and wait until it is there. -1 is the default of the brokers."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import NewTopic

    with admin(cluster, f"creating topic {topic}") as asking:
        new = NewTopic(topic, num_partitions=partitions, replication_factor=replicas, config=dict(config))
        try:
            asking.answer(asking.client.create_topics([new], request_timeout=clusters.SECONDS)[topic])
        except KafkaException as error:
            if error_name(error) != "TOPIC_ALREADY_EXISTS":
                raise
    until = time.monotonic() + clusters.SECONDS
    while describe(cluster, topic) is None:  # not every broker knows it at once
        if time.monotonic() > until:
            raise cluster.unreachable(f"creating topic {topic}", "it does not appear")
        time.sleep(_TICK)


def setting(cluster: Cluster, topic: str, name: str, of: Callable[[str], int], otherwise: int) -> int:
    """A setting of a topic; `otherwise` if the user may not see it."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import ConfigResource, ResourceType

    resource = ConfigResource(ResourceType.TOPIC, topic)
    with admin(cluster, f"asking for the settings of topic {topic}") as asking:
        try:
            asked = asking.client.describe_configs([resource], request_timeout=clusters.SECONDS)
            found = asking.answer(asked[resource])
        except KafkaException as error:
            if error_name(error).endswith("AUTHORIZATION_FAILED"):
                return otherwise
            raise
        return of(found[name].value) if name in found else otherwise
