"""What tests of the fault matrix, here and in `tests/epoch`, are given."""

from __future__ import annotations

from pathlib import Path

import pytest

from matrix.world import shorten_chains


@pytest.fixture
def short_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_chains(monkeypatch)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path
