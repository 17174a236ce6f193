"""`PostgresStore`: state by hand in a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from streamwork.connectors.address import Address, needed
from streamwork.connectors.postgres import postgres_address
from streamwork.errors import JobFailed
from streamwork.manual.sql_store import SqlStore

if TYPE_CHECKING:
    import psycopg

LOCK = 0x53574D53
"""Of the advisory lock under which the tables are created: two processes that create a table at once collide."""


class PostgresStore(SqlStore):
    """`dsn` as for `PostgresSink`; `job` is a name, for several jobs in one database."""

    mark, blob = "%s", "BYTEA"

    def __init__(self, dsn: str, job: str = "job") -> None:
        super().__init__(job)
        self.address: Address = postgres_address(dsn)
        self._connection: psycopg.Connection[Any] | None = None

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        psycopg = needed("psycopg", "postgres")
        try:
            if self._connection is None:
                self._connection = psycopg.connect(self.address.whole)
                with self._connection.transaction(), self._connection.cursor() as cursor:
                    cursor.execute(f"SELECT pg_advisory_xact_lock({LOCK})")
                    for table in self.tables():
                        cursor.execute(table)
            with self._connection.transaction(), self._connection.cursor() as cursor:
                yield cursor
        except psycopg.Error as error:
            self.close()
            raise JobFailed(
                "SW-MANUAL-STORE",
                f"the store at {self.address!r} failed: {self.address.redact(str(error))}",
                "check that the database runs and accepts the user of the address; the job restarts",
            ) from self.address.cause(error)

    def close(self) -> None:
        if self._connection is not None:
            with suppress(Exception):  # the connection may be broken
                self._connection.close()
            self._connection = None
