"""The modes that a job runs in."""

from __future__ import annotations

from enum import Enum

BATCH_SUFFIX = "@batch"
"""Ends the name of a batch run's folder. No job name can contain it, so the folder belongs to no other job."""


class Mode(Enum):
    MICROBATCH = "microbatch"
    LIVE = "live"
    BATCH = "batch"
    LOCAL = "local"

    @property
    def on_spark(self) -> bool:
        return self is not Mode.LOCAL

    def folder(self, job: str) -> str:
        """The name of the job's folder below the root: a backfill has one of its own."""
        return job + BATCH_SUFFIX if self is Mode.BATCH else job
