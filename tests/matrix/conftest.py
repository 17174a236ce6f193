"""Fixtures of the fault matrix."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from matrix import targets
from matrix.fixtures import folder, short_chains  # noqa: F401  (fixtures)
from servers import kafka, postgres, redis_server  # noqa: F401  (fixtures)


@pytest.fixture(scope="session", autouse=True)
def servers(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever needs a server finds one, which is started when it is first asked for."""
    targets.servers["find"] = request.getfixturevalue
    yield
    targets.close_readers()
