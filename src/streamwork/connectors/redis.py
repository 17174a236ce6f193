"""Redis as a sink: one hash per key, each write guarded by fence and epoch."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import msgspec
import pyarrow as pa

from streamwork.components import Event, Key, LedgerEntry, LedgerRow, Position, RowsRejected, Sink, SinkKind
from streamwork.components.schema import fields_of
from streamwork.components.sink import fenced
from streamwork.connectors import redis_scripts as scripts
from streamwork.connectors.address import Address, needed
from streamwork.connectors.pieces import newest
from streamwork.connectors.text import with_text
from streamwork.epoch.commit import Verdict, settle, wrong_ledger
from streamwork.errors import JobFailed, Refused, WrongUse

E = TypeVar("E", bound=Event)
CHUNK = 500  # keys per script: nobody else is served while it runs
OWNERS = "streamwork_owners"
TIMEOUT = 30.0
Row = tuple[bytes, tuple[bytes | None, ...]]  # the key's name; the values of the fields


class RedisSink(Sink[E], Generic[E]):
    """Keeps the newest event of each key as a hash named ``PREFIX:KEY``, field by field, as text.

    Idempotent: readers see keys change one by one while a checkpoint is committed, and after a crash some may be ahead of the
    others until the job goes on; in the end each has the value of its last event, once.

    A commit:
        1  judges by the ledger row, and gives it a mark that no other try has;
        2  writes the keys in chunks. A script compares, key by key, the registered fence and the stored fence and epoch;
        3  advances the row, from that mark only.
    """

    kind = SinkKind.IDEMPOTENT

    def __init__(self, url: str, key: str | Iterable[str], prefix: str) -> None:
        if not prefix or prefix.startswith("streamwork_"):
            raise WrongUse("SW-SINK-PREFIX", f"{prefix!r} cannot be the prefix of keys", "choose another")
        needed("redis", "redis")
        self.address = Address.of_url(url, ("redis", "rediss", "unix"))
        self.prefix = prefix
        self._key = (key,) if isinstance(key, str) else tuple(key)
        self._client: Any = None

    def __repr__(self) -> str:
        return f"RedisSink({self.address!r}, key={self._key!r}, prefix={self.prefix!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}  # each process connects for itself

    def open(self, event: type[E]) -> None:
        Key.of(event, self._key)
        for name in self._key:
            if fields_of(event)[name].nullable:
                raise WrongUse(
                    "SW-KEY-TYPE", f"{event.__name__}.{name} may be None", "key by fields that are always there"
                )
        with self._failing() as client:
            client.ping()

    def write(self, batch: pa.RecordBatch) -> None:
        if why := self.rejects([batch]):
            raise RowsRejected(why)
        self._put(scripts.AT_ONCE, "", 0, 0, iter((batch,)), "")

    def register(self, uid: str, sink_id: str, fence: int) -> None:
        owner = msgspec.json.encode([uid, sink_id])
        answer, detail = self._call(scripts.REGISTER, [_row_name(uid, sink_id), OWNERS], [fence, self.prefix, owner])
        if answer == "fenced":
            raise fenced(sink_id, int(detail), fence)
        if answer != "done":
            whose = f"prefix {detail!r} is in use" if answer == "overlaps" else f"belongs to {detail} (uid and sink)"
            raise Refused(
                "SW-SINK-OWNED",
                f"prefix {self.prefix!r} in {self.address}: {whose}",
                "run with the --root that the keys were written from, and the sink's old id; or choose another prefix; or, to "
                f"begin anew, remove the keys and their field in the hash {OWNERS}",
            )

    def ledger(self, uid: str, sink_id: str) -> LedgerRow | None:
        with self._failing() as client:
            found = {name.decode(): value.decode() for name, value in client.hgetall(_row_name(uid, sink_id)).items()}
        if not found:
            return None
        position = msgspec.json.decode(found["position"], type=Position) if "position" in found else None
        return LedgerRow(int(found["fence"]), position, found["manifest_sha256"], found["mark"])

    def commit(self, entry: LedgerEntry, staged: Iterator[pa.RecordBatch]) -> None:
        row = self.ledger(entry.uid, entry.sink)
        verdict = settle(row, entry)  # 1
        assert row is not None
        if verdict is Verdict.ADOPT:
            self._change(entry, row, "manifest_sha256", entry.manifest_sha256)
        elif verdict is Verdict.APPLY:
            mark = f"{entry.epoch}-{entry.fence}-{secrets.token_hex(8)}"
            self._change(entry, row, "mark", mark)
            self._put(scripts.KEYS, _row_name(entry.uid, entry.sink), entry.fence, entry.epoch, staged, entry.sink)  # 2
            values = [entry.fence, mark, entry.manifest_sha256, _json(entry.end)]
            self._obey(entry, row, *self._call(scripts.ADVANCE, [_row_name(entry.uid, entry.sink)], values))  # 3

    def rejects(self, rows: Sequence[pa.RecordBatch]) -> str:
        """A name that holds something else than a hash is not ours to overwrite."""
        names = sorted({name for batch in rows for name, _ in self._rows(batch)})
        with self._failing() as client:
            for start in range(0, len(names), CHUNK):
                part = names[start : start + CHUNK]
                pipeline = client.pipeline(transaction=False)
                for name in part:
                    pipeline.type(name)
                for name, kind in zip(part, pipeline.execute(), strict=True):
                    if kind not in (b"hash", b"none"):
                        return f"{name.decode(errors='replace')} is a {kind.decode()}"
        return ""

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    # ---- the way to Redis --------------------------------------------------------------------------------------------

    def _change(self, entry: LedgerEntry, row: LedgerRow, field: str, value: str) -> None:
        """Change the row, if it still is what was judged."""
        position = "" if row.position is None else _json(row.position)
        values = [entry.fence, row.manifest_sha256, position, field, value]
        self._obey(entry, row, *self._call(scripts.CHANGE, [_row_name(entry.uid, entry.sink)], values))

    @staticmethod
    def _obey(entry: LedgerEntry, row: LedgerRow, answer: str, detail: str) -> None:
        if answer == "fenced":
            raise fenced(entry.sink, int(detail), entry.fence)
        if answer == "changed":
            raise wrong_ledger(entry.sink, row, f"somebody changed it while checkpoint {entry.epoch} was being written")

    def _put(self, script: str, row: str, fence: int, epoch: int, staged: Iterator[pa.RecordBatch], sink: str) -> None:
        for batch in newest(staged, self._key):
            rows = list(self._rows(batch))
            for start in range(0, len(rows), CHUNK):
                chunk = rows[start : start + CHUNK]
                keys, packed = (
                    [row, *(name for name, _ in chunk)],
                    b"".join(_sized(v) for _, values in chunk for v in values),
                )
                answer, detail = self._call(script, keys, [fence, epoch, packed, *batch.schema.names])
                if answer == "fenced":
                    raise fenced(sink, int(detail), fence)
                if answer == "rejected":
                    raise RowsRejected(detail)

    def _call(self, script: str, keys: list[Any], values: list[Any]) -> tuple[str, str]:
        with self._failing() as client:
            answer, detail = client.register_script(script)(keys=keys, args=values)
        return answer.decode(), detail.decode(errors="replace")

    @contextmanager
    def _failing(self) -> Iterator[Any]:
        import redis

        try:
            yield self._connected()
        except redis.RedisError as error:
            raise JobFailed(
                "SW-SINK-FAILED",
                self.address.redact(f"{self.address}: {type(error).__name__}: {error}"),
                "mend the server, or the way to it, and start again: what was written is written again, to the same effect",
            ) from self.address.cause(error)

    def _connected(self) -> Any:
        if self._client is None:
            import redis
            from redis.backoff import ExponentialBackoff
            from redis.retry import Retry

            # Every script may run twice to the same effect, so an answer that was lost is simply asked for again.
            retry = Retry(ExponentialBackoff(cap=1, base=0.05), 5)
            self._client = redis.Redis.from_url(
                self.address.whole,
                retry=retry,
                socket_timeout=TIMEOUT,
                socket_connect_timeout=TIMEOUT,
            )
        return self._client

    def _rows(self, batch: pa.RecordBatch) -> Iterator[Row]:
        columns = [[_bytes(value) for value in with_text(column)] for column in batch.columns]
        parts = [columns[batch.schema.names.index(name)] for name in self._key]
        keys: Iterable[bytes] = parts[0]
        if len(parts) > 1:
            keys = (b":".join(map(_escaped, key)) for key in zip(*parts, strict=True))
        prefix = self.prefix.encode() + b":"
        for key, values in zip(keys, zip(*columns, strict=True), strict=True):
            yield prefix + key, values


def _row_name(uid: str, sink_id: str) -> str:
    return f"streamwork_ledger:{uid}:{sink_id}"


def _json(position: Position) -> str:
    return msgspec.json.encode(position, order="sorted").decode()


def _sized(value: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if value is None else len(value).to_bytes(4, "big") + value


def _escaped(part: bytes) -> bytes:
    return part.replace(b"%", b"%25").replace(b":", b"%3A")


def _bytes(value: Any) -> Any:
    """Text in UTF-8, numbers in decimal, booleans as true and false, bytes as they are; None stays None."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bool):
        return b"true" if value else b"false"
    return (value if isinstance(value, str) else repr(value)).encode()
