"""What a driver starts from: the job, its own fence, and the checkpoint that it builds on."""

from __future__ import annotations

from dataclasses import dataclass, field

from streamwork.components import Position
from streamwork.delivery.counts import Refusals
from streamwork.epoch.manifest import Manifest, Plan
from streamwork.epoch.store import Identity


@dataclass(frozen=True)
class Footing:
    identity: Identity
    new: bool  # True if this start created the job's folder
    fence: int
    at: Manifest
    rolled_forward: bool  # True if this start completed the base
    refused: Refusals  # the rows of the base that sinks refused meanwhile
    planned: tuple[Plan, ...]  # under at-most-once: the plans of epochs beyond the checkpoint
    lost: Position  # how far these were planned, or what they read was claimed
    killed: int | None  # the fence of the driver before this one, if it was killed
    claimed: Position = field(
        default_factory=Position
    )  # under at-most-once: how far instances that read all the time may have read
    rewritten_from: Manifest | None = None  # the checkpoint whose state this start has rewritten

    @property
    def base(self) -> Manifest:
        """The checkpoint that this start found: the one that it builds on, unless it has rewritten the state."""
        return self.rewritten_from or self.at
