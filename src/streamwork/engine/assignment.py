"""The part of one instance of one chain in an epoch."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from streamwork.delivery import Replay
from streamwork.engine.extent import Extents
from streamwork.engine.idleness import Idleness
from streamwork.flow.lineage import first, lane_of
from streamwork.world import FileRef


class Assignment(msgspec.Struct, frozen=True):
    """What one instance needs to compute its part of an epoch."""

    instance: int
    uid: str
    folder: str
    groups: int
    epoch: int
    fence: int
    extents: Extents  # what it reads
    states: dict[str, tuple[FileRef, ...]]  # component -> its files at `from`
    marks: dict[str, str] = {}  # source/partition -> what its input is recognised by, where instances write at once
    watermarks: dict[str, int | None] = {}  # source/partition -> event time so far; None where nothing has come yet
    idle: dict[str, Idleness] = {}  # source/partition -> its idleness, of sources with `idle_after`
    floor: int | None = None  # the minimum that the instance had come to, where it is not that of the watermarks
    ticks: tuple[int, ...] = ()
    chain: int = 0  # which chain of the layout
    replays: tuple[Replay, ...] = ()  # replayed events, or events from the inbox
    lanes: dict[str, int] = {}  # under acknowledging: source/partition -> its lane; lane 0 is that of the replays
    retried: tuple[str, ...] = ()  # under acknowledging: the ids of the events in lane 0
    asking: float = 0.0  # seconds after which a source without offsets is not polled again in this epoch
    continues: bool = (
        False  # it reads on where the epoch before it ends; its extents name new partitions, and where they start
    )
    max_attempts: int = 1  # under acknowledging
    parent: int | None = None  # under at-most-once: the checkpoint that the epoch is built on
    memory: int | None = None  # bytes that the records of one component may take; the rest stays in columns

    def event_ids(self) -> Callable[[int], str]:
        """The name of the event of a root."""
        names = {lane: name for name, lane in self.lanes.items()}

        def name(root: int) -> str:
            if (before := first(root)) is not None:
                return f"{name(before)}#1"
            lane, number = lane_of(root)
            return self.retried[number] if lane == 0 else f"{names[lane]}/{self.epoch}-{number}"

        return name
