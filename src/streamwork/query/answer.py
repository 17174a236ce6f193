"""What a question is answered with. Every answer names the checkpoint that it was read from."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any, Generic, TypeVar

import msgspec
import pyarrow as pa

from streamwork.components import Record
from streamwork.errors import WrongUse
from streamwork.query.shape import Shape

R = TypeVar("R", bound=Record)


class Consistency(Enum):
    """Which state answers."""

    COMMITTED = "committed"  # the newest completed checkpoint: every sink has it
    PREPARED = "prepared"  # also one that is computed and not in every sink yet; it is never computed again
    LATEST = "latest"  # in live mode, with --queryable-latest, also what lies behind the checkpoint; it may be undone


class Stamp(msgspec.Struct, frozen=True):
    """Where an answer comes from."""

    epoch: int  # of the checkpoint; behind it, the epoch in progress
    committed: bool
    age: float  # seconds since it was written
    regressed: bool = False  # a checkpoint that was answered from before no longer counts: results may go back
    possibly_undone: bool = False  # behind the checkpoint: a failure computes it again, maybe with another result


class Selection(msgspec.Struct, frozen=True):
    """Which checkpoint answers."""

    at: str | None = None  # checkpoint:N or savepoint:NAME; None: the newest
    consistency: Consistency = Consistency.COMMITTED
    at_least: int | None = None  # the number of a checkpoint that must be in the answer
    timeout: float = 5.0  # seconds to wait for it

    @classmethod
    def of(
        cls,
        at: str | None = None,
        consistency: str | Consistency = Consistency.COMMITTED,
        at_least: int | None = None,
        timeout: float = 5.0,
    ) -> Selection:
        """Refuses an unknown consistency, and what contradicts itself."""
        try:
            chosen = Consistency(consistency)
        except ValueError:
            raise WrongUse(
                "SW-QUERY-OPTION",
                f"there is no consistency {str(consistency)[:40]!r}",
                f"use one of: {', '.join(one.value for one in Consistency)}",
            ) from None
        if at is not None and at_least is not None:
            raise WrongUse(
                "SW-QUERY-OPTION",
                "at= and at_least= exclude each other",
                "use at= for a stored checkpoint, or at_least=",
            )
        return cls(at, chosen, at_least, timeout)


NEWEST = Selection()


class Answer(msgspec.Struct, Generic[R], frozen=True):
    """The record of one key, or None: there is no such key at this checkpoint. The other fields are those of a `Stamp`."""

    record: R | None
    epoch: int
    committed: bool
    age: float
    regressed: bool = False
    possibly_undone: bool = False


class Count(Stamp, frozen=True, kw_only=True):
    """A number of keys."""

    count: int


class Answers(Stamp, Generic[R], frozen=True, kw_only=True, dict=True):
    """Several keys with their records. Iteration gives (key, record) of those that are there: `dict(answers)` has them by key."""

    shape: Shape
    table: pa.Table  # one row for each key that is there
    more: bool = False  # the limit was reached: go on with after=answers.found_keys[-1]
    asked: tuple[Any, ...] | None = None  # by `get_many`: the keys that were requested

    def to_arrow(self) -> pa.Table:
        """The rows that are there: columns of the key, then of the record."""
        return self.table

    @property
    def found_keys(self) -> list[Any]:
        """The keys that are there. Not called `keys`, which `dict` would take for a method."""
        return [key for batch in self.table.to_batches() for key in self.shape.keys_of(batch)]

    @property
    def records(self) -> list[R | None]:
        """The records; of `get_many`, one for each key that was requested, None where there is no such key."""
        found = [record for batch in self.table.to_batches() for record in self.shape.records_of(batch)]
        if self.asked is None or len(found) == len(self.asked):
            return found
        by_key = dict(zip(self.found_keys, found, strict=True))
        return [by_key.get(key) for key in self.asked]

    def __iter__(self) -> Iterator[tuple[Any, R]]:
        for batch in self.table.to_batches():
            yield from zip(self.shape.keys_of(batch), self.shape.records_of(batch), strict=True)

    def __len__(self) -> int:
        return int(self.table.num_rows)


class TableAnswer(Stamp, frozen=True, kw_only=True):
    """The result of SQL."""

    table: pa.Table

    def to_arrow(self) -> pa.Table:
        return self.table


class Change(msgspec.Struct, frozen=True):
    """What one checkpoint changed: the rows that are new or differ, and the keys that are gone."""

    epoch: int
    shape: Shape
    rows: pa.Table
    gone: pa.Table
    regressed: bool = False  # the watched state has gone back or was replaced: read it again

    @property
    def keys(self) -> list[Any]:
        return [key for batch in self.rows.to_batches() for key in self.shape.keys_of(batch)]

    @property
    def records(self) -> dict[Any, Any]:
        """Key -> its new record; None: the key is gone."""
        found: dict[Any, Any] = {}
        for batch in self.rows.to_batches():
            found.update(zip(self.shape.keys_of(batch), self.shape.records_of(batch), strict=True))
        for batch in self.gone.to_batches():
            found.update(dict.fromkeys(self.shape.keys_of(batch)))
        return found
