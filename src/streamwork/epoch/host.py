"""Host: what computes the epochs of a run, as the driver and the runner see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from streamwork.delivery.counts import Counts
from streamwork.engine import Assignment, EndKnown, Report
from streamwork.job import Graph, Layout


class Host(Protocol):
    """Computes epochs (steps 2 and 3 of `epoch.driver`), in the order in which they are submitted.

    open                     once, before the first plan
    submit, collect          for each epoch. Several may be in flight; they are collected in the order of their numbers
    abandon                  ends all that is in flight, and forgets what was computed last
    read_ahead               by a standby, after `open` and before the first epoch
    keep_warm                often, while there is nothing to compute
    close                    once. No method is called after it
    """

    name: str
    """The mode that it computes for: `local`, `microbatch`, `live`."""
    overlaps: bool
    """True if a submitted epoch is computed while the driver does something else."""
    continuous: bool
    """True if its instances process events all the time: `submit` opens an epoch, and `collect` closes it with its checkpoint
    event. The next epoch is submitted before one is collected, so that events flow on behind the checkpoint event. An epoch that
    is collected without a successor is the last one: the sources stop there.
    """

    ends_known: EndKnown
    """How it reads sources with offsets: up to ends that the plan names, or up to ends that its instances report. Sources without
    offsets are read by report on every host.
    """

    bounds: bool = False
    """True if the channels between its instances are bounded (`flow.gauge`)."""

    sizes_slices: bool = False
    """True if the driver sizes its slices by what the last ones cost (`epoch.sizing`)."""

    def open(self, graph: Graph) -> None:
        """Prepare for this job. Refuses a job that cannot run here."""

    def submit(self, layout: Layout, works: Sequence[Assignment]) -> None:
        """Start an epoch: one assignment for each instance of each chain. May be called again for the same epoch, after
        `collect`: then it is computed again.
        """

    def collect(self, epoch: int, expired: Callable[[], bool]) -> Sequence[Report]:
        """The reports of all instances, when all have reported. `expired` is called often, from any thread.

        Raises `Abandoned` when `expired()` is true, or when an instance is lost, and a StreamworkError where an attempt failed.
        Then nothing is in flight, and the next assignments name the states to continue from.
        """

    def moved(self) -> bool:
        """Of a continuous host: False if nothing has happened in the open epoch yet."""

    def wasted(self) -> Sequence[Counts]:
        """What the attempts at the epoch whose `collect` raised had counted, as far as known. The next call returns nothing."""

    def abandon(self) -> None:
        """End what is in flight. None of it counts: the next assignments name the states to continue from."""

    def read_ahead(self, layout: Layout, works: Sequence[Assignment]) -> None:
        """Prepare for an epoch that begins with the states of these assignments: start workers, read states into their caches. A
        hint: files may be gone meanwhile, and the first epoch may begin with other states. Computes and writes nothing.
        """

    def keep_warm(self) -> None:
        """Keep workers alive, with what they have cached. Cheap, unless that is due."""

    def close(self) -> None:
        """Abandon what is in flight, close instances, release resources."""
