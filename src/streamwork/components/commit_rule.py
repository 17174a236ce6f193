"""The commit rule: what a sink does with an epoch that a driver offers.

Pure, and called by every sink inside the transaction that also applies the rows and advances the ledger row.
"""

from __future__ import annotations

from enum import Enum

from streamwork.components.sink import LedgerEntry, LedgerRow, fenced
from streamwork.errors import Refused


class Verdict(Enum):
    APPLY = "apply the rows and advance the ledger"
    ADOPT = "the rows are there: store the manifest's hash only"
    SKIP = "the sink is already beyond the epoch: change nothing"
    FENCED = "a newer driver has registered"
    REFUSE = "the ledger fits neither end of the epoch"


def judge(row: LedgerRow, entry: LedgerEntry) -> Verdict:
    """The verdict about an epoch. It compares positions, never epoch numbers: a number does not identify input."""
    if row.fence > entry.fence:
        return Verdict.FENCED
    if row.position is None:
        return Verdict.APPLY if entry.first else Verdict.REFUSE
    if row.manifest_sha256 == entry.manifest_sha256:
        return Verdict.ADOPT
    if row.position == entry.start and (entry.deterministic or row.manifest_sha256 == entry.parent_sha256):
        return Verdict.APPLY
    if entry.deterministic and row.position == entry.end:
        return Verdict.ADOPT
    if entry.deterministic and row.position.beyond(entry.end):
        return Verdict.SKIP
    return Verdict.REFUSE


def settle(row: LedgerRow | None, entry: LedgerEntry) -> Verdict:
    """APPLY, ADOPT or SKIP, for the sink to carry out. Raises where the driver must stop."""
    verdict = judge(row, entry) if row is not None else Verdict.REFUSE
    if verdict is Verdict.FENCED:
        assert row is not None
        raise fenced(entry.sink, row.fence, entry.fence)
    if verdict is Verdict.REFUSE:
        raise wrong_ledger(entry.sink, row, f"checkpoint {entry.epoch} goes from {entry.start} to {entry.end}")
    return verdict


def registered(row: LedgerRow | None, sink: str, fence: int) -> LedgerRow:
    """The ledger row once a driver with this fence has registered. Refuses a fence below the one that is registered."""
    if row is None:
        return LedgerRow(fence, None, "")
    if row.fence > fence:
        raise fenced(sink, row.fence, fence)
    return LedgerRow(fence, row.position, row.manifest_sha256)


def advanced(row: LedgerRow | None, entry: LedgerEntry, verdict: Verdict) -> LedgerRow:
    """The ledger row once what `settle` decided has been carried out. It is stored together with the rows."""
    assert row is not None, "a driver registers before it commits"
    if verdict is Verdict.APPLY:
        return LedgerRow(entry.fence, entry.end, entry.manifest_sha256)
    return LedgerRow(entry.fence, row.position, entry.manifest_sha256) if verdict is Verdict.ADOPT else row


def lost(sink: str, epoch: int) -> Refused:
    """The error for a sink whose ledger row is gone."""
    return Refused(
        "SW-SINK-LOST",
        f"sink {sink} has no ledger row of this job, although the job has written to it (it is at checkpoint {epoch}): the "
        "target was removed or replaced, or the sink now has another path or address. A relative path is resolved against the "
        "folder of the job file",
        "bring the target back, or correct its path in the job; if it is lost for good, remove what is left of it and start "
        f"once with --refill {sink}: that writes the output of the kept checkpoints again, not that of earlier ones",
    )


def wrong_ledger(sink: str, row: LedgerRow | None, but: str) -> Refused:
    at = "nothing" if row is None or row.position is None else str(row.position)
    return Refused(
        "SW-SINK-LEDGER",
        f"sink {sink} is at {at}, but {but}",
        "the sink was replaced, rolled back or written by another life of this job: bring back the one that belongs to "
        "this job's folder, or start afresh with a new folder (--root) and a new, empty target",
    )
