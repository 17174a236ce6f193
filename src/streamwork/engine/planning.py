"""The plan of a chain: which steps run once in a wave, and the order in which what meets there is merged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from streamwork.components import TableOperator
from streamwork.components.collector import MAIN
from streamwork.components.operator import reads_watermark
from streamwork.engine.routes import BEFORE, OUTBOX, Routes, To
from streamwork.engine.steps.batch_steps import BatchStep
from streamwork.engine.steps.keyed_steps import KeyedStep
from streamwork.engine.steps.step import Step
from streamwork.engine.steps.table_step import TableStep
from streamwork.engine.times import BatchTimes, InstanceTimes, RowTimes
from streamwork.engine.wave import Plan
from streamwork.flow.blame import Blame
from streamwork.flow.needs import Needs
from streamwork.job import Graph, Input, Node


class Planned(NamedTuple):
    """What a chain knows about its waves before the first one."""

    plan: Plan
    timed: Sequence[str]  # the steps at which something happens when time advances
    walks: bool  # True if it matters where event time advances
    leaves: bool  # True if events leave the chain


def planned(
    graph: Graph, nodes: Sequence[Node], steps: Mapping[str, Step], needs: Needs, times: InstanceTimes
) -> Planned:
    """The plan of a chain of these nodes. Sets in each step what the steps behind it need."""
    mine = {node.id for node in nodes}
    successors: dict[Input, list[To]] = {
        one: [To(OUTBOX)] for node in graph.nodes if node.id not in mine for one in node.inputs if one.node in mine
    }
    leaves = bool(successors)
    for step in steps.values():
        tables = graph.tables_of(step.node)
        for port in step.node.ports:
            for one in port.inputs:
                if one.node in mine and port.name not in tables:
                    successors.setdefault(one, []).append(To(step.node.id, port.name))
    timed = [name for name, step in steps.items() if follows_time(step)]
    reading = {name for name, step in steps.items() if reads_watermark(step.node.component)}
    walking = reading.union(name for name in timed if isinstance(steps[name], KeyedStep))
    meeting = {name for name, step in steps.items() if any(len(port.inputs) > 1 for port in step.node.ports)}
    # What a table operator emits for several ports, or for rows and time, is put in order where a state behind depends on it.
    mixing = {n for n, step in steps.items() if isinstance(step, TableStep) and step.mixes and graph.keeps_behind(n)}
    gathering = meeting | walking | mixing
    if needs.order and leaves:
        gathering.add(OUTBOX)
    channels = {node.id: (MAIN, *node.channels) for node in nodes}
    routes = Routes([node.id for node in nodes], channels, successors, timed, gathering)
    walks = bool(walking) or OUTBOX in gathering or any(map(routes.needs_moments, timed))
    for name, step in steps.items():
        behind = [edge for channel in channels[name] for edge in routes.edges.get(Input(name, channel), ())]
        orders = any(edge.ranks is not None for edge in behind)
        step.blame = Blame.of(graph, step.node.inputs)
        knows = name in reading or isinstance(step, TableStep)
        step.times = RowTimes(times) if knows else BatchTimes(times, step.node)
        step.keeps_lineage = orders or bool(needs.columns)
        if isinstance(step, BatchStep):
            step.orders_rows = orders
            overtaken = any(isinstance(node.component, TableOperator) for node in graph.behind(name))
            if graph.previews or name in reading or overtaken:  # event time must not overtake what waits
                step.rows = 1
        step.moment_of_rise = routes.event_ranks[name] - (routes.width - 1)
        if isinstance(step, TableStep):
            step.orders = routes.needs_moments(name)
            step.blames = {port.name: Blame.of(graph, port.inputs) for port in step.node.ports}
            step.moments = (routes.emitted(name, BEFORE), routes.emitted(name, 0))
        if name in routes.timer_ranks and isinstance(step, KeyedStep | TableStep):
            step.moment_of_timers = routes.timer_ranks[name] - (routes.width - 1)
    unchecked = {
        one: graph[one.node].emits(one.channel)
        for node in graph.nodes
        for one in node.inputs
        if one.node in steps and not steps[one.node].answers
    }
    once = gathering.union(name for name, step in steps.items() if isinstance(step, TableStep))
    plan = Plan(graph, steps, routes, frozenset(once), frozenset(walking), unchecked)
    return Planned(plan, timed, walks, leaves)


def follows_time(step: Step) -> bool:
    """True if something happens at a step when time advances."""
    if isinstance(step, TableStep):
        return bool(step.operator.clocks)
    return isinstance(step, KeyedStep) and step.node.follows_time
