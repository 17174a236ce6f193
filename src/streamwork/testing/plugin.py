"""The pytest plugin: `simulate` and `explore` as fixtures, in every test suite where Streamwork is installed.

def test_my_job(simulate):
    assert simulate(job, {"payments": [...]}).outputs["usage"] == [...]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def simulate() -> Callable[..., Any]:
    """`streamwork.testing.run`: a job in memory, with virtual time."""
    from streamwork.testing.simulation import run

    return run


@pytest.fixture
def explore() -> Callable[..., int]:
    """`streamwork.testing.explore`: searches for a schedule or a crash that changes what a job does."""
    from streamwork.testing.explore import explore as search

    return search
