"""Redis as a sink: one hash per key. Each write checks fence and epoch."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import pyarrow as pa

from streamwork.components import Event, LedgerEntry, LedgerRow, Position, RowsRejected, Sink, SinkKind
from streamwork.components.commit_rule import Verdict, settle, wrong_ledger
from streamwork.components.expression import Expression
from streamwork.components.sink import fenced
from streamwork.connectors import redis_scripts as scripts
from streamwork.connectors.address import Address, needed
from streamwork.connectors.keyed import Deletes, check_key
from streamwork.connectors.pieces import newest
from streamwork.connectors.text import as_bytes, joined_keys, with_text
from streamwork.errors import JobFailed, Refused, WrongUse

E = TypeVar("E", bound=Event)
CHUNK = 500  # keys per script: Redis serves no other client while a script runs
CHUNK_BYTES = 4 << 20  # bytes of values per script
LARGEST = 512 << 20  # maximum bytes of one argument, if the server does not report it (proto-max-bulk-len)
OWNERS = "streamwork_owners"
TIMEOUT = 30.0
RETRIES = 5
_NONE, _DELETED = b"\xff\xff\xff\xff", b"\xff\xff\xff\xfe"  # in place of the length of a value
Row = tuple[
    bytes, tuple[bytes | None, ...] | None
]  # the key's name; the values of the fields, or None to remove the key


class RedisSink(Sink[E], Generic[E]):
    """Keeps the newest event of each key as a hash named ``PREFIX:KEY``, with one text value per field. `delete` is a condition on
    fields: an event for which it is true removes the hash of its key.

    Idempotent: readers see keys change one by one while a checkpoint is committed. After a crash some keys may be ahead of the
    others until the job resumes; then each key has the value of its last event.

    A commit:
        1  applies the commit rule to the ledger row, and writes a mark into it that is unique to this attempt;
        2  writes the keys in chunks. A script compares, key by key, the registered fence and the stored fence and epoch; a
           delete stores these in a tombstone, which readers do not see;
        3  advances the row, only if it still has that mark. From then on writes of this checkpoint, or of earlier ones, are
           refused, and the tombstones are removed (`redis_scripts` proves that this is safe).
    """

    kind = SinkKind.IDEMPOTENT

    def __init__(self, url: str, key: str | Iterable[str], prefix: str, *, delete: Expression | None = None) -> None:
        if not prefix or prefix.startswith("streamwork_"):
            raise WrongUse("SW-SINK-PREFIX", f"{prefix!r} cannot be the prefix of keys", "choose another prefix")
        needed("redis", "redis")
        self.address = Address.of_url(url, ("redis", "rediss", "unix"))
        self.prefix = prefix
        self._key = (key,) if isinstance(key, str) else tuple(key)
        self._deletes = Deletes(delete, self._key)
        self._client: Any = None
        self._limit = 0  # maximum bytes of one argument; 0: unknown

    def __repr__(self) -> str:
        deletes = f", delete={self._deletes.condition!r}" if self._deletes else ""
        return f"RedisSink({self.address!r}, key={self._key!r}, prefix={self.prefix!r}{deletes})"

    def with_target(self, target: str) -> RedisSink[E]:
        """PREFIX, in the same database: an address could hold a password, and targets are stored."""
        return RedisSink(self.address.whole, self._key, target, delete=self._deletes.condition)

    def newest_by(self) -> tuple[str, ...]:
        return self._key

    def removes(self, batch: pa.RecordBatch) -> pa.BooleanArray | None:
        return self._deletes.mask(batch) if self._deletes else None

    def used(self) -> str:
        with self._failing() as client:
            found = next(iter(client.scan_iter(match=f"{_literal(self.prefix)}:*", count=1000)), None)
        return "" if found is None else f"there are keys {self.prefix}:… in {self.address}"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}  # each process opens its own connection

    def check(self, event: type[E]) -> None:
        check_key(event, self._key)
        self._deletes.check(event)

    def open(self, event: type[E]) -> None:
        self.check(event)
        with self._failing() as client:
            client.ping()

    def write(self, batch: pa.RecordBatch) -> None:
        if why := self.rejects([batch]):
            raise RowsRejected(why)
        for chunk in self._chunks(iter((batch,))):
            answer, detail = self._call(scripts.AT_ONCE, ["", "", *chunk.names], [0, 0, chunk.packed, *chunk.fields])
            if answer == "rejected":
                raise RowsRejected(detail)

    def register(self, uid: str, sink_id: str, fence: int) -> None:
        owner = msgspec.json.encode([uid, sink_id])
        answer, detail = self._call(scripts.REGISTER, [_row_name(uid, sink_id), OWNERS], [fence, self.prefix, owner])
        if answer == "fenced":
            raise fenced(sink_id, int(detail), fence)
        if answer == "moved":
            raise Refused(
                "SW-SINK-MOVED",
                f"sink {sink_id!r} of this job has written keys {detail}:… in {self.address} so far; they would be "
                f"missing under {self.prefix!r}",
                f"use prefix {detail!r} again; or, to write another prefix from now on, give the sink another id",
            )
        if answer != "done":
            whose = f"prefix {detail!r} is in use" if answer == "overlaps" else f"belongs to {detail} (uid and sink)"
            raise Refused(
                "SW-SINK-OWNED",
                f"prefix {self.prefix!r} in {self.address}: {whose}",
                "run with the --root that the keys were written from, and the sink's old id; or choose another prefix; or "
                f"remove the keys and their field in the hash {OWNERS} to start from scratch",
            )

    def ledger(self, uid: str, sink_id: str) -> LedgerRow | None:
        with self._failing() as client:
            found = {name.decode(): value.decode() for name, value in client.hgetall(_row_name(uid, sink_id)).items()}
        if not found:
            return None
        position = Position.from_json(found["position"]) if "position" in found else None
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
            names = [_row_name(entry.uid, entry.sink), _tombstones_name(entry.uid, entry.sink)]
            for chunk in self._chunks(staged):  # 2
                values = [entry.fence, entry.epoch, chunk.packed, *chunk.fields]
                self._obey(entry, row, *self._call(scripts.KEYS, [*names, *chunk.names], values))
            values = [entry.fence, mark, entry.manifest_sha256, entry.end.to_json(), entry.epoch]
            self._obey(entry, row, *self._call(scripts.ADVANCE, names, values))  # 3

    def rejects(self, rows: Sequence[pa.RecordBatch]) -> str:
        """A key that holds another type than a hash is not overwritten, and a row that is too large is not accepted."""
        names: list[bytes] = []
        for batch in rows:
            for name, values in self._rows(batch):
                if why := self._too_large(name, _packed(values)):
                    return why
                names.append(name)
        names = sorted(set(names))
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
        """Change a field of the row, if the row is unchanged since the commit rule was applied."""
        position = "" if row.position is None else row.position.to_json()
        values = [entry.fence, row.manifest_sha256, position, field, value]
        self._obey(entry, row, *self._call(scripts.CHANGE, [_row_name(entry.uid, entry.sink)], values))

    @staticmethod
    def _obey(entry: LedgerEntry, row: LedgerRow, answer: str, detail: str) -> None:
        if answer == "fenced":
            raise fenced(entry.sink, int(detail), entry.fence)
        if answer == "rejected":
            raise RowsRejected(detail)
        if answer == "changed":
            raise wrong_ledger(
                entry.sink, row, f"another program changed it while checkpoint {entry.epoch} was being written"
            )

    def _chunks(self, staged: Iterator[pa.RecordBatch]) -> Iterator[_Chunk]:
        """The newest row of each key, in chunks of at most `CHUNK` keys and `CHUNK_BYTES` bytes."""
        most = min(CHUNK_BYTES, self._largest())
        for batch in newest(staged, self._key):
            names: list[bytes] = []
            packed: list[bytes] = []
            size = 0
            for name, values in self._rows(batch):
                row = _packed(values)
                if why := self._too_large(name, row):
                    raise RowsRejected(why)
                if names and (len(names) == CHUNK or size + len(row) > most):
                    yield _Chunk(names, b"".join(packed), batch.schema.names)
                    names, packed, size = [], [], 0
                names.append(name)
                packed.append(row)
                size += len(row)
            if names:
                yield _Chunk(names, b"".join(packed), batch.schema.names)

    def _too_large(self, name: bytes, packed: bytes) -> str:
        """A message if the server does not accept a row of this size; empty if it does."""
        size = max(len(name), len(packed))
        shown = name[:60].decode(errors="replace")
        return (
            f"{shown} has {size:,} bytes; the server accepts at most {self._largest():,}"
            if size > self._largest()
            else ""
        )

    def _largest(self) -> int:
        if not self._limit:
            import redis

            with self._failing() as client:
                try:
                    self._limit = int(client.config_get("proto-max-bulk-len")["proto-max-bulk-len"])
                except (redis.ResponseError, KeyError):  # this user may not call CONFIG
                    self._limit = LARGEST
        return self._limit

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
                "check the server and the network, and start again: writes are repeated with the same result",
            ) from self.address.cause(error)

    def _connected(self) -> Any:
        if self._client is None:
            import redis
            from redis.backoff import ExponentialBackoff
            from redis.retry import Retry

            # Every script is idempotent, so a script whose answer was lost is run again.
            retry = Retry(ExponentialBackoff(cap=1, base=0.05), RETRIES)
            self._client = redis.Redis.from_url(
                self.address.whole,
                retry=retry,
                socket_timeout=TIMEOUT,
                socket_connect_timeout=TIMEOUT,
            )
        return self._client

    def _rows(self, batch: pa.RecordBatch) -> Iterator[Row]:
        columns = [[as_bytes(value) for value in with_text(column)] for column in batch.columns]
        parts = [columns[batch.schema.names.index(name)] for name in self._key]
        prefix = self.prefix.encode() + b":"
        deleted = self._deletes.mask(batch).to_pylist() if self._deletes else repeat(False, batch.num_rows)
        for key, values, gone in zip(joined_keys(parts), zip(*columns, strict=True), deleted, strict=True):
            yield prefix + key, None if gone else values


class _Chunk(NamedTuple):
    """The keys of one script call, and their encoded values."""

    names: list[bytes]
    packed: bytes
    fields: list[str]


def _row_name(uid: str, sink_id: str) -> str:
    return f"streamwork_ledger:{uid}:{sink_id}"


def _tombstones_name(uid: str, sink_id: str) -> str:
    return f"streamwork_tombstones:{uid}:{sink_id}"


def _packed(values: tuple[bytes | None, ...] | None) -> bytes:
    return _DELETED if values is None else b"".join(map(_sized, values))


def _sized(value: bytes | None) -> bytes:
    return _NONE if value is None else len(value).to_bytes(4, "big") + value


def _literal(prefix: str) -> str:
    """The prefix in a pattern of SCAN."""
    return "".join(f"\\{c}" if c in "*?[]\\" else c for c in prefix)
