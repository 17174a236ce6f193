"""Where results go, and the row by which a sink remembers how far it has come."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any, ClassVar, Generic, TypeVar

import msgspec
import pyarrow as pa

from streamwork.components.values import Event
from streamwork.errors import Refused

E = TypeVar("E", bound=Event)
Position = dict[str, int]  # source/partition -> offset; a missing one is 0


class SinkKind(Enum):
    """What a sink can promise, and with it the semantics that it can take part in."""

    TRANSACTIONAL = "transactional"
    IDEMPOTENT = "idempotent"
    APPEND = "append"


class LedgerRow(msgspec.Struct, frozen=True):
    """What a sink remembers of one job: one row per (uid, sink id), changed only together with its data."""

    fence: int
    position: Position | None  # None: registered, never written
    manifest_sha256: str
    mark: str = ""


def fenced(sink: str, registered: int, mine: int) -> Refused:
    """What a driver is told whose fence is below the registered one."""
    return Refused(
        "SW-SINK-FENCED",
        f"a newer driver (fence {registered}) has taken over sink {sink}; this one has fence {mine}",
        "nothing to mend if that was meant: only the newest driver goes on. If not, stop the other one and start again",
    )


class RowsRejected(Exception):
    """A sink refuses rows for good, because of what they are: trying again cannot help. Nothing of them was kept."""


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


class Sink(ABC, Generic[E]):
    """A sink that keeps a ledger. `commit` is called by one driver at a time, except for one that should be dead: the
    fence.
    """

    kind: ClassVar[SinkKind]

    @abstractmethod
    def open(self, event: type[E]) -> None:
        """Make the target ready for events of this type, or refuse. Called once, on the driver, before anything else."""

    @abstractmethod
    def register(self, uid: str, sink_id: str, fence: int) -> None:
        """Write the fence into the ledger row, creating it if there is none. Refuses a lower fence, and a target that
        another job owns.
        """

    @abstractmethod
    def ledger(self, uid: str, sink_id: str) -> LedgerRow | None:
        """The ledger row; None if there is none."""

    @abstractmethod
    def commit(self, entry: LedgerEntry, staged: Iterator[pa.RecordBatch]) -> None:
        """Apply the rows and advance the ledger in one transaction, by the commit rule (`epoch.commit`).

        Raises `RowsRejected` where the rows themselves are to blame.
        """

    def rejects(self, rows: Sequence[pa.RecordBatch]) -> str:
        """Why the sink would refuse these rows for good; empty if it would take them. Keeps nothing of them.

        A sink that raises `RowsRejected` answers here, so that the rows to blame can be found.
        """
        return ""

    def close(self) -> None:
        """Called when the job ends, except on a crash."""


class Observer(ABC):
    """Sees committed results; promises nothing. `print()` is one."""

    @abstractmethod
    def observe(self, sink_id: str, batch: pa.RecordBatch) -> None: ...


AnySink = Sink[Any] | Observer
