"""A database lookup: rows that a function or an SQL query finds by key, through a cache."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from typing import Any

import numpy as np
import pyarrow as pa

from streamwork.components import Event, Key
from streamwork.components.columns import to_batch
from streamwork.components.duration import seconds
from streamwork.components.made import annotations_of
from streamwork.errors import WrongUse
from streamwork.operators.joins.columns import Array
from streamwork.operators.joins.lookup_cache import LookupCache
from streamwork.operators.joins.reference import Reference
from streamwork.operators.joins.result import Side

Fetch = Callable[[Sequence[Any]], Iterable[Event]]
MOST_KEYS = 500
"""Keys in one query: SQLite takes 999 parameters at most in older versions."""


class Lookup(Reference):
    """Rows of a database, found by key when an event arrives::

        Lookup(Customer, key="id", sql="select id, name from customers where id in ({keys})",
               connect=lambda: sqlite3.connect("crm.db"))
        Lookup(Customer, key="id", fetch=ask_the_service)

    `fetch` takes a list of keys (a tuple each where the key has several fields), and returns an event of type `event` for each
    row that they have: none, one or several per key. Or `sql` is a query with ``{keys}`` where its list of keys goes, and
    `connect` a function that opens a DB-API connection; `placeholder` is how its driver writes a parameter. The query's
    columns are found by name.

    The keys of a batch that are not in the cache are fetched together. The cache has at most `cache` keys, each for at most
    `expires`; also that a key has no rows. An error of the database is an error of the events that need it: `on_error` applies.
    What is found may change, so a replay may give other results: the join is not deterministic.
    """

    deterministic = False

    def __init__(
        self,
        event: type[Event],
        *,
        key: str | Iterable[str],
        fetch: Fetch | None = None,
        sql: str | None = None,
        connect: Callable[[], Any] | None = None,
        placeholder: str = "?",
        cache: int = 10_000,
        expires: str | float = "1min",
        name: str = "lookup",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if (fetch is None) == (sql is None) or (sql is None) != (connect is None):
            raise WrongUse(
                "SW-JOIN-LOOKUP",
                f"lookup {name!r} needs either fetch=, or sql= and connect=",
                "give a function, or a query and a function that opens a connection",
            )
        if sql is not None and "{keys}" not in sql:
            raise WrongUse(
                "SW-JOIN-LOOKUP",
                f"the query of lookup {name!r} has no {{keys}}",
                "write: select ... where id in ({keys})",
            )
        if not isinstance(cache, int) or cache < 1:
            raise WrongUse("SW-JOB-SETTING", f"cache={cache!r} of lookup {name!r}", "use a whole number of at least 1")
        self._event = event
        self._fetch = fetch
        self._sql = sql
        self._connect = connect
        self._placeholder = placeholder
        self._size = cache
        self._age = seconds(expires)
        self._side = Side(name, event, Key.of(event, key).fields)
        self._clock = clock
        self._connection: Any = None

    @property
    def side(self) -> Side:
        return self._side

    def open(self) -> None:
        self._cache = LookupCache(self._side.key, self._size, self._age)

    def find(self, keys: pa.RecordBatch) -> tuple[Array, pa.RecordBatch]:
        if not keys.num_rows:
            return np.zeros(0, np.int64), to_batch(self._event, [], self._side.name)
        return self._cache.find(keys, self._clock(), self._fetched)

    def close(self) -> None:
        if self._connection is not None:
            with suppress(Exception):  # it may be the connection that has failed
                self._connection.close()
            self._connection = None

    def _fetched(self, keys: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of these keys, as the database has them now."""
        values: list[Any] = keys.column(0).to_pylist()
        if keys.num_columns > 1:
            values = list(zip(*(column.to_pylist() for column in keys.columns), strict=True))
        where = f"lookup {self._side.name!r}"
        if self._fetch is not None:
            return to_batch(self._event, list(self._fetch(values)), where)
        found: list[Event] = []
        try:
            if self._connection is None:
                assert self._connect is not None
                self._connection = self._connect()
            for start in range(0, len(values), MOST_KEYS):
                found += self._asked(values[start : start + MOST_KEYS])
        except Exception:
            self.close()  # the next call opens another one
            raise
        return to_batch(self._event, found, where)

    def _asked(self, values: Sequence[Any]) -> list[Event]:
        assert self._sql is not None
        several = len(self._side.key) > 1
        one = f"({', '.join([self._placeholder] * len(self._side.key))})" if several else self._placeholder
        given = [part for value in values for part in value] if several else list(values)
        with closing(self._connection.cursor()) as cursor:
            cursor.execute(self._sql.replace("{keys}", ", ".join([one] * len(values))), given)
            names = [column[0] for column in cursor.description]
            rows = cursor.fetchall()
        if missing := [name for name in annotations_of(self._event) if name not in names]:
            wanted = ", ".join(annotations_of(self._event))
            raise ValueError(
                f"the query of lookup {self._side.name!r} gives no column {', '.join(missing)}: {self._event.__name__} has the "
                f"fields {wanted}"
            )
        places = [names.index(name) for name in annotations_of(self._event)]
        return [self._event(**{names[at]: row[at] for at in places}) for row in rows]

    def __getstate__(self) -> dict[str, Any]:
        return {**{k: v for k, v in self.__dict__.items() if k != "_cache"}, "_connection": None}
