"""What tests of the fault matrix, here and in `tests/epoch`, are given."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from matrix.world import fast_folder, shorten_chains


@pytest.fixture
def short_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_chains(monkeypatch)


@pytest.fixture
def folder(request: pytest.FixtureRequest) -> Iterator[Path]:
    with fast_folder(lambda: request.getfixturevalue("tmp_path")) as made:
        yield made
