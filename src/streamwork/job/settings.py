"""What a job chooses for itself, and the command line may override."""

from __future__ import annotations

import msgspec

from streamwork.components.keys import GROUPS
from streamwork.errors import WrongUse
from streamwork.job.backoff import Backoff


class Settings(msgspec.Struct, frozen=True):
    """Settings of a job, checked."""

    semantics: str = "exactly-once"
    checkpoint_every: float = 1.0  # seconds: the shortest time between two checkpoints
    checkpoint_timeout: float | None = None  # seconds after which an epoch that is not prepared is abandoned
    parallelism: int = 1  # instances of every component
    groups: int = GROUPS  # number of key groups; fixed when the job's folder is created
    retain: int = 3  # completed checkpoints that are kept
    lease: float = 10.0  # seconds without a sign of life after which a driver elsewhere is taken for dead
    restart: Backoff | None = Backoff()  # None: a failed job is not started again
    state_memory: int = (
        1 << 30
    )  # bytes that records of state may take in each executor; what is beyond stays in columns

    def __post_init__(self) -> None:
        if not isinstance(self.parallelism, int) or not 1 <= self.parallelism <= self.groups:
            raise WrongUse(
                "SW-JOB-SETTING", f"parallelism={self.parallelism!r}", f"use a whole number from 1 to {self.groups}"
            )
        if self.semantics != "exactly-once":
            raise WrongUse(
                "SW-JOB-SEMANTICS",
                f"semantics {self.semantics!r} is not available",
                'leave it out, or write "exactly-once": the strongest one is the one that this version has',
            )
        if not isinstance(self.retain, int) or isinstance(self.retain, bool) or self.retain < 1:
            raise WrongUse("SW-JOB-SETTING", f"retain={self.retain!r}", "use a whole number from 1 on")
        if self.state_memory <= 0:
            raise WrongUse(
                "SW-JOB-SETTING", f"state_memory={self.state_memory!r}", 'use a size above zero, such as "1GB"'
            )
        if self.lease <= 0:
            raise WrongUse("SW-JOB-SETTING", f"lease={self.lease!r}", 'use a duration above zero, such as "10s"')
        if self.restart is not None and not isinstance(self.restart, Backoff):
            raise WrongUse("SW-JOB-SETTING", f"restart={self.restart!r}", "use Backoff(...), or None for no restarts")
