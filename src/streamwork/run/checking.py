"""``streamwork check``: does a job fit a checkpoint or savepoint, component by component? Reads only; no target is opened.

It compares what a start compares (`epoch.recovery.fit`), and lists every reason why the start would be refused, not only the first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import msgspec

from streamwork.epoch import Store
from streamwork.epoch.fences import Fences
from streamwork.epoch.identities import changed_inputs
from streamwork.epoch.manifest import Manifest
from streamwork.epoch.names import Names
from streamwork.epoch.recovery.fit import Unfit, fit
from streamwork.epoch.savepoints.origin import CHECKPOINT, NEWEST, Origin
from streamwork.epoch.start_records import Drop
from streamwork.errors import Refused
from streamwork.job import Graph, Job
from streamwork.state import Change, RestorePlan, StateFiles
from streamwork.world import Clock, RealProcesses


class Compared(msgspec.Struct, frozen=True):
    """A component, and how it compares with what is stored."""

    component: str
    kind: str  # "state", "source" or "sink"
    change: Change
    details: tuple[str, ...] = ()


class Reason(msgspec.Struct, frozen=True):
    """Why a start would be refused."""

    code: str
    cause: str
    action: str


class Checked(msgspec.Struct, frozen=True):
    """What a start from there would find."""

    job: str
    root: str
    against: str  # empty: nothing is stored yet
    fits: bool
    rewrites: bool  # the start would rewrite state, or write names down
    components: tuple[Compared, ...]
    reasons: tuple[Reason, ...] = ()


def check(job: Job, store: Store, against: str | None, drop_state: Sequence[str], clock: Clock) -> Checked:
    """Without `against`, the newest completed checkpoint."""
    graph = job.graph()
    names, drop = Names.of(graph), Drop(tuple(drop_state))
    store = store.named(names)
    if against is None and store.identity() is None:
        return _new(graph, store)
    starts = Fences(store.disk, store.folder, clock, RealProcesses()).starts
    origin = Origin.find(store, starts, against or f"{CHECKPOINT}{NEWEST}").named(names)
    manifest = origin.manifest
    chains = {name: mine for name, mine in origin.chains.items() if name not in drop.whole}
    found = fit(
        graph,
        origin.identity.groups,
        manifest,
        chains,
        StateFiles(store.disk, origin.folder).schema,
        folder=origin.folder,
        unknown_drops=sorted({*drop.whole, *drop.fields} - origin.chains.keys()),
        held=origin.chains.keys(),
        drop_fields=drop.fields,
        requested=drop.fields,
        changed_inputs=lambda: changed_inputs(graph, origin.sources),
        promise=origin.promise,
    )
    reasons = [*_foreign(origin, graph), *(found.reasons if isinstance(found, Unfit) else ())]
    return Checked(
        job=job.name,
        root=str(store.folder.parent),
        against=origin.name,
        fits=not reasons,
        rewrites=manifest.as_written is not manifest or (isinstance(found, RestorePlan) and not found.is_in_place),
        components=tuple(_compared(graph, manifest, names, found, drop)),
        reasons=tuple(Reason(one.code, one.cause, one.action) for one in reasons),
    )


def _new(graph: Graph, store: Store) -> Checked:
    nodes = [(node.id, "source") for node in graph.sources]
    nodes += [(node.id, "state") for node in graph.stateful] + [(node.id, "sink") for node in graph.sinks]
    components = tuple(Compared(name, kind, Change.ADDED) for name, kind in nodes)
    return Checked(graph.job, str(store.folder.parent), "", True, False, components)


def _foreign(origin: Origin, graph: Graph) -> Iterator[Refused]:
    if origin.identity.job != graph.job:
        yield Refused(
            "SW-SAVEPOINT-FOREIGN",
            f"{origin.name} is one of job {origin.identity.job}, and this is job {graph.job}",
            "check the job that it was taken of; or fork the savepoint: a fork may have another name",
        )


def _compared(
    graph: Graph, manifest: Manifest, names: Names, found: RestorePlan | Unfit, drop: Drop
) -> Iterator[Compared]:
    written = manifest.as_written
    yield from _by_name(
        "source", [n.id for n in graph.sources], manifest.positions.sources, written.positions.sources, names
    )
    for name, change in found.changes.items():
        was = _was(name, written.components, names)
        details = (*((f"was {was}",) if was else ()), *found.details.get(name, ()))
        yield Compared(name, "state", Change.CHANGED if was else change, details)
    for name in sorted(set(drop.whole) & manifest.components.keys() - found.changes.keys()):
        yield Compared(name, "state", Change.GONE, ("its state is dropped",))
    yield from _by_name("sink", [node.id for node in graph.sinks], manifest.sinks, written.sinks, names)


def _by_name(
    kind: str, now: Collection[str], stored: Collection[str], written: Collection[str], names: Names
) -> Iterator[Compared]:
    for name in now:
        was = _was(name, written, names)
        if was:
            yield Compared(name, kind, Change.CHANGED, (f"was {was}",))
        else:
            yield Compared(name, kind, Change.SAME if name in stored else Change.ADDED)
    for name in sorted(set(stored) - set(now)):
        yield Compared(name, kind, Change.GONE)


def _was(name: str, written: Collection[str], names: Names) -> str:
    """The name that it had when the checkpoint was written; empty if it had this one."""
    return "" if name in written else next((was for was in names.former(name) if was in written), "")
