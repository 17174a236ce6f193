"""The fraud detection job in live mode, on Spark. The times depend on the machine: `streamwork bench live` measures them."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest
from fraud.score import AVERAGE_TICKET

from streamwork.bench.live_system import Load, System, Victim

pytestmark = [pytest.mark.slow, pytest.mark.spark]


def test_every_transaction_is_answered_also_when_a_task_is_killed(tmp_path: Path) -> None:
    """With examples/fraud_detection as it is: its job, its gateway and its presenter."""
    with System(tmp_path / "system", "live", "1s") as system:
        found = system.send(Load(rate=50, seconds=8))
        assert found["decided"] == found["latency"]["transactions"] == 400 == sum(found["answers"].values())
        assert found["quality"]["all"]["planted"] >= 3 and found["quality"]["all"]["recall"] >= 0.7
        with system.killing(Victim.TASK, after=3.0) as killed:
            found = system.send(Load(rate=50, seconds=20))
        assert len(killed) == 1 and system.victims(Victim.TASK)[0].pid not in killed
        assert sum(found["answers"].values()) == 1000
        assert 0 < found["answers"]["default: missing"] < 1000, "it loses transactions, and decides again"
        assert found["quality"]["all"]["recall"] > 0.1, "card histories are restored"


@pytest.mark.parametrize("trouble", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "hangs"])
def test_an_analyser_in_trouble_costs_its_score_and_comes_back(tmp_path: Path, trouble: signal.Signals) -> None:
    with System(tmp_path / "system", "live", "1s") as system:
        system.send(Load(rate=30, seconds=2))
        before = system.victims(Victim.ANALYSER)
        assert len(before) == 3, "each has a process of its own"
        timer = threading.Timer(6.0, before[0].send_signal, [trouble])
        timer.start()
        try:
            found = system.send(Load(rate=30, seconds=15))
        finally:
            timer.cancel()
        after = {process.pid for process in system.victims(Victim.ANALYSER)}
        assert len(after) == 3 and before[0].pid not in after
    assert found["decided"] == found["latency"]["transactions"] == 450, "decisions go on"
    assert 0 < found["missing_scores"][AVERAGE_TICKET] < 450
