"""Fixtures of the fault matrix."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from matrix import targets
from matrix.world import fast_folder, shorten_chains
from servers import postgres, redis_server  # noqa: F401  (fixtures)


@pytest.fixture(scope="session", autouse=True)
def servers(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever needs a server finds one, which is started when it is first asked for."""
    targets.servers["find"] = request.getfixturevalue
    yield
    targets.close_readers()


@pytest.fixture
def short_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_chains(monkeypatch)


@pytest.fixture
def folder(request: pytest.FixtureRequest) -> Iterator[Path]:
    with fast_folder(lambda: request.getfixturevalue("tmp_path")) as made:
        yield made
