"""``streamwork savepoint fork``: another job begins with the state of a savepoint, with a root and targets of its own.

    1  check     the name is free, every sink has a target of its own that is empty. Nothing is written before this is over
    2  restore   as `epoch.savepoints.restoring` says, under a new uid; `job.json` holds the targets
    3  keep      the job is registered with its sources, so that a log keeps the events behind it

A crash in 2 leaves a folder that no run takes; the same fork again completes it. After 2 it is complete: a run registers by itself.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from streamwork.components import ReadProgress, Sink
from streamwork.epoch import Store
from streamwork.epoch.savepoints.origin import Origin, savepoint_at
from streamwork.epoch.savepoints.restoring import Choices, Restoring
from streamwork.epoch.start_records import StartRecords
from streamwork.epoch.store import Identity
from streamwork.errors import Refused, WrongUse
from streamwork.job import Graph, Job
from streamwork.world import Clock, RealDisk, RealProcesses
from streamwork.world.heartbeat import Heartbeat

PLACE = ("path", "address", "table", "prefix", "topic", "_cluster")
"""The attributes of sinks that name their target."""


class Forked(msgspec.Struct, frozen=True):
    """A job that was made of a savepoint."""

    job: str
    root: str
    uid: str
    origin: str
    checkpoint: int
    targets: dict[str, str]


def fork(
    job: Job,
    store: Store,
    text: str,
    name: str,
    targets: Mapping[str, str],
    clock: Clock,
    tell: Callable[[str], None] = lambda line: None,
) -> Forked:
    """`store` is that of the job that the savepoint was taken of; `text` names it as `--from` does."""
    if name == store.folder.name:
        raise WrongUse("SW-FORK-EXISTS", f"{name} is the job itself", "give the fork a name of its own")
    origin = Origin.of_savepoint(savepoint_at(store, text))
    forked, root = job.fork(name, targets), store.folder.parent
    graph, mine = forked.graph(), Store(store.disk, root, name)
    identity = _identity(mine, origin, name, targets, clock)
    _check_targets(graph, origin, targets, "" if mine.identity() is None else identity.uid)
    restoring = Restoring(graph, forked.settings, mine, clock, RealProcesses(), origin, Choices(), identity)
    restoring.fences.tell = tell
    with Heartbeat(restoring.fences.beat, forked.settings.lease / 4):
        restored = restoring.run()
    for node in graph.planned:
        at = origin.manifest.positions.of(node.id)
        node.component.keep(ReadProgress(identity.uid, name, node.id, at, at))
    return Forked(name, str(root), identity.uid, origin.name, restored.checkpoint, dict(targets))


def _identity(store: Store, origin: Origin, name: str, targets: Mapping[str, str], clock: Clock) -> Identity:
    """A new one, or that of the same fork, which was interrupted. Refuses a name that is taken."""
    found = store.identity()
    if found is None:
        uid, groups = secrets.token_hex(16), origin.identity.groups
        return Identity(name, uid, groups, clock.now(), origin=origin.manifest.sha256, targets=dict(targets))
    started = StartRecords(store.disk, store.folder / "fences").numbers()
    if not started and (found.origin, found.targets) == (origin.manifest.sha256, dict(targets)):
        return found
    raise Refused(
        "SW-FORK-EXISTS",
        f"there is a job {name} already ({store.folder})",
        "give the fork another name; or, if that folder is left of a fork that was interrupted, remove it. Nothing was changed",
    )


def _check_targets(graph: Graph, origin: Origin, targets: Mapping[str, str], uid: str) -> None:
    """Refuse a sink that would write where the other job writes, or where something is already."""
    places: dict[str, str] = {}
    for node in graph.sinks:
        sink = node.component
        if not isinstance(sink, Sink):
            continue  # `print()` shares nothing
        shared = sink.kind.keeps_ledger and sink.ledger(origin.identity.uid, node.id) is not None
        if shared or (node.id not in targets and not sink.kind.keeps_ledger):
            raise Refused(
                "SW-FORK-SHARED",
                f"sink {node.id} of the fork would write to the target of {origin.identity.job}",
                f"give it one of its own: --target {node.id}=...; nothing was changed",
            )
        if what := sink.used():
            raise Refused(
                "SW-FORK-TARGET",
                f"the target of sink {node.id} is not empty: {what}",
                f"choose another: --target {node.id}=...; nothing was changed",
            )
        sink.check_target(uid, node.id)
        place = repr(sorted((k, str(v)) for k, v in vars(sink).items() if k in PLACE))
        if place in places:
            raise Refused(
                "SW-FORK-SHARED",
                f"sinks {places[place]} and {node.id} of the fork would write to the same target",
                "give each one of its own; nothing was changed",
            )
        places[place] = node.id


def forked_job(job: Job, root: Path, name: str) -> Job:
    """The job of a fork, with the targets that its folder names. Refuses a name that is none of a fork."""
    identity = Store(RealDisk(), root, name).identity()
    if identity is None or isinstance(identity.targets, msgspec.UnsetType):
        raise WrongUse(
            "SW-FORK-UNKNOWN",
            f"{root} has no job {name!r} that was forked",
            f"`streamwork savepoint fork JOBFILE SAVEPOINT --as {name}` makes one",
        )
    return job.fork(name, identity.targets)
