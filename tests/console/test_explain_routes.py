"""The routes of the page "How a checkpoint works" answer what their command lines print."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from commands import call
from console.console_world import Served, showing
from sample import payments, run_job, summing_job


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path: Path = tmp_path_factory.mktemp("explained")
    run_job(summing_job(payments(25), path / "out.db"), path / "root")
    with showing(path / "root") as found:
        yield found


@pytest.mark.parametrize(
    "path", ["jobs/summing/explain", "jobs/summing/explain/epochs/2", "explain/playback?seed=3&crash=20,45"]
)
def test_a_route_answers_what_its_command_prints(served: Served, path: str) -> None:
    found = served.get(f"/api/{path}")
    words = found.pop("cli").split()
    code, out, errors = call(*words[1:])
    assert code == 0, errors
    assert words[-1] == "--json" and json.loads(out) == found


@pytest.mark.parametrize("crash", ["x", "0", "1,2,3,4", "99999", "1e3"])
def test_steps_that_are_none_are_refused(served: Served, crash: str) -> None:
    assert served.ask(f"/api/explain/playback?crash={crash}").status == 400
