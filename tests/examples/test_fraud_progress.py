"""The progress of the fraud detection example's sender: figures of a moment, from transactions whose outcome is known."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec
from fraud.decision import Decision
from fraud.generator import Kind, Planned
from fraud.presenter import Outcome, Pending, Presenter
from fraud.progress import Progress, ProgressFile, Tally
from fraud.score import ANALYSERS
from fraud.transaction import Transaction

NOW = datetime(2026, 3, 1, tzinfo=UTC)
START = 100.0


class Nothing:
    def new(self) -> list[Decision]:
        return []


def planned(number: int, fraud: Kind | None = None) -> Planned:
    return Planned(Transaction(f"t{number}", "c1", "shop", 0.0, 0.0, 1.0, NOW), fraud)


def pending(number: int) -> Pending:
    return Pending(f"t{number}", Presenter(Nothing()))


def decide(one: Pending, fraud: bool, at: float, missing: frozenset[str] = frozenset()) -> None:
    scores = dict.fromkeys(ANALYSERS - missing, 0.0)
    one.decision, one.decided_at = Decision(one.transaction, "c1", fraud, 0.0, scores, NOW), at
    one.outcome = Outcome.IN_TIME


def test_a_transaction_counts_when_its_outcome_is_known() -> None:
    sent = [pending(number) for number in range(4)]
    tally = Tally([planned(0), planned(1, Kind.COUNT), planned(2, Kind.PLACE), planned(3)], sent, rate=10.0)
    decide(sent[0], False, START + 0.005, missing=frozenset({"count"}))
    first = tally.at(2.0, START)
    assert (first.sent, first.answers["in time"], first.planted, first.flagged) == (4, 1, 0, 0)
    assert first.missing_scores == {"count": 1}
    assert first.latency["transactions"] == 4 and first.latency["decisions"] == 1
    assert first.latency["p50_ms"] is None, "a transaction without a decision is infinitely late"
    decide(sent[1], True, START + 0.110)
    sent[2].outcome = Outcome.MISSING
    decide(sent[3], True, START + 0.303)
    second = tally.at(3.0, START)
    assert (second.planted, second.caught, second.flagged) == (2, 1, 2)
    assert second.answers == {"in time": 3, "default: late": 0, "default: missing": 1}
    assert tally.at(4.0, START).answers == second.answers, "each one counts once"


def test_percentiles_are_about_recent_transactions() -> None:
    sent = [pending(number) for number in range(100)]
    for number, one in enumerate(sent):
        decide(one, False, START + number / 10 + (0.5 if number < 20 else 0.004))
    tally = Tally([planned(number) for number in range(100)], sent, rate=10.0)
    assert tally.at(3.0, START).latency["max_ms"] == 500.0
    recent = tally.at(10.0, START).latency
    assert recent["transactions"] == 50 and recent["max_ms"] == 4.0
    assert tally.at(60.0, START).latency == {"decisions": 0}, "there was no transaction recently"


def test_the_last_line_has_the_last_figures(tmp_path: Path) -> None:
    sent = [pending(0)]
    decide(sent[0], False, START + 0.001)
    with ProgressFile(tmp_path / "progress", Tally([planned(0)], sent, 10.0), START, lambda: START + 2):
        pass
    (line,) = (tmp_path / "progress").read_bytes().splitlines()
    assert msgspec.json.decode(line, type=Progress).answers["in time"] == 1
