"""Sinks, and the ledger row by which a sink knows how far a job has been written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any, ClassVar, Generic, Self, TypeVar

import msgspec
import pyarrow as pa

from streamwork.components.position import Position, from_plain, plain
from streamwork.components.values import Event
from streamwork.errors import Refused

E = TypeVar("E", bound=Event, contravariant=True)


class SinkKind(Enum):
    """What a sink guarantees, and so which semantics it supports."""

    TRANSACTIONAL = "transactional"  # rows and ledger row change in one transaction
    IDEMPOTENT = "idempotent"  # each write of a key compares fence and epoch, so that repeating it changes nothing
    APPEND = "append"  # keeps no ledger: a row that is written twice is stored twice

    @property
    def keeps_ledger(self) -> bool:
        return self is not SinkKind.APPEND


class LedgerRow(msgspec.Struct, frozen=True):
    """How far one job has been written to a sink. There is one row per (uid, sink id); it changes only together with the data."""

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
    """The error for a driver whose fence is below the registered one."""
    return Refused(
        "SW-SINK-FENCED",
        f"a newer driver (fence {registered}) has taken over sink {sink}; this one has fence {mine}",
        "if the take-over was intended, do nothing: the newest driver continues. If not, stop the other driver and start again",
    )


class RowsRejected(Exception):
    """Raised by a sink that rejects rows for good: a retry cannot succeed. None of the rows is stored."""


class WriteStopped(Exception):
    """Raised by `write` at a row that it cannot write: the rows before it are written, those behind it are not."""

    def __init__(self, written: int, error: Exception) -> None:
        super().__init__(f"row {written}: {type(error).__name__}: {error}")
        self.written = written
        self.error = error


class LedgerEntry(msgspec.Struct, frozen=True):
    """An epoch that a driver offers to a sink: its start and end, its manifest, and the driver's fence."""

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
    """The epoch that previewed rows belong to."""

    uid: str
    sink: str
    fence: int
    epoch: int


class Sink(ABC, Generic[E]):
    """A target for events. What a sink implements decides which semantics it supports:

        write      every sink: rows are written at once (at-most-once, at-least-once)
        commit     a sink that keeps a ledger: a checkpoint's rows and the ledger row change together (exactly-once)
        preview    a sink that `previews`: besides `commit`, it shows rows at once, apart from committed ones

    `commit` is called on the driver. A driver that another one has replaced may still call it; the fence refuses it. `write` and
    `preview` are called by the instances, in other processes: a sink is pickled, so it opens connections when it needs them.
    """

    kind: ClassVar[SinkKind]
    previews: ClassVar[bool] = False

    def check(self, event: type[E]) -> None:
        """Refuse a type of events that the sink cannot store, for example one without the sink's key. Called when the job is built:
        it must not access the target.
        """

    def check_target(self, uid: str, sink_id: str) -> None:
        """Refuse a target that belongs to another sink, or that is not the one this sink has written so far, before `open` creates
        anything. Changes nothing. `uid` is empty if the job is new. `register` checks again.
        """

    @abstractmethod
    def open(self, event: type[E]) -> None:
        """Prepare the target for events of this type, or refuse. Called first, in every process that uses the sink, perhaps several
        times.
        """

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Write these rows at once. When it returns, they are as durable as the target makes them.

        Raises `RowsRejected` if the rows themselves are the cause; then none of them is stored. A sink that writes row by row may
        raise `WriteStopped`.
        """

    def register(self, uid: str, sink_id: str, fence: int) -> None:
        """Write the fence into the ledger row, creating it if there is none, and remove every preview. Refuses a lower fence,
        and a target that another job owns.
        """
        raise NotImplementedError

    def ledger(self, uid: str, sink_id: str) -> LedgerRow | None:
        """The ledger row; None if there is none. May be called before `open`, and creates nothing."""
        raise NotImplementedError

    def commit(self, entry: LedgerEntry, staged: Iterator[pa.RecordBatch]) -> None:
        """Apply the rows and advance the ledger in one transaction, by the commit rule (`components.commit_rule`); remove the
        previews of this epoch and of those before it.

        Raises `RowsRejected` if the rows themselves are the cause.
        """
        raise NotImplementedError

    def rejects(self, rows: Sequence[pa.RecordBatch]) -> str:
        """Why the sink rejects these rows for good; empty if it accepts them. Stores none of them.

        A sink that raises `RowsRejected` implements it, so that the rejected rows can be found.
        """
        return ""

    def open_previews(self, uid: str, sink_id: str) -> None:
        """Create the table of previews and the view that readers use. Called on the driver after `register`, if the sink previews.
        Refuses tables and views that the sink has not created.
        """

    def preview(self, label: PreviewLabel, batch: pa.RecordBatch) -> None:
        """Show these rows at once, beside the committed ones. Readers use a view over both. It has only the previews of the
        registered fence, and only of checkpoints that are neither committed nor withdrawn.
        """
        raise NotImplementedError

    def withdraw(self, uid: str, sink_id: str, epoch: int) -> None:
        """The epoch is abandoned: remove its previews, and those of earlier epochs."""
        raise NotImplementedError

    def cannot_rewind(self, uid: str, sink_id: str, to: LedgerRow) -> str:
        """Why the sink cannot remove what was committed after the checkpoint that `to` names; empty if it can. Changes nothing."""
        return "this kind of sink cannot remove rows by checkpoint"

    def rewind(self, uid: str, sink_id: str, to: LedgerRow) -> int:
        """Remove the rows that were committed after a checkpoint. In the same transaction the ledger row takes position and hash of
        `to`. Returns the number of rows. Refuses a fence that is not the registered one.
        """
        raise NotImplementedError

    def newest_by(self) -> tuple[str, ...]:
        """The fields of the key, if a row replaces the row of the same key; none if every row is added."""
        return ()

    def removes(self, batch: pa.RecordBatch) -> pa.BooleanArray | None:
        """For each row, whether it removes the row of its key; None if no row does. Called after `check`."""
        return None

    def with_target(self, target: str) -> Self:
        """The same sink with another target, for a job that was forked: a path, or what else names one. Not every sink can."""
        raise NotImplementedError

    def used(self) -> str:
        """What is in the target already; empty if there is nothing. Creates nothing, and may be called before `open`."""
        return ""

    def close(self) -> None:
        """Called when the job ends, except after a crash."""


class Observer(ABC):
    """Gets committed results, without any guarantee. `print()` is one."""

    @abstractmethod
    def observe(self, sink_id: str, batch: pa.RecordBatch) -> None: ...


AnySink = Sink[Any] | Observer
