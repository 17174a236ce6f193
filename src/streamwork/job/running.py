"""What `Job.run` calls and returns. The package `streamwork` sets it: a job imports nothing of the hosts that run it."""

from __future__ import annotations

from typing import Literal, Protocol

ModeName = Literal["local", "microbatch", "live", "batch"]


class RunSummary(Protocol):
    """What a run did."""

    @property
    def job(self) -> str: ...

    @property
    def root(self) -> str: ...

    @property
    def mode(self) -> str: ...

    @property
    def started(self) -> str:
        """ "new", or the checkpoint that it resumed at."""

    @property
    def checkpoint(self) -> int:
        """The number of the newest completed checkpoint."""

    @property
    def checkpoints(self) -> int:
        """How many checkpoints it completed."""

    @property
    def events(self) -> int:
        """How many events its sources gave."""

    @property
    def dropped(self) -> int: ...

    @property
    def dead_letters(self) -> int: ...

    @property
    def retried(self) -> int:
        """How often an event was tried again in place."""

    @property
    def late(self) -> int:
        """How many events came too late for a window or a join."""

    @property
    def restarts(self) -> int: ...

    @property
    def seconds(self) -> float: ...
