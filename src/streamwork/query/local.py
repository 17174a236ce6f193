"""`LocalState`: questions answered from a job's folder, by this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pyarrow as pa

from streamwork.components import Record
from streamwork.query.answer import Answer, Answers, Change, Consistency, Count, Selection, Stamp, TableAnswer
from streamwork.query.block import Bound
from streamwork.query.pile import Pile
from streamwork.query.reader import Reader
from streamwork.query.shape import Shape
from streamwork.query.sql.parent import SqlChild
from streamwork.query.state import Chosen, Component, Span, State
from streamwork.query.version import Version, unknown
from streamwork.query.watching import watch

R = TypeVar("R", bound=Record)


class LocalComponent(Component[R]):
    def __init__(self, reader: Reader, shape: Shape) -> None:
        super().__init__(shape)
        self._reader = reader

    def _get(self, parts: tuple[Any, ...], selection: Selection) -> Answer[R]:
        def make(version: Version) -> Any:
            state = version.component(self.name)
            row = state.pile.get(parts)
            return None if row is None else state.shape.records_of(row)[0]

        record, stamp = self._reader.answer(selection, make)
        return Answer(record=record, **stamped(stamp))

    def _get_many(self, keys: Sequence[Any], selection: Selection) -> Answers[R]:
        batch = self.shape.key_batch(keys)
        table, stamp = self._reader.answer(selection, lambda version: many(version.component(self.name).pile, batch))
        return Answers(shape=self.shape, table=table, asked=tuple(self.shape.keys_of(batch)), **stamped(stamp))

    def _rows(self, span: Span | None, selection: Selection) -> Answers[R]:
        (table, more), stamp = self._reader.answer(
            selection, lambda version: rows(version.component(self.name).pile, span)
        )
        return Answers(shape=self.shape, table=table, more=more, **stamped(stamp))

    def _count(self, selection: Selection) -> Count:
        count, stamp = self._reader.answer(selection, lambda version: version.component(self.name).pile.count())
        return Count(count=count, **stamped(stamp))

    def _watch(self, parts: tuple[Any, ...] | None, selection: Selection) -> Iterator[Change]:
        return watch(self._reader, self.name, parts, selection)


class LocalState(State):
    """`reader` follows the folder; it may be shared."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._sql = SqlChild()

    def __getitem__(self, component: str) -> Component[Any]:
        known = self._reader.known()
        if component not in known:
            raise unknown(component, known)
        return LocalComponent(self._reader, known[component].shape)

    def components(self) -> list[str]:
        return list(self._reader.known())

    def sql(
        self,
        query: str,
        *,
        at: str | None = None,
        consistency: Chosen = Consistency.COMMITTED,
        at_least: int | None = None,
        timeout: float = 5.0,
    ) -> TableAnswer:
        selection = Selection.of(at, consistency, at_least, timeout)
        table, stamp = self._reader.answer(selection, lambda version: self._sql.answer(version, query))
        return TableAnswer(table=table, **stamped(stamp))

    def close(self) -> None:
        self._sql.close()
        self._reader.close()


def many(pile: Pile, keys: pa.RecordBatch) -> pa.Table:
    """The rows of keys, in the order of the keys."""
    return pile.gather(pile.find(keys))


def rows(pile: Pile, span: Span | None) -> tuple[pa.Table, bool]:
    """(rows, whether there are more)"""
    if span is None:
        return pile.table(), False
    start = None if span.start is None else Bound.of(span.start, after=False)
    end = None if span.end is None else Bound.of(span.end, after=False)
    if span.prefix is not None:
        start = start or Bound.of(span.prefix, after=False)
        end = Bound.of(span.prefix, after=True, is_prefix=True)
    if span.after is not None:
        start = Bound.of(span.after, after=True)
    return pile.between(start, end, span.limit)


def stamped(stamp: Stamp) -> dict[str, Any]:
    return msgspec.structs.asdict(stamp)


def open(  # noqa: A001 (called as `query.open`)
    folder: str | Path, *, types: Mapping[str, type[Record]] | None = None, cache: str | Path | None = None
) -> LocalState:
    """The state of the job in a folder, such as ``.streamwork/card-usage``: no server is needed.

    `types`: component -> the class of its records; without it one is made of the stored columns. `cache`: a folder for snapshots
    in a form that can be mapped; without it, one in the user's cache folder.
    """
    path = Path(folder).absolute()
    return LocalState(Reader(path, types=types, cache=None if cache is None else Path(cache)))
