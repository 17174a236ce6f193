from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

TEST = """
from streamwork import Event, Job, KeyedOperator, ListSource, Record, SqliteSink
from streamwork.testing import Crash

class Paid(Event):
    card: str
    amount: int

class Total(Record):
    amount: int = 0

class Totals(KeyedOperator[Paid, Total, Paid]):
    def apply(self, event, state, collector):
        state.amount += event.amount
        collector.emit(Paid(event.card, state.amount))

job = Job("totals")
job.source(ListSource([], Paid), id="paid").apply(Totals(), key="card", id="totals").sink(SqliteSink("x.db", "t"), id="out")
EVENTS = [Paid("a", 1), Paid("b", 2), Crash(), Paid("a", 3)]

def test_it(simulate):
    result = simulate(job, {"paid": EVENTS})
    assert result.outputs["out"] == [Paid("a", 1), Paid("b", 2), Paid("a", 4)]
    assert result.lives == 2

def test_any_schedule(explore):
    explore(job, {"paid": EVENTS[:2]}, seeds=20)
"""


def test_the_fixtures_are_there_wherever_streamwork_is_installed(tmp_path: Path) -> None:
    (tmp_path / "test_totals.py").write_text(TEST)
    answer = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2 passed" in answer.stdout, answer.stdout + answer.stderr
    assert re.search(r"test_any_schedule: explored 20 seeds: 40 runs, \d+ checkpoints, \d+ crashes", answer.stdout)
