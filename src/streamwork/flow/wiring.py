"""Wiring: which instances are connected, and the ways of what leaves a chain.

There is one channel for each pair of instances whose chains exchange events; checkpoint events take it too.
"""

from __future__ import annotations

from collections.abc import Mapping

from streamwork.flow.channel import Channel
from streamwork.flow.routing import Route, route_to
from streamwork.job import Input, Layout

Place = tuple[int, int]  # chain, instance
Ways = dict[Input, list[tuple[str, str, Route, list[Channel]]]]
"""What -> to which component and port, how, channels to its instances."""


def channel_name(before: Place, after: Place) -> str:
    return f"{before[0]}.{before[1]}>{after[0]}.{after[1]}"


def upstream(layout: Layout, place: Place) -> list[Place]:
    """The instances that this one reads from."""
    return [(chain, i) for chain in layout.upstream[place[0]] for i in range(layout.chains[chain].parallelism)]


def downstream(layout: Layout, place: Place) -> list[Place]:
    """The instances that read from this one."""
    return [(chain, i) for chain in layout.downstream[place[0]] for i in range(layout.chains[chain].parallelism)]


def ways(layout: Layout, place: Place, outputs: Mapping[Place, Channel]) -> Ways:
    """The ways of what leaves an instance."""
    chain, instance = place
    found: Ways = {}
    for one, to, name in layout.exchanged:
        if layout.chain_of(one.node) == chain:
            node = layout.graph[to]
            targets = [outputs[layout.chain_of(to), number] for number in range(node.parallelism)]
            route = route_to(layout.graph, layout.graph[one.node], node, node.port(name), layout.groups, instance)
            found.setdefault(one, []).append((to, name, route, targets))
    return found
