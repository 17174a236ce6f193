"""`State` and `Component`: what users ask questions of. `query.open` and `query.connect` give the same interface.

state["per-card"].get("card-00017")                  # one key
state["per-card"].range("card-000", "card-001")      # keys in order
state["clicks"].windows("page-1", since=..., until=...)
state.sql("SELECT ...").to_arrow()
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from streamwork.components import Record
from streamwork.errors import WrongUse
from streamwork.operators.windows.plan import START
from streamwork.query.answer import Answer, Answers, Change, Consistency, Count, Selection, TableAnswer
from streamwork.query.shape import Shape

R = TypeVar("R", bound=Record)
LIMIT = 1_000
"""Rows of an answer, unless another limit is requested."""
Chosen = str | Consistency


@dataclass(frozen=True)
class Span:
    """Keys in order: from `start` on, before `end`, behind `after`, all of which may be the first parts of a key; those that begin
    with `prefix`, of which the last part may be the beginning of a text.
    """

    start: tuple[Any, ...] | None = None
    end: tuple[Any, ...] | None = None
    prefix: tuple[Any, ...] | None = None
    after: tuple[Any, ...] | None = None
    limit: int = LIMIT

    def __post_init__(self) -> None:
        if not isinstance(self.limit, int) or self.limit < 1:
            raise WrongUse("SW-QUERY-OPTION", f"limit={str(self.limit)[:20]} is not a number of rows", "give 1 or more")
        if self.prefix is not None and self.end is not None:
            raise WrongUse("SW-QUERY-OPTION", "a prefix and an end exclude each other", "use one of them")


class Component(ABC, Generic[R]):
    """The state of one component. Instance state has the number of the instance as its key.

    Every method takes `at` (``checkpoint:N`` or ``savepoint:NAME``), `consistency` (``committed``, ``prepared`` or ``latest``),
    `at_least` (the number of a checkpoint that must be in the answer) and `timeout` (how many seconds to wait for that).
    """

    def __init__(self, shape: Shape) -> None:
        self.shape = shape

    @property
    def name(self) -> str:
        return self.shape.component

    def get(
        self,
        key: Any,
        *,
        at: str | None = None,
        consistency: Chosen = Consistency.COMMITTED,
        at_least: int | None = None,
        timeout: float = 5.0,
    ) -> Answer[R]:
        """The record of a key; of a key of several parts, a tuple of them or a dict by name."""
        return self._get(self.shape.parts(key), Selection.of(at, consistency, at_least, timeout))

    def get_many(
        self,
        keys: Sequence[Any],
        *,
        at: str | None = None,
        consistency: Chosen = Consistency.COMMITTED,
        at_least: int | None = None,
        timeout: float = 5.0,
    ) -> Answers[R]:
        """The records of keys, all from one checkpoint."""
        return self._get_many(keys, Selection.of(at, consistency, at_least, timeout))

    def range(
        self,
        start: Any = None,
        end: Any = None,
        *,
        after: Any = None,
        limit: int = LIMIT,
        at: str | None = None,
        consistency: Chosen = Consistency.COMMITTED,
        at_least: int | None = None,
        timeout: float = 5.0,
    ) -> Answers[R]:
        """Keys in order from `start` on and before `end`. The first parts of a key are enough. Go on behind a key with `after`."""
        span = Span(self._bound(start), self._bound(end), None, self._bound(after), limit)
        return self._rows(span, Selection.of(at, consistency, at_least, timeout))

    def prefix(
        self,
        prefix: Any,
        *,
        after: Any = None,
        limit: int = LIMIT,
        at: str | None = None,
        consistency: Chosen = Consistency.COMMITTED,
        at_least: int | None = None,
        timeout: float = 5.0,
    ) -> Answers[R]:
        """Keys in order that begin with a text, or with the first parts of a key."""
        span = Span(None, None, self.shape.parts(prefix, fewer=True), self._bound(after), limit)
        return self._rows(span, Selection.of(at, consistency, at_least, timeout))

    def windows(
        self,
        key: Any,
        since: datetime | None = None,
        until: datetime | None = None,
        *,
        limit: int = LIMIT,
        at: str | None = None,
        consistency: Chosen = Consistency.COMMITTED,
        at_least: int | None = None,
        timeout: float = 5.0,
    ) -> Answers[R]:
        """The windows of a key that start from `since` on and before `until`. A window without a key has the key True."""
        span = window_span(self.shape, self.shape.parts(key, fewer=True), since, until, limit)
        return self._rows(span, Selection.of(at, consistency, at_least, timeout))

    def scan(
        self,
        *,
        at: str | None = None,
        consistency: Chosen = Consistency.COMMITTED,
        at_least: int | None = None,
        timeout: float = 5.0,
    ) -> Answers[R]:
        """All keys, in no order."""
        return self._rows(None, Selection.of(at, consistency, at_least, timeout))

    def count(
        self,
        *,
        at: str | None = None,
        consistency: Chosen = Consistency.COMMITTED,
        at_least: int | None = None,
        timeout: float = 5.0,
    ) -> Count:
        """The number of keys."""
        return self._count(Selection.of(at, consistency, at_least, timeout))

    def watch(self, key: Any = None, *, consistency: Chosen = Consistency.COMMITTED) -> Iterator[Change]:
        """The changes of the component, or of one key, checkpoint by checkpoint, from the next one on. Ends never by itself."""
        parts = None if key is None else self.shape.parts(key)
        return self._watch(parts, Selection.of(None, consistency))

    def _bound(self, key: Any) -> tuple[Any, ...] | None:
        return None if key is None else self.shape.parts(key, fewer=True)

    @abstractmethod
    def _get(self, parts: tuple[Any, ...], selection: Selection) -> Answer[R]: ...

    @abstractmethod
    def _get_many(self, keys: Sequence[Any], selection: Selection) -> Answers[R]: ...

    @abstractmethod
    def _rows(self, span: Span | None, selection: Selection) -> Answers[R]:
        """Without a span, all rows in no order."""

    @abstractmethod
    def _count(self, selection: Selection) -> Count: ...

    @abstractmethod
    def _watch(self, parts: tuple[Any, ...] | None, selection: Selection) -> Iterator[Change]: ...


class State(ABC):
    """The state of a job."""

    @abstractmethod
    def __getitem__(self, component: str) -> Component[Any]:
        """The state of a component. Refuses a name that no component with state has (SW-QUERY-COMPONENT)."""

    @abstractmethod
    def components(self) -> list[str]:
        """The names of the components that keep state."""

    @abstractmethod
    def sql(
        self,
        query: str,
        *,
        at: str | None = None,
        consistency: Chosen = Consistency.COMMITTED,
        at_least: int | None = None,
        timeout: float = 5.0,
    ) -> TableAnswer:
        """The result of a SELECT in DuckDB's SQL, in which each component is a table. Needs the extra `sql`."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def window_span(
    shape: Shape, key: tuple[Any, ...], since: datetime | None, until: datetime | None, limit: int = LIMIT
) -> Span:
    """The windows of one key as a range. Refuses a component that has no windows by time (SW-QUERY-WINDOWS)."""
    if START not in shape.key:
        raise WrongUse(
            "SW-QUERY-WINDOWS",
            f"{shape.component} has no windows by time: its key is {', '.join(shape.key)}",
            "ask for a key or a range",
        )
    if len(key) != shape.key.index(START):
        raise WrongUse(
            "SW-QUERY-KEY",
            f"windows of {shape.component} are requested by {', '.join(shape.key[: shape.key.index(START)])}",
            "give the key without the window",
        )
    start = key if since is None else shape.parts((*key, since), fewer=True)
    if until is None:
        return Span(start=start, prefix=key, limit=limit)
    return Span(start=start, end=shape.parts((*key, until), fewer=True), limit=limit)
