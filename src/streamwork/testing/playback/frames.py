"""The frames of a playback: what is where after each step of a simulated run."""

from __future__ import annotations

from enum import Enum

import msgspec


class Kind(Enum):
    """What has happened in a frame."""

    START = "start"  # a driver has started, from nothing or from a checkpoint
    PLAN = "plan"
    READ = "read"  # a source has read an event
    APPLY = "apply"  # an instance has taken an event from an input
    MARK = "mark"  # a source has stored its offset, and sent the checkpoint event
    BLOCK = "block"  # a checkpoint event has come on one input, and not yet on all
    SNAPSHOT = "snapshot"  # it has come on all inputs: the state is stored
    REPORT = "report"
    PREPARE = "prepare"
    COMMIT = "commit"
    COMPLETE = "complete"
    CRASH = "crash"


class Place(msgspec.Struct, frozen=True):
    """An instance of a chain of components: a box of the picture."""

    id: str
    components: tuple[str, ...]
    column: int  # sources are in column 0
    row: int
    is_source: bool


class Edge(msgspec.Struct, frozen=True):
    """A channel between two instances."""

    id: str
    sender: str
    receiver: str


class Scene(msgspec.Struct, frozen=True):
    """What does not change: boxes and edges."""

    places: tuple[Place, ...]
    edges: tuple[Edge, ...]
    sinks: dict[str, tuple[str, ...]]  # sink -> the boxes that write to it


class Token(msgspec.Struct, frozen=True):
    """An item in a channel. It keeps its number as long as it waits."""

    number: int
    checkpoint: bool  # a checkpoint event; else events of the job
    label: str
    epoch: int


class Snapshot(msgspec.Struct, frozen=True):
    """The state that an instance has stored for a checkpoint."""

    epoch: int
    state: dict[str, str]


class PlaceView(msgspec.Struct, frozen=True):
    """An instance in a frame."""

    state: dict[str, str]  # key -> record; of a source, its offset
    blocked: tuple[str, ...]  # edges
    snapshot: Snapshot | None  # the newest one


class SinkView(msgspec.Struct, frozen=True):
    """A sink in a frame."""

    rows: tuple[str, ...]  # those that readers see
    staged: int  # rows that are not committed yet
    checkpoint: int  # that its ledger row is at


class Frame(msgspec.Struct, frozen=True):
    """One step of a run, and what is where after it."""

    number: int
    life: int  # counts the starts of the job
    kind: Kind
    epoch: int
    place: str  # the box that did it; empty if the driver did
    edge: str  # the channel that it took the item from; empty if there is none
    caption: str
    why: str
    edges: dict[str, tuple[Token, ...]]  # edge -> its items, the first to be received first
    places: dict[str, PlaceView]
    sinks: dict[str, SinkView]
    completed: int  # the newest completed checkpoint
    crash_at: int  # pass it to `play`, and the machine crashes right after this frame


class Playback(msgspec.Struct, frozen=True):
    """A simulated run, frame by frame."""

    job: str
    seed: int
    crash_at: tuple[int, ...]
    scene: Scene
    frames: tuple[Frame, ...]
    whole: bool  # False: the run was cut off
