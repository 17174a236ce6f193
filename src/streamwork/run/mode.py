"""The modes that a job runs in."""

from __future__ import annotations

from enum import Enum

from streamwork.errors import WrongUse
from streamwork.job import Graph
from streamwork.job.backpressure import Backpressure

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


def check_long_lived(graph: Graph, mode: Mode) -> None:
    """Refuse components whose objects must outlive an epoch where an epoch may get new ones."""
    for node in graph.nodes:
        if getattr(node.component, "long_lived", False) and mode in (Mode.MICROBATCH, Mode.BATCH):
            raise WrongUse(
                "SW-JOB-MODE",
                f"{node.id} keeps its state by hand, in objects that must live as long as the run; in mode {mode.value} an epoch "
                "may get new ones",
                "run the job with --mode live or --mode local; or let the engine keep the state",
            )


def policy_note(graph: Graph, mode: Mode) -> str:
    """What to say about policies of backpressure that have no effect in a mode; empty if there are none."""
    chosen = [node.id for node in graph.nodes if node.backpressure is not None]
    chosen = chosen if graph.backpressure is Backpressure.SOURCES else ["the job", *chosen]
    if mode not in (Mode.MICROBATCH, Mode.BATCH) or not chosen:
        return ""
    return (
        f"backpressure= of {', '.join(chosen)} has no effect in mode {mode.value}: there the planner sizes the slices of input "
        "by what the last ones cost"
    )
