"""What a client reports about its connections while a call waits, and how long the call goes on to wait.

The client reconnects after any error, a wrong password included: a call then ends with a time-out that gives no reason. So the
reason is kept here.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from streamwork.connectors.kafka import cluster as clusters
from streamwork.connectors.kafka.cluster import Cluster, error_name, is_refused
from streamwork.errors import StreamworkError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

REFUSED_SECONDS = 2.0
"""How long a call goes on to wait after a broker has refused the user or its certificate was refused: another broker may answer."""


class Heard:
    """`error_cb` of one client, which is used by one thread."""

    def __init__(self) -> None:
        self.text = ""
        self._refused: KafkaError | None = None
        self._refused_at = 0.0

    def __call__(self, error: KafkaError) -> None:
        if is_refused(error):
            if self._refused is None:
                self._refused_at = time.monotonic()
            self._refused = error
        if error_name(error) != "_ALL_BROKERS_DOWN":  # it follows the reasons, and names none
            self.text = str(error.str())

    def forget(self) -> None:
        """A broker has answered: what was heard before does not explain what comes."""
        self.text, self._refused = "", None

    @property
    def is_refused(self) -> bool:
        """True if waiting longer does not help."""
        return self._refused is not None and time.monotonic() - self._refused_at >= REFUSED_SECONDS

    def error(self, cluster: Cluster, doing: str) -> StreamworkError:
        """The error for a call that was not answered."""
        if self._refused is not None:
            return cluster.failed(self._refused, doing)
        return cluster.unreachable(doing, self.text)


class Patience:
    """Whether a call that makes no progress goes on to wait."""

    def __init__(self, heard: Heard, seconds: float | None = None) -> None:
        self._heard = heard
        self._seconds = clusters.SECONDS if seconds is None else seconds
        self._until = time.monotonic() + self._seconds

    def renew(self) -> None:
        """There was progress."""
        self._until = time.monotonic() + self._seconds

    @property
    def is_over(self) -> bool:
        return self._heard.is_refused or time.monotonic() > self._until
