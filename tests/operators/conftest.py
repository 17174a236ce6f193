"""Fixtures of the tests of operators."""

from collections.abc import Iterator

import duckdb
import pytest


@pytest.fixture(scope="session")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    """The oracle's database. One for all cases: a connection takes longer than a query."""
    with duckdb.connect(config={"threads": 1}) as connection:
        yield connection
