"""Identities of sources: offsets mean something only in the input that they were counted in.

    1  check    `Planner.plan` asks every source that was read before whether it is still that input (`OffsetSource.recognises`);
                one that is not is refused with SW-SOURCE-CHANGED, and nothing is planned
    2  note     what each partition can be recognised by (`OffsetSource.mark`, `extended`) is noted in memory, as far as the plan
                reads. Under at-most-once it becomes durable in `sources.json` at once, since a plan is a position there
    3  plan     the plan is written, and the epoch is computed. Where instances write at once, each asks once more when it has
                its input open, before it processes any of it (`engine.instance`)
    4  keep     before the manifest is prepared, all are checked again, those of 2 included: an input that was replaced since the
                plan counts for nothing. Then they become durable in `sources.json`

What a crash leaves, and what the next start does with it:

    after 1, 2, 3   nothing that is new: input that no checkpoint has read may be corrected, as the error about a bad line advises
    after 4         a mark without a manifest: the same input is recognised by it
    later           a manifest: the mark was durable before it, so its positions are read on in the same input only

A mark is only replaced by a longer one of the same input. `sources.json` holds SOURCE/PARTITION -> mark; an older version has
written SOURCE -> mark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from streamwork.components import Position
from streamwork.components.source import source_changed
from streamwork.epoch.store import Store
from streamwork.job import Graph


class Identities:
    def __init__(self, graph: Graph, store: Store) -> None:
        self._graph = graph
        self._store = store
        self._known: dict[str, str] = {}
        self._stored: dict[str, str] = {}  # what of it is durable

    def resume(self) -> None:
        """Before the first plan of a start."""
        self._known = self._store.sources()
        self._stored = dict(self._known)

    def check(self) -> None:
        """1."""
        check_sources(self._graph, self._known)

    def keep(self, end: Position) -> None:
        """4, for an epoch that has read up to `end`. Partitions that were read by report get their marks here."""
        self.check()
        self.note(end)
        self._write()

    def marks(self, ranges: Mapping[str, Iterable[str]]) -> dict[str, str]:
        """Of partitions, by source: what they are recognised by, as far as that is known."""
        names = [f"{source}/{partition}" for source, partitions in ranges.items() for partition in partitions]
        return {name: self._known[name] for name in names if name in self._known}

    def note(self, end: Position) -> None:
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
        self._known = found
        if self._graph.promise.at_most_once:
            self._write()

    def _write(self) -> None:
        if self._known != self._stored:
            self._store.write_sources(self._known)
            self._stored = dict(self._known)


def check_sources(graph: Graph, known: Mapping[str, str]) -> None:
    """Refuse a source that is not the input that was read before."""
    for source, partition in changed_inputs(graph, known):
        raise source_changed(source, partition)


def changed_inputs(graph: Graph, known: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(source, partition) of inputs that are not those that were read before."""
    components = {node.id: node.component for node in graph.planned}
    for name, mark in known.items():
        source, _, partition = name.partition("/")
        if source in components and not components[source].recognises(partition, mark):
            yield source, partition
