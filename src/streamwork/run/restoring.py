"""``streamwork run --from``: what a run does before its first driver."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from streamwork.components import Position
from streamwork.epoch import Store
from streamwork.epoch.fences import Fences
from streamwork.epoch.names import Names
from streamwork.epoch.savepoints.origin import Origin
from streamwork.epoch.savepoints.restoring import Choices, Restored, Restoring
from streamwork.errors import Refused, WrongUse
from streamwork.job import Graph, Settings
from streamwork.run.options import RunOptions
from streamwork.world import Clock, RealProcesses
from streamwork.world.heartbeat import Heartbeat

TIME = "time:"


def check_restore(options: RunOptions) -> None:
    """Refuse options that have no meaning without `--from`."""
    if options.from_ is None and (options.input or options.rewind_output):
        option = "--input" if options.input else "--rewind-output"
        raise WrongUse("SW-USAGE", f"{option} needs --from", "with --from checkpoint:newest the state stays as it is")


def restore(
    graph: Graph, settings: Settings, store: Store, options: RunOptions, clock: Clock, tell: Callable[[str], None]
) -> Restored:
    """Bring the job's folder and its sinks to where the run is to begin."""
    assert options.from_ is not None
    processes = RealProcesses()
    origin = Origin.find(store, Fences(store.disk, store.folder, clock, processes).starts, options.from_)
    origin = origin.named(Names.of(graph))
    chosen, remarks = other_input(graph, origin.manifest.positions, options.input)
    if remarks and not options.accept_input:
        raise Refused(
            "SW-INPUT-CHANGED",
            f"with other positions than those of {origin.name} its state no longer is that of the input: "
            + "; ".join(remarks),
            "if that is intended, start with --accept-input as well. Nothing was changed",
        )
    choices = Choices(
        positions=chosen,
        drop_state=options.drop_state,
        change_semantics=options.change_semantics,
        rewind_output=options.rewind_output,
        take_over=options.take_over,
    )
    restoring = Restoring(graph, settings, store, clock, processes, origin, choices)
    restoring.fences.tell = tell
    with Heartbeat(restoring.fences.beat, settings.lease / 4):
        restored = restoring.run()
    for line in [*remarks, *(f"sink {name}: {rows:,} rows were removed" for name, rows in restored.rewound.items())]:
        tell(line)
    tell(f"begins with {restored.origin}, as checkpoint {restored.checkpoint}")
    return restored


def other_input(graph: Graph, at: Position, places: dict[str, str]) -> tuple[dict[str, int], list[str]]:
    """The offsets that `--input` gives, by source/partition, and what they do to the results."""
    chosen: dict[str, int] = {}
    remarks: list[str] = []
    for source, place in places.items():
        offsets = _offsets(graph, source, place)
        for partition, offset in offsets.items():
            name = f"{source}/{partition}"
            was = at[name]
            chosen[name] = offset
            if offset < was:
                remarks.append(f"{name} goes back from {was:,} to {offset:,}: what lies between is counted twice")
            elif offset > was:
                remarks.append(f"{name} goes on from {was:,} to {offset:,}: what lies between is skipped")
    return chosen, remarks


def _offsets(graph: Graph, source: str, place: str) -> dict[str, int]:
    nodes = {node.id: node.component for node in graph.planned}
    if source not in nodes:
        known = ", ".join(nodes) or "none"
        raise WrongUse(
            "SW-USAGE", f"--input names {source!r}, which is no source with offsets of this job", f"use one of: {known}"
        )
    component = nodes[source]
    partitions = component.partitions()
    if place == "earliest":
        first = component.earliest(partitions)
        return {partition: first.get(partition, 0) for partition in partitions}
    if place == "latest":
        return dict(component.latest(partitions))
    if not place.startswith(TIME):
        raise WrongUse(
            "SW-USAGE", f"--input {source}={place}: what place is that?", "use earliest, latest or time:TIME"
        )
    found = component.at_time(partitions, _time(place.removeprefix(TIME)))
    if found is None:
        raise WrongUse(
            "SW-USAGE",
            f"source {source} does not know when its events were added",
            "use earliest or latest, or an event log, which knows it",
        )
    return dict(found)


def _time(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise WrongUse("SW-USAGE", f"{text!r} is not a time", "write it as 2026-01-31T12:00Z") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
