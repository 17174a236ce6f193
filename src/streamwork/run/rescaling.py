"""Rescaling a job at rest: a start that only rewrites the state (`epoch.recovery.rewriting`), and reads no input.

A job that runs is refused: it holds the fence. What a crash leaves is what it leaves at any start: the old layout or the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from streamwork.epoch import Manifest, Store
from streamwork.errors import WrongUse
from streamwork.job import Graph, Job
from streamwork.run.savepoints import AtRest, as_last_started
from streamwork.world import Clock


class ComponentRescaled(msgspec.Struct, frozen=True):
    """The state of one component. `code` is the parallelism that the job file gives it."""

    component: str
    before: int
    now: int
    code: int
    rows: int
    bytes: int


class Rescaled(msgspec.Struct, frozen=True):
    """What a rescaling did. If nothing was to do, both checkpoints are the same."""

    job: str
    root: str
    base: int  # the checkpoint that was found
    checkpoint: int  # the one with the state as it is divided now
    components: tuple[ComponentRescaled, ...]
    seconds: float
    notes: tuple[str, ...] = ()


def rescale(
    job: Job, store: Store, wanted: Mapping[str, int], clock: Clock, tell: Callable[[str], None] = lambda line: None
) -> Rescaled:
    """Divide the state of components among these numbers of instances."""
    began = clock.monotonic()
    settings = as_last_started(job.settings, store, clock)
    code = job.graph(settings)
    _check(code, wanted)
    graph = job.graph(settings, parallelism=wanted)
    newest = next((one.manifest for one in store.stored() if one.manifest is not None), None)
    with AtRest(graph, settings, store, clock, tell) as driver:
        at = driver.at
    base = newest if newest is not None and newest.epoch == at.parent else at
    return Rescaled(
        job=job.name,
        root=str(store.folder.parent),
        base=base.epoch,
        checkpoint=at.epoch,
        components=tuple(_done(name, base, at, code) for name in wanted),
        seconds=round(clock.monotonic() - began, 3),
        notes=tuple(_notes(code, wanted)),
    )


def _check(code: Graph, wanted: Mapping[str, int]) -> None:
    stateful = [node.id for node in code.stateful]
    for name in wanted:
        if name not in stateful:
            known = ", ".join(stateful) or "no component of this job does"
            raise WrongUse(
                "SW-USAGE",
                f"{name!r} is not a component with state of job {code.job}",
                f"name one that keeps state: {known}. The parallelism of others is only a matter of the job file",
            )


def _done(name: str, base: Manifest, at: Manifest, code: Graph) -> ComponentRescaled:
    chains = at.components.get(name, {})
    files = [ref for chain in chains.values() for ref in chain]
    rows = sum(chain[-1].rows for chain in chains.values() if chain)
    before = len(base.components.get(name, {}))
    return ComponentRescaled(name, before, len(chains), code[name].parallelism, rows, sum(ref.bytes for ref in files))


def _notes(code: Graph, wanted: Mapping[str, int]) -> list[str]:
    return [
        f"the job file gives {name} a parallelism of {code[name].parallelism}: change it to {count}, or the next start divides the "
        "state that way again"
        for name, count in wanted.items()
        if code[name].parallelism != count
    ]
