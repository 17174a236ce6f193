"""What computes epochs, as the driver sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from streamwork.delivery.counts import Counts
from streamwork.engine import Assignment, Report
from streamwork.job import Layout


class Compute(Protocol):
    """A host: computes epochs (steps 2 and 3) on whatever it runs on, in the order in which they were submitted."""

    overlaps: bool
    """True if what was submitted is computed while the driver does something else."""

    def submit(self, layout: Layout, works: Sequence[Assignment]) -> None:
        """Begin an epoch."""

    def collect(self, epoch: int, expired: Callable[[], bool]) -> Sequence[Report]:
        """The reports of all instances. Raises StreamworkError where an attempt failed, `Abandoned` if it gave up."""

    def wasted(self) -> Sequence[Counts]:
        """What is known to have been counted by the attempts at an epoch whose `collect` raised. It is told once."""

    def forget(self) -> None:
        """What was computed last counts for nothing: the next works name the states to go on from."""
