"""The pytest plugin: `simulate` and `explore` as fixtures, in every test suite where Streamwork is installed.

def test_my_job(simulate):
    assert simulate(job, {"payments": [...]}).outputs["usage"] == [...]
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # pytest loads the plugin in every session: it imports the simulator only when a test uses it
    from streamwork.testing.explore import Explored

PROPERTY = "streamwork.explored"


@pytest.fixture
def simulate() -> Callable[..., Any]:
    """`streamwork.testing.run`: a job in memory, with virtual time."""
    from streamwork.testing.simulation import run

    return run


@pytest.fixture
def explore(request: pytest.FixtureRequest) -> Callable[..., Explored]:
    """`streamwork.testing.explore`: searches for a schedule or a crash that changes the results of a job. Pytest prints the
    extent of the search at the end of the session.
    """
    from streamwork.testing.explore import explore as search

    @functools.wraps(search)
    def reported(*arguments: Any, **named: Any) -> Explored:
        explored = search(*arguments, **named)
        request.node.user_properties.append((PROPERTY, str(explored)))
        return explored

    return reported


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for report in terminalreporter.getreports("passed") if isinstance(report, pytest.TestReport)]
    lines = [
        f"{report.nodeid}: {value}"
        for report in reports
        for name, value in (report.user_properties if report.when == "call" else ())
        if name == PROPERTY
    ]
    if lines:
        terminalreporter.section("streamwork.testing.explore")
        for line in lines:
            terminalreporter.write_line(line)
