"""What an experiment shows: latency, answers, and how much of the planted fraud was found."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from .decision import Decision
from .generator import Kind
from .settings import ANSWER_WITHIN

PERCENTILES = {"p50": 0.5, "p99": 0.99, "p999": 0.999}


def latencies(seconds: Sequence[float | None], within: float = ANSWER_WITHIN) -> dict[str, Any]:
    """Percentiles in milliseconds, by nearest rank, and the share within the limit. None: there was no decision, and it counts as
    infinitely late, so that what is missing does not improve a percentile.
    """
    known = sorted(math.inf if one is None else one for one in seconds)
    if not known:
        return {"decisions": 0}
    found = {f"{name}_ms": _ms(known[max(0, math.ceil(len(known) * rank) - 1)]) for name, rank in PERCENTILES.items()}
    return {
        "transactions": len(known),
        "decisions": sum(one < math.inf for one in known),
        **found,
        "max_ms": _ms(known[-1]),
        "share_within": round(sum(one <= within for one in known) / len(known), 6),
    }


def longest_gap(seconds: Sequence[float | None], rate: float) -> float | None:
    """The longest time without a decision, in milliseconds, from the first transaction to the last one: that decisions never come
    again is not hidden. None without transactions. The n-th transaction was due at n / rate.
    """
    if not seconds:
        return None
    times = sorted(number / rate + one for number, one in enumerate(seconds) if one is not None)
    end = max([(len(seconds) - 1) / rate, *times[-1:]])
    return _ms(max(after - before for before, after in pairwise([0.0, *times, end])))


def _ms(seconds: float) -> float | None:
    return None if math.isinf(seconds) else round(seconds * 1000, 3)


def quality(truth: Mapping[str, Kind], decisions: Iterable[Decision]) -> dict[str, dict[str, Any]]:
    """Precision and recall of each kind, and of all. The kind that a decision claims is its analyser with the highest score."""
    claimed = {decision.transaction: decision.reason for decision in decisions if decision.fraud}
    found: dict[str, dict[str, Any]] = {}
    for kind in Kind:
        planted = {transaction for transaction, one in truth.items() if one is kind}
        flagged = {transaction for transaction, reason in claimed.items() if reason == kind.value}
        found[kind.value] = _rates(
            len(planted), len(flagged), len(planted & claimed.keys()), len(flagged & truth.keys())
        )
    right = len(claimed.keys() & truth.keys())
    found["all"] = _rates(len(truth), len(claimed), right, right)
    return found


def _rates(planted: int, flagged: int, caught: int, right: int) -> dict[str, Any]:
    """`caught` of the planted ones were flagged; `right` of the flagged ones were planted. They differ for one kind, as a planted
    fraud may be flagged for another reason.
    """
    return {
        "planted": planted,
        "flagged": flagged,
        "recall": round(caught / planted, 4) if planted else None,
        "precision": round(right / flagged, 4) if flagged else None,
    }


def missing_scores(decisions: Iterable[Decision]) -> dict[str, int]:
    """Analyser -> decisions without its score."""
    return dict(Counter(analyser for decision in decisions for analyser in decision.missing))
