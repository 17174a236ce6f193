"""The generator of the fraud detection example, its truth, and the report that compares decisions with it."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

import pytest
from fraud.cards import FAR
from fraud.decision import Decision
from fraud.generator import BURST, EVERY, PAST, SHARE, Generator, Kind, Planned
from fraud.proximity import distance
from fraud.report import latencies, longest_gap, missing_scores, quality
from fraud.score import AVERAGE_TICKET, COUNT, PROXIMITY
from fraud.truth import read_truth, write_truth

START = datetime(2026, 3, 1, 8, tzinfo=UTC)


def some(number: int, seed: int = 1, rate: float = 50.0, share: float = SHARE) -> tuple[Generator, list[Planned]]:
    generator = Generator(seed, rate, START, share)
    generator.history()
    return generator, list(islice(generator, number))


def test_everything_follows_from_the_seed() -> None:
    assert some(500)[1] == some(500)[1] != some(500, seed=2)[1]
    assert Generator(3, 10, START).history() == Generator(3, 10, START).history()


def test_the_rate_is_kept_and_ids_are_unique() -> None:
    generator, planned = some(1000)
    assert [one.transaction.at for one in planned] == [START + timedelta(seconds=n / 50) for n in range(1000)]
    assert len({one.transaction.id for one in planned}) == 1000
    assert len(generator.cards) == 50 * EVERY


def test_the_planted_shares() -> None:
    _, planned = some(20_000)
    kinds = Counter(one.fraud for one in planned)
    for kind in Kind:
        assert kinds[kind] / len(planned) == pytest.approx(SHARE / 3, rel=0.3), kind
    assert Counter(one.fraud for one in some(5000, share=0.0001)[1])[None] > 4980


def test_what_is_planted_is_fraud_and_the_rest_is_not() -> None:
    generator, planned = some(5000)
    cards = {card.id: card for card in generator.cards}
    for transaction, fraud in planned:
        card = cards[transaction.card]
        away = distance(card.home.latitude, card.home.longitude, transaction.latitude, transaction.longitude)
        assert (away > FAR * 0.9) == (fraud is Kind.PLACE)
        if fraud is Kind.AMOUNT:
            assert transaction.amount >= 11.9 * card.usual
    bursts = Counter(one.transaction.card for one in planned if one.fraud is Kind.COUNT)
    assert bursts and max(Counter(bursts.values()).items(), key=lambda one: one[1])[0] == BURST - 7


def test_without_a_history_nothing_is_planted_at_first() -> None:
    assert {one.fraud for one in islice(Generator(1, 50.0, START), 400)} == {None}


def test_the_history_is_honest_in_order_and_of_every_card() -> None:
    generator = Generator(1, 20.0, START)
    history = generator.history(4)
    assert Counter(Counter(one.card for one in history).values()) == {4: len(generator.cards)}
    times = [one.at for one in history]
    assert times == sorted(times) and times[0] >= START - PAST and times[-1] <= START


def test_the_truth_is_kept_by_transaction(tmp_path: Path) -> None:
    _, planned = some(3000)
    for part in (planned[:1000], planned[1000:]):
        write_truth(tmp_path / "new" / "truth.jsonl", part)
    wanted = {one.transaction.id: one.fraud for one in planned if one.fraud}
    assert read_truth(tmp_path / "new" / "truth.jsonl") == wanted and len(wanted) > 30


def decision(transaction: str, fraud: bool, reason: str = COUNT) -> Decision:
    scores = {AVERAGE_TICKET: 0.1, PROXIMITY: 0.1, COUNT: 0.1, reason: 0.9 if fraud else 0.2}
    return Decision(transaction, "c1", fraud, sum(scores.values()), scores, START)


def test_precision_and_recall() -> None:
    truth = {"a1": Kind.AMOUNT, "a2": Kind.AMOUNT, "p1": Kind.PLACE, "lost": Kind.PLACE}
    decisions = [
        decision("a1", True, AVERAGE_TICKET),
        decision("a2", False),
        decision("p1", True, AVERAGE_TICKET),  # caught, for another reason
        decision("honest", True, AVERAGE_TICKET),
        decision("other", False),
    ]
    assert quality(truth, decisions) == {
        "average-ticket": {"planted": 2, "flagged": 3, "recall": 0.5, "precision": 0.6667},
        "proximity": {"planted": 2, "flagged": 0, "recall": 0.5, "precision": None},
        "count": {"planted": 0, "flagged": 0, "recall": None, "precision": None},
        "all": {"planted": 4, "flagged": 3, "recall": 0.5, "precision": 0.6667},
    }


def test_percentiles_by_nearest_rank() -> None:
    found = latencies([number / 1000 for number in range(1, 1001)], within=0.020)
    assert (found["p50_ms"], found["p99_ms"], found["p999_ms"], found["max_ms"]) == (500, 990, 999, 1000)
    assert found["share_within"] == 0.02 and latencies([]) == {"decisions": 0}


def test_a_missing_decision_does_not_improve_a_percentile() -> None:
    found = latencies([0.001] * 98 + [None] * 2)
    assert (found["p50_ms"], found["p99_ms"], found["max_ms"]) == (1, None, None)
    assert (found["transactions"], found["decisions"], found["share_within"]) == (100, 98, 0.98)
    assert not math.isinf(found["share_within"])


def test_the_longest_gap() -> None:
    assert longest_gap([0.1, 0.1, None, None, 0.1, 0.1], rate=1.0) == 3000
    assert longest_gap([None, 0.1], rate=1.0) == 1100, "from the first transaction"
    assert longest_gap([0.1, None, None, None], rate=1.0) == 2900, "to the last one, if no decision came again"
    assert longest_gap([None] * 6, rate=2.0) == 2500 and longest_gap([], rate=1.0) is None


def test_missing_scores_are_counted_by_analyser() -> None:
    partial = Decision("t", "c", False, 0.0, {COUNT: 0.0}, START)
    assert missing_scores([decision("a", False), partial, partial]) == {AVERAGE_TICKET: 2, PROXIMITY: 2}
