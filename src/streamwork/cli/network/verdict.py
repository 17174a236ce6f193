"""`Verdict`: whether the totals are right. Pure.

The result store may learn a verdict after system usage has looked it up, so each row is compared by itself: a transaction that was
counted as fraud must be fraud in the store, one that was counted as no fraud must not be, and an unknown one may be anything.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from streamwork.cli.network.counts import Counts, of_verdicts
from streamwork.wording import plural


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """System usage against the log and the result store."""

    logged: int
    counted: int
    missing: int  # transactions of the log that were not counted
    repeated: int  # counts beyond the first of a transaction
    strange: int  # counted transactions that are not in the log
    fraudulent: int
    unknown: int
    decided_later: int  # unknown ones that have a verdict now
    store_fraudulent: int  # transactions of the log that are fraud in the store
    contradictions: int  # rows whose verdict is not that of the store


class Fraud(msgspec.Struct, frozen=True, kw_only=True):
    """Fraud detection against the planted truth. What it loses in a fault is missing: it is at-most-once."""

    planted: int  # and sent
    caught: int
    false_alarms: int
    decided: int
    undecided: int  # transactions of the log without a decision
    strange: int  # decisions about transactions that are not in the log


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    usage: Usage
    fraud: Fraud
    problems: list[str]

    @property
    def right(self) -> bool:
        return not self.problems


def judge(counts: Counts) -> Verdict:
    logged = set(counts.logged)
    counted = Counter(id for id, _ in counts.rows)
    store = counts.verdicts
    flagged = {id for id, fraud in store.items() if fraud}
    planted = counts.planted & logged
    usage = Usage(
        logged=len(counts.logged),
        counted=counts.totals.transactions,
        missing=len(logged - counted.keys()),
        repeated=counted.total() - len(counted),
        strange=len(counted.keys() - logged),
        fraudulent=counts.totals.fraudulent,
        unknown=counts.totals.unknown,
        decided_later=sum(verdict == "unknown" and id in store for id, verdict in counts.rows),
        store_fraudulent=len(flagged & logged),
        contradictions=sum(
            verdict != "unknown" and store.get(id) is not (verdict == "fraud") for id, verdict in counts.rows
        ),
    )
    fraud = Fraud(
        planted=len(planted),
        caught=len(planted & flagged),
        false_alarms=len(flagged & logged - planted),
        decided=len(store),
        undecided=len(logged - store.keys()),
        strange=len(store.keys() - logged),
    )
    return Verdict(usage=usage, fraud=fraud, problems=_problems(counts, usage, fraud))


def _problems(counts: Counts, usage: Usage, fraud: Fraud) -> list[str]:
    """One line for each total that is wrong."""
    found = [
        (usage.missing, f"system usage has not counted {plural(usage.missing, 'transaction')} of the log"),
        (usage.repeated, f"system usage has counted {plural(usage.repeated, 'transaction')} more than once"),
        (usage.strange, f"system usage has counted {plural(usage.strange, 'transaction')} that are not in the log"),
        (
            usage.contradictions,
            f"{plural(usage.contradictions, 'verdict')} of system usage contradict the result store",
        ),
        (len(counts.logged) - len(set(counts.logged)), "the log has two transactions with the same id"),
        (fraud.strange, f"there are decisions about {plural(fraud.strange, 'transaction')} that are not in the log"),
    ]
    problems = [text for wrong, text in found if wrong]
    added = of_verdicts(counts)
    if counts.totals != added:
        problems.append(f"the numbers of system usage are {_named(counts.totals)}; its rows add up to {_named(added)}")
    if not counts.logged:
        problems.append("the log has no transactions")
    return problems


def _named(numbers: msgspec.Struct) -> str:
    return ", ".join(f"{name} {value:,}" for name, value in msgspec.structs.asdict(numbers).items())
