"""The histories of cards are restored when the fraud detection job loses its gang: with gangs of threads, and real analysers."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from fraud import settings
from fraud.decision import Decision
from fraud.result_table import Results
from fraud.score import AVERAGE_TICKET
from fraud.transaction import Transaction, open_log

from gangs import GangRun
from streamwork import Job
from streamwork.engine import Assignment
from streamwork.epoch.assigning import Assigner

FOLDER = Path(settings.__file__).parents[1]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """The job of `job.py`, with its files in the folder of the test. It waits for scores as long as a busy machine needs."""
    for name in ("LOG", "DECISIONS"):
        monkeypatch.setattr(settings, name, tmp_path / getattr(settings, name).name)
    monkeypatch.setattr(settings, "HANGS", "1h")
    monkeypatch.syspath_prepend(str(FOLDER))  # the processes of the analysers import from there, too
    found: Job = runpy.run_path(str(FOLDER / "job.py"), run_name="job")["job"]
    found.components["aggregator"].wait = timedelta(hours=1)
    return found


@pytest.fixture
def results() -> Iterator[Results]:
    with closing(Results(settings.DECISIONS)) as found:
        yield found


def decision(run: GangRun, results: Results, name: str, amount: float) -> Decision:
    """The decision about one more transaction of the card. The job takes checkpoints meanwhile."""
    with open_log(settings.LOG) as log:
        log.append([Transaction(name, "card", "shop", 48.0, 16.0, amount, datetime.now(UTC))])
    found: list[Decision] = []

    def is_decided() -> bool:
        found.extend(results.new())
        return bool(found)

    run.until(is_decided, f"{name} is decided")
    (one,) = found
    return one


def test_an_amount_is_compared_with_what_a_card_had_spent_before_the_gang_was_lost(
    tmp_path: Path, job: Job, request: pytest.FixtureRequest
) -> None:
    run = GangRun(tmp_path, job)
    run.start()
    results = request.getfixturevalue("results")
    scores = [decision(run, results, f"usual-{number}", 10.0).scores for number in range(6)]
    assert [one[AVERAGE_TICKET] for one in scores] == [0.0] * 6
    sent = 6
    run.until(lambda: sum(run.driver.at.positions.of("transactions").values()) == sent, "a checkpoint of the history")
    run.lose()
    run.start()
    found = decision(run, results, "large", 500.0)
    run.stop()
    assert found.fraud and found.scores[AVERAGE_TICKET] == 1.0


@pytest.mark.slow
def test_without_the_state_the_same_test_fails(
    tmp_path: Path, job: Job, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    assign = Assigner.assign

    def forgetful(self: Assigner, *given: object) -> list[Assignment]:
        return [msgspec.structs.replace(one, states={}) for one in assign(self, *given)]  # type: ignore[arg-type]

    monkeypatch.setattr(Assigner, "assign", forgetful)
    with pytest.raises(AssertionError):
        test_an_amount_is_compared_with_what_a_card_had_spent_before_the_gang_was_lost(tmp_path, job, request)
