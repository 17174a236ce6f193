"""Where results go, and the row by which a sink remembers how far it has come."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any, ClassVar, Generic, TypeVar

import msgspec
import pyarrow as pa

from streamwork.components.position import Position, from_plain, plain
from streamwork.components.values import Event
from streamwork.errors import Refused

E = TypeVar("E", bound=Event, contravariant=True)


class SinkKind(Enum):
    """What a sink can promise, and with it the semantics that it can take part in."""

    TRANSACTIONAL = "transactional"  # rows and ledger row change in one transaction
    IDEMPOTENT = "idempotent"  # every key's write compares fence and epoch, so that writing it again changes nothing
    APPEND = "append"  # keeps no ledger: what is written twice is there twice

    @property
    def keeps_ledger(self) -> bool:
        return self is not SinkKind.APPEND


class LedgerRow(msgspec.Struct, frozen=True):
    """What a sink remembers of one job: one row per (uid, sink id), changed only together with its data."""

    fence: int
    position: Position | None  # None: registered, never written
    manifest_sha256: str
    mark: str = ""

    def to_json(self) -> str:
        """The row as text, for a sink that stores it as such."""
        return msgspec.json.encode(self, enc_hook=plain).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> LedgerRow:
        """The row that `to_json` wrote."""
        return msgspec.json.decode(text, type=cls, dec_hook=from_plain)


def fenced(sink: str, registered: int, mine: int) -> Refused:
    """What a driver is told whose fence is below the registered one."""
    return Refused(
        "SW-SINK-FENCED",
        f"a newer driver (fence {registered}) has taken over sink {sink}; this one has fence {mine}",
        "nothing to mend if that was meant: only the newest driver goes on. If not, stop the other one and start again",
    )


class RowsRejected(Exception):
    """A sink refuses rows for good, because of what they are: trying again cannot help. Nothing of them was kept."""


class WriteStopped(Exception):
    """`write` came to a row that it could not write: those before it are written, those behind it were not tried."""

    def __init__(self, written: int, error: Exception) -> None:
        super().__init__(f"row {written}: {type(error).__name__}: {error}")
        self.written = written
        self.error = error


class LedgerEntry(msgspec.Struct, frozen=True):
    """One epoch, offered to a sink: from where, to where, on whose behalf."""

    uid: str
    sink: str
    fence: int
    epoch: int
    start: Position
    end: Position
    parent_sha256: str
    manifest_sha256: str
    deterministic: bool
    first: bool  # the parent manifest does not name this sink yet


class PreviewLabel(msgspec.Struct, frozen=True):
    """Whose preview some rows are."""

    uid: str
    sink: str
    fence: int
    epoch: int


class Sink(ABC, Generic[E]):
    """Where events leave a job. What a sink can do decides which semantics it can take part in:

        write      every sink: rows are written at once (at-most-once, at-least-once)
        commit     a sink that keeps a ledger: a checkpoint's rows and the ledger row change together (exactly-once)
        preview    a sink that `previews`: besides `commit`, rows can be shown at once, apart from those that are committed

    `commit` is called on the driver, by one driver at a time, except for one that should be dead: the fence. `write` and
    `preview` are called by the instances, in other processes: a sink is sent there, so it opens connections when it needs them
    and does not pickle them.
    """

    kind: ClassVar[SinkKind]
    previews: ClassVar[bool] = False

    def check(self, event: type[E]) -> None:
        """Refuse events of this type for what they are: a key that they do not have, say. Called when the job is put
        together, so it looks at nothing but the type.
        """

    def look(self, uid: str, sink_id: str) -> None:
        """Refuse a target that is another sink's, or another than this sink has filled until now, before `open` makes anything.
        Changes nothing. `uid` is empty if the job is new. `register` decides; this spares a target the start that it refuses.
        """

    @abstractmethod
    def open(self, event: type[E]) -> None:
        """Make the target ready for events of this type, or refuse. Called before anything else, in every process that uses
        the sink; perhaps several times.
        """

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Write these rows at once: when it returns they are as durable as the target makes them.

        Raises `RowsRejected` where the rows themselves are to blame; then nothing of them was kept. A sink that writes row by
        row may raise `WriteStopped`.
        """

    def register(self, uid: str, sink_id: str, fence: int) -> None:
        """Write the fence into the ledger row, creating it if there is none, and remove every preview. Refuses a lower fence,
        and a target that another job owns.
        """
        raise NotImplementedError

    def ledger(self, uid: str, sink_id: str) -> LedgerRow | None:
        """The ledger row; None if there is none. May be called before `open`, and makes nothing."""
        raise NotImplementedError

    def commit(self, entry: LedgerEntry, staged: Iterator[pa.RecordBatch]) -> None:
        """Apply the rows and advance the ledger in one transaction, by the commit rule (`components.commit_rule`); remove the
        previews of this epoch and of those before it.

        Raises `RowsRejected` where the rows themselves are to blame.
        """
        raise NotImplementedError

    def rejects(self, rows: Sequence[pa.RecordBatch]) -> str:
        """Why the sink would refuse these rows for good; empty if it would take them. Keeps nothing of them.

        A sink that raises `RowsRejected` answers here, so that the rows to blame can be found.
        """
        return ""

    def open_previews(self, uid: str, sink_id: str) -> None:
        """Make the place ready where previews are shown, and what people read them through. Called on the driver, when the sink is
        registered; only if it is to preview. Refuses a place that the sink has not made.
        """

    def preview(self, label: PreviewLabel, batch: pa.RecordBatch) -> None:
        """Show these rows at once, beside those that are committed. Readers who want them read a view over both, in which only
        the previews of the registered fence count, and only those of checkpoints that are neither committed nor withdrawn.
        """
        raise NotImplementedError

    def withdraw(self, uid: str, sink_id: str, epoch: int) -> None:
        """The epoch came to nothing: remove its previews, and those of epochs before it."""
        raise NotImplementedError

    def close(self) -> None:
        """Called when the job ends, except on a crash."""


class Observer(ABC):
    """Sees committed results; promises nothing. `print()` is one."""

    @abstractmethod
    def observe(self, sink_id: str, batch: pa.RecordBatch) -> None: ...


AnySink = Sink[Any] | Observer
