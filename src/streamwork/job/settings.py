"""`Settings` of a job. Options of a run may override them."""

from __future__ import annotations

import msgspec

from streamwork.components.keys import GROUPS
from streamwork.errors import WrongUse
from streamwork.job.backoff import Backoff
from streamwork.job.backpressure import Backpressure, known_backpressure
from streamwork.job.semantics import Promise


class Settings(msgspec.Struct, frozen=True):
    """Settings of a job, checked."""

    semantics: str = "exactly-once"
    tracking: str | None = None  # of at-least-once: "checkpoint" (the default) or "acknowledge"
    max_attempts: int = 3  # of acknowledging: attempts at an event before it becomes a dead letter
    retry_after: float = 1.0  # of acknowledging: seconds until a failed event is replayed; doubled each time
    ack_timeout: float = 30.0  # of acknowledging: seconds after which an unacknowledged event has failed
    checkpoint_every: float = 1.0  # seconds: the shortest time between two checkpoints
    checkpoint_timeout: float | None = None  # seconds after which an epoch that is not prepared is abandoned
    target_epoch: float | None = None  # of microbatch: seconds that an epoch in a backlog should take
    parallelism: int = 1  # instances of keyed operators, of groupings, and at most of sources with offsets
    groups: int = GROUPS  # number of key groups; fixed when the job's folder is created
    retain: int = 3  # completed checkpoints to keep
    lease: float = 10.0  # seconds without a heartbeat after which a driver on another host counts as dead
    restart: Backoff | None = Backoff()  # None: a failed job is not restarted
    backpressure: str = Backpressure.SOURCES.value  # of local and live: what happens when an instance lags
    state_memory: int = 1 << 30  # bytes of state held as records in each executor; more state stays in columns

    def __post_init__(self) -> None:
        if not isinstance(self.parallelism, int) or not 1 <= self.parallelism <= self.groups:
            raise WrongUse(
                "SW-JOB-SETTING", f"parallelism={self.parallelism!r}", f"use a whole number from 1 to {self.groups}"
            )
        _ = self.promise  # checks it
        known_backpressure(self.backpressure)
        if not isinstance(self.max_attempts, int) or isinstance(self.max_attempts, bool) or self.max_attempts < 1:
            raise WrongUse("SW-JOB-SETTING", f"max_attempts={self.max_attempts!r}", "use a whole number from 1 on")
        for name, value in (("retry_after", self.retry_after), ("ack_timeout", self.ack_timeout)):
            if value < 0:
                raise WrongUse("SW-JOB-SETTING", f"{name}={value!r}", 'use a duration, such as "1s"')
        if not isinstance(self.retain, int) or isinstance(self.retain, bool) or self.retain < 1:
            raise WrongUse("SW-JOB-SETTING", f"retain={self.retain!r}", "use a whole number from 1 on")
        if self.state_memory <= 0:
            raise WrongUse(
                "SW-JOB-SETTING", f"state_memory={self.state_memory!r}", 'use a size above zero, such as "1GB"'
            )
        if self.target_epoch is not None and self.target_epoch <= 0:
            raise WrongUse("SW-JOB-SETTING", f"target_epoch={self.target_epoch!r}", 'use a duration, such as "5s"')
        if self.lease <= 0:
            raise WrongUse("SW-JOB-SETTING", f"lease={self.lease!r}", 'use a duration above zero, such as "10s"')
        if self.restart is not None and not isinstance(self.restart, Backoff):
            raise WrongUse("SW-JOB-SETTING", f"restart={self.restart!r}", "use Backoff(...), or None for no restarts")

    @property
    def promise(self) -> Promise:
        return Promise.of(self.semantics, self.tracking)
