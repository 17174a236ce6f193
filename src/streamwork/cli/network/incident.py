"""`Incident`: a fault that happened, and whether its job has recovered. Pure: `seen` takes one snapshot after the other.

ANALYSER                     it has a process again, and a decision was made since that has its score
TASK, FRAUD_DRIVER           a new fence holds the job, and a decision was made since
WORKER                       the next checkpoint is completed
USAGE_DRIVER                 a new fence holds the job, and has completed a checkpoint
"""

from __future__ import annotations

import msgspec

from streamwork.cli.network.reading import Snapshot
from streamwork.cli.network.schedule import Job, Victim


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    victim: Victim
    what: str  # that was killed
    at: float  # seconds on the demo's clock
    traffic: float  # seconds after the first transaction
    before: Snapshot  # read just after the kill
    resumed: Snapshot | None = None  # the first one with a new process or a new fence
    recovered: float | None = None  # seconds after the kill
    counted: int = 0  # by system usage, when it had recovered
    repeated: int | None = None  # of them, transactions that were counted more than once

    @property
    def analyser(self) -> str:
        """The component of a killed analyser."""
        return self.what.partition(",")[0]


def seen(incident: Incident, now: Snapshot) -> Incident:
    """The incident after another snapshot."""
    if incident.recovered is not None:
        return incident
    if incident.resumed is None and _has_resumed(incident, now):
        incident = msgspec.structs.replace(incident, resumed=now)
    if not _is_over(incident, now):
        return incident
    return msgspec.structs.replace(incident, recovered=round(now.at - incident.at, 2), counted=now.totals.transactions)


def _has_resumed(incident: Incident, now: Snapshot) -> bool:
    job = now.job(incident.victim.job)
    match incident.victim:
        case Victim.ANALYSER:
            return incident.analyser in job.processes
        case Victim.WORKER:
            return True  # Spark retries its tasks; the driver goes on
        case Victim.TASK | Victim.FRAUD_DRIVER | Victim.USAGE_DRIVER:
            return job.running and job.fence > incident.before.job(incident.victim.job).fence


def _is_over(incident: Incident, now: Snapshot) -> bool:
    since = incident.resumed
    if since is None:
        return False
    match incident.victim:
        case Victim.ANALYSER:
            return now.scored.get(incident.analyser, 0) > since.decisions
        case Victim.TASK | Victim.FRAUD_DRIVER:
            return now.decisions > since.decisions
        case Victim.WORKER | Victim.USAGE_DRIVER:
            return now.job(Job.USAGE).checkpoint > since.job(Job.USAGE).checkpoint
