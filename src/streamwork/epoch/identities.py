"""Identities of sources: offsets mean something only in the input that they were counted in.

    1  look     `Planner.plan` asks every source that was read before whether it is still that input (`OffsetSource.recognises`);
                one that is not is refused with SW-SOURCE-CHANGED, and nothing is planned
    2  record   what each partition can be recognised by (`OffsetSource.mark`) becomes durable in `sources.json`, before the first
                plan that reads from it
    3  plan     the plan is written, and the epoch is computed. Where instances write at once, each asks once more when it has
                its input open, before it processes any of it (`engine.instance`)
    4  again    before the manifest is prepared, as in 1: an input that was replaced since the plan counts for nothing

What a crash leaves, and what the next start does with it:

    after 1    nothing
    after 2    a mark without a plan: the same input is recognised by it; where another one is there by now, the start is refused,
               although nothing was read, unless no plan was ever written, since then nothing is asked
    after 3    a plan that nothing was prepared of, or a manifest: the mark was durable before them, so whoever reads on from their
               positions asks the same input
    after 4    likewise

What was recorded is only ever replaced by a mark that says more of the same input (`OffsetSource.extended`), as in 2.
`sources.json` holds SOURCE/PARTITION -> mark; an older version has written SOURCE -> mark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from streamwork.components import Position
from streamwork.components.source import source_changed
from streamwork.epoch.store import Store
from streamwork.job import Graph


class Identities:
    def __init__(self, graph: Graph, store: Store) -> None:
        self._graph = graph
        self._store = store
        self._known: dict[str, str] = {}

    def resume(self) -> None:
        """Before the first plan of a start."""
        self._known = self._store.sources()

    def check(self) -> None:
        """1 and 4."""
        check_sources(self._graph, self._known)

    def marks(self, ranges: Mapping[str, Iterable[str]]) -> dict[str, str]:
        """Of partitions, by source: what they are recognised by, as far as that is known."""
        names = [f"{source}/{partition}" for source, partitions in ranges.items() for partition in partitions]
        return {name: self._known[name] for name in names if name in self._known}

    def record(self, end: Position) -> None:
        """2, for an epoch that reads up to `end`."""
        found = dict(self._known)
        for node in self._graph.planned:
            for name, offset in end.items():
                source, _, partition = name.partition("/")
                if source != node.id or not offset:
                    continue
                if name in found:
                    found[name] = node.component.extended(partition, found[name], offset)
                elif (mark := node.component.mark(partition, offset)) is not None:
                    found[name] = mark
        if found != self._known:
            self._store.write_sources(found)
            self._known = found


def check_sources(graph: Graph, known: Mapping[str, str]) -> None:
    """Refuse a source that is not the input that was read before."""
    components = {node.id: node.component for node in graph.planned}
    for name, mark in known.items():
        source, _, partition = name.partition("/")
        if source in components and not components[source].recognises(partition, mark):
            raise source_changed(source, partition)
