"""Fixtures of the connectors' tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("connectors.checks")

from connectors.deleting import DELETING  # noqa: E402
from connectors.kits import KITS, Kit  # noqa: E402
from servers import kafka, postgres, redis_server  # noqa: E402, F401  (fixtures)
from streamwork.connectors import parquet_sink, redis  # noqa: E402


@pytest.fixture
def kit(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kit]:
    """A sink's target, empty; parametrised indirectly by name."""
    monkeypatch.setattr(redis, "CHUNK", 1)  # so that there is something between two keys
    monkeypatch.setattr(parquet_sink, "MERGE_FILES", 2)  # so that commits merge
    kind = {**KITS, **DELETING}[request.param]
    made = kind(tmp_path, request.getfixturevalue(kind.server) if kind.server else None)
    yield made
    made.close()
