"""The fraud detection job in live mode, on Spark, and what its failures cost. `streamwork bench live` measures the times.

The times of the example are longer here, so that no score is missing because a machine is busy.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from fraud.score import AVERAGE_TICKET

from streamwork.bench.live_system import Load, System, Victim
from waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.spark]
CALM = {"FRAUD_SCORES_WITHIN": "2", "FRAUD_HANGS": "60s"}


def test_every_transaction_is_answered_also_when_a_task_is_killed(tmp_path: Path) -> None:
    """With examples/fraud_detection as it is: its job, its gateway and its presenter."""
    with System(tmp_path / "system", "live", "1s", CALM) as system:
        found = system.send(Load(rate=50, seconds=8))
        assert found["decided"] == found["latency"]["transactions"] == 400 == sum(found["answers"].values())
        assert found["quality"]["all"]["planted"] >= 3 and found["quality"]["all"]["recall"] >= 0.7
        with system.killing(Victim.TASK, after=3.0) as killed:
            found = system.send(Load(rate=50, seconds=10))
        assert len(killed) == 1 and sum(found["answers"].values()) == 500
        assert found["answers"]["default: missing"] > 0, "transactions are lost with a gang"
        found = system.send(Load(rate=50, seconds=3))  # begins when the job decides again
        assert found["decided"] == found["latency"]["transactions"] == 150
        assert system.victims(Victim.TASK)[0].pid not in killed


@pytest.mark.parametrize("trouble", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "hangs"])
def test_an_analyser_in_trouble_costs_its_score_and_comes_back(tmp_path: Path, trouble: signal.Signals) -> None:
    with System(tmp_path / "system", "live", "1s", {**CALM, "FRAUD_HANGS": "5s"}) as system:
        system.send(Load(rate=30, seconds=2))
        assert len(system.victims(Victim.ANALYSER)) == 3, "each has a process of its own"
        with system.killing(Victim.ANALYSER, 3.0, trouble) as killed:
            found = system.send(Load(rate=30, seconds=12))
        assert found["decided"] == found["latency"]["transactions"] == 360, "decisions go on"
        assert 0 < found["missing_scores"][AVERAGE_TICKET] < 360

        def is_back() -> bool:
            found = [one.pid for one in system.victims(Victim.ANALYSER)]
            return len(found) == 3 and killed[0] not in found

        wait_for(is_back)
        found = system.send(Load(rate=30, seconds=3))
        assert found["decided"] == 90 and found["missing_scores"].get(AVERAGE_TICKET, 0) == 0, "it scores again"
