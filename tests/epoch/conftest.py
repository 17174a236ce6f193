"""Fixtures of the fault matrix (`matrix.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from epoch.matrix import fast_folder, shorten_chains


@pytest.fixture
def short_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_chains(monkeypatch)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with fast_folder(tmp_path) as made:
        yield made
