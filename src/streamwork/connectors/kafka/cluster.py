"""A Kafka cluster as the user names it: servers and settings of the client, and the errors of that client."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from streamwork.connectors.address import HIDDEN, Address, needed
from streamwork.errors import JobFailed, StreamworkError, WrongUse

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, KafkaException

Setting = str | int | float | bool
SECONDS = 30.0
"""How long one call waits for a broker that does not answer, before the job fails and is restarted."""
_SECRET = re.compile(r"password|secret|token|assertion|jaas|oauthbearer\.config|\.pem$")
_RESERVED = frozenset(
    {
        "auto.offset.reset",
        "bootstrap.servers",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.gapless.guarantee",
        "enable.idempotence",
        "enable.partition.eof",
        "isolation.level",
        "metadata.broker.list",
        "partitioner",
        "transactional.id",
    }
)
_QUIET = {"log_level": 0}  # it would write to stderr
_UNREACHABLE = ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE", "_TIMED_OUT_QUEUE", "_MSG_TIMED_OUT")
_REFUSED = {
    "_AUTHENTICATION": "correct sasl.mechanism, sasl.username and sasl.password in settings=",
    "SASL_AUTHENTICATION_FAILED": "correct sasl.mechanism, sasl.username and sasl.password in settings=",
    "UNSUPPORTED_SASL_MECHANISM": "set sasl.mechanism in settings= to one that the broker supports",
    "_SSL": "set ssl.ca.location in settings= to the certificate of the authority that has signed the brokers' certificates, and "
    "use the host name that is in these; if brokers ask for it, set the job's own certificate and key too",
}
"""Errors of a connection, and what to do about each."""
_NO_RIGHT = "AUTHORIZATION_FAILED"
_MISSING = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_ID")


_answered: set[str] = set()
"""Servers that have answered this process."""


class Cluster:
    """Servers and settings. Its `repr`, and its errors, have no secrets; in data that is sent to workers these are replaced by a
    reference to a file of the driver (`Address`).
    """

    def __init__(self, servers: str | Sequence[str], settings: Mapping[str, Setting] | None = None) -> None:
        needed("confluent_kafka", "kafka")
        given = dict(settings or {})
        if wrong := sorted(given.keys() & _RESERVED):
            raise WrongUse(
                "SW-KAFKA-SETTING",
                f"Streamwork sets {', '.join(wrong)} itself: its guarantees depend on that",
                "remove it from settings=",
            )
        self.servers = servers if isinstance(servers, str) else ",".join(servers)
        secret = {name: str(value) for name, value in given.items() if _SECRET.search(name)}
        self._open = {name: value for name, value in given.items() if name not in secret}
        whole = msgspec.json.encode(secret, order="sorted").decode()
        self._secret = Address(whole, HIDDEN if secret else whole, tuple(secret.values()))

    def config(self, **more: Setting) -> dict[str, Any]:
        """Settings of a client. `more` are defaults of Streamwork, with `_` for `.`; the user's go before them."""
        mine = {name.replace("_", "."): value for name, value in more.items()}
        secret = msgspec.json.decode(self._secret.whole, type=dict[str, str])
        return {"bootstrap.servers": self.servers, **_QUIET, **mine, **self._open, **secret}

    def has_answered(self) -> None:
        """The addresses are right: if there is no answer later, that is no fault of the set-up, and the job may restart."""
        _answered.add(self.servers)

    def redact(self, text: str) -> str:
        return self._secret.redact(text) if self._secret.secrets else text

    def wrong_setting(self, error: KafkaException) -> StreamworkError:
        """The client could not be made."""
        cause = f"the Kafka client refuses its settings: {self.redact(str(_inner(error).str()))}"
        if missing := [name for name, value in self._open.items() if _is_missing_file(name, value)]:
            files = ", ".join(f"{name} is {self._open[name]}" for name in missing)
            action = "correct the path; the file is needed on every machine on which the job or its workers run"
            return WrongUse("SW-KAFKA-SETTING", f"{cause}. There is no such file here: {files}", action)
        return WrongUse("SW-KAFKA-SETTING", cause, "correct settings=; they are those of librdkafka")

    def failed(self, error: KafkaException | KafkaError, doing: str, heard: str = "") -> StreamworkError:
        """The error for a call that failed. `heard` is what the client reported last about its connections."""
        inner = _inner(error)
        name, text = inner.name(), f"{inner.str()} {heard}".strip()
        cause = self.redact(f"{doing}, {self._at}: {name}: {text}")
        if name in _UNREACHABLE:
            return self.unreachable(doing, text)
        if name in _MISSING:
            action = "create the topic, or correct its name in the job"
            return JobFailed("SW-KAFKA-TOPIC", cause, action, about_setup=True)
        if name in _REFUSED or name.endswith(_NO_RIGHT):
            action = _REFUSED.get(name, "grant the user this right at the brokers, or name another user in settings=")
            return JobFailed("SW-KAFKA-DENIED", cause, action, about_setup=True)
        return JobFailed("SW-KAFKA-FAILED", cause, "see the cause; the job continues from its last checkpoint")

    def unreachable(self, doing: str, heard: str) -> JobFailed:
        return JobFailed(
            "SW-KAFKA-UNREACHABLE",
            self.redact(f"{doing}, {self._at}: no answer{f': {heard}' if heard else ''}"),
            "check the servers' addresses, the network and the brokers, and security.protocol in settings=; the job continues from "
            "its last checkpoint",
            about_setup=self.servers not in _answered,
        )

    @property
    def _at(self) -> str:
        """Where a call has failed, and as whom it was made."""
        user = self._open.get("sasl.username")
        return self.servers + (f" as user {user}" if user else "")

    def __repr__(self) -> str:
        names: Collection[str] = msgspec.json.decode(self._secret.whole) if self._secret.whole != HIDDEN else ()
        shown = {**self._open, **dict.fromkeys(names, HIDDEN)}
        return self.servers + (f" {shown}" if shown else "")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cluster) and self.config() == other.config()

    def __hash__(self) -> int:
        return hash(self.servers)


def _is_missing_file(name: str, value: Setting) -> bool:
    is_path = name.startswith("ssl.") and name.endswith(".location")
    return is_path and value != "probe" and not Path(str(value)).exists()


def _inner(error: KafkaException | KafkaError) -> KafkaError:
    inner: KafkaError = error.args[0] if isinstance(error, Exception) and error.args else error
    return inner


def error_name(error: KafkaException | KafkaError) -> str:
    """For example `_FENCED`."""
    return str(_inner(error).name())


def is_refused(error: KafkaException | KafkaError) -> bool:
    """True if a connection is not made because one side does not accept the other: waiting does not help."""
    return error_name(error) in _REFUSED


def is_fatal(error: KafkaException | KafkaError) -> bool:
    return bool(_inner(error).fatal())


def is_retriable(error: KafkaException | KafkaError) -> bool:
    return bool(_inner(error).retriable())


def needs_abort(error: KafkaException | KafkaError) -> bool:
    """True if the transaction can only be aborted."""
    return bool(_inner(error).txn_requires_abort())
