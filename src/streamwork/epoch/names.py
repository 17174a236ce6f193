"""`Names`: what is stored under the names that components had, in the names that they have now (`renamed_from`).

A job that was renamed reads its old manifests, plans and marks through this: positions, watermarks, sinks and state appear under
the names of today. A manifest keeps its bytes and its hash (`Manifest.as_written`), by which ledgers and children know it. A start
that finds old names writes a manifest in those of today (`epoch.recovery.rewriting`); after that, `renamed_from` has done its work.

A name is only replaced where the new one is not there: what is stored under both is not renamed, but refused as left over.

The ledger row of a sink keeps the id that it was created with, so that renaming changes nothing in a target: `Manifest.ledgers`
says which id that is, where it is not the sink's own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

import msgspec

from streamwork.components import Position
from streamwork.epoch.manifest import Manifest, Plan
from streamwork.job import Graph

V = TypeVar("V")


class Names:
    def __init__(self, now: Mapping[str, str]) -> None:
        """`now`: a name that a component had -> the one that it has."""
        self._now = now

    @classmethod
    def of(cls, graph: Graph) -> Names:
        return cls({was: node.id for node in graph.nodes for was in node.renamed_from})

    def former(self, name: str) -> list[str]:
        """The names that a component had."""
        return [was for was, now in self._now.items() if now == name]

    def port(self, address: str) -> str:
        """The address of a component or of one of its ports."""
        name, colon, port = address.partition(":")
        return self._now.get(name, name) + colon + port

    def position(self, position: Position) -> Position:
        return position if not self._now else Position(self._parts(position))

    def plan(self, plan: Plan) -> Plan:
        if not self._now:
            return plan
        reported = plan.reported
        if not isinstance(reported, msgspec.UnsetType):
            reported = tuple(self._now.get(name, name) for name in reported)
        start, end = self.position(plan.start), self.position(plan.end)
        return msgspec.structs.replace(plan, start=start, end=end, reported=reported)

    def manifest(self, manifest: Manifest) -> Manifest:
        """The manifest, which keeps its bytes."""
        if not self._now:
            return manifest
        renamed = msgspec.structs.replace(
            manifest,
            positions=self.position(manifest.positions),
            components=self.components(manifest.components),
            sinks=self.components(manifest.sinks),
            counters=self.components(manifest.counters),
            watermarks=self._parts(manifest.watermarks),
            idle=msgspec.UNSET if isinstance(manifest.idle, msgspec.UnsetType) else self._parts(manifest.idle),
            floors=msgspec.UNSET
            if isinstance(manifest.floors, msgspec.UnsetType)
            else self.components(manifest.floors),
        )
        return manifest if _same_names(renamed, manifest) else renamed.written_as(manifest.as_written)

    def components(self, named: Mapping[str, V]) -> dict[str, V]:
        """What is stored by component."""
        return {self._of(name, named): value for name, value in named.items()}

    def marks(self, marks: Mapping[str, str]) -> dict[str, str]:
        """What the inputs of sources are recognised by: under the old names, too."""
        return {**marks, **self._parts(marks)} if self._now else dict(marks)

    def _of(self, name: str, stored: Collection[str]) -> str:
        now = self._now.get(name, name)
        return name if now in stored else now

    def _parts(self, stored: Mapping[str, V]) -> dict[str, V]:
        """What is stored by SOURCE/PARTITION; other keys stay."""
        sources = {name.partition("/")[0] for name in stored if "/" in name}
        found = {}
        for name, value in stored.items():
            source, slash, partition = name.partition("/")
            found[f"{self._of(source, sources)}/{partition}" if slash else name] = value
        return found

    def ledgers(self, manifest: Manifest, graph: Graph) -> dict[str, str]:
        """Sink -> the id that its ledger row has, of those whose row has another one."""
        written = manifest.as_written
        known = {} if isinstance(written.ledgers, msgspec.UnsetType) else written.ledgers
        found: dict[str, str] = {}
        fresh = []
        for node in graph.sinks:
            here = next(
                (name for name in (node.id, *self.former(node.id)) if name in known or name in written.sinks), None
            )
            if here is None:
                fresh.append(node.id)
            else:
                found[node.id] = known.get(here, here)
        for name in fresh:  # the row of another sink may have the id of this one
            taken, number = set(found.values()), 1
            found[name] = name
            while found[name] in taken:
                number += 1
                found[name] = f"{name[:60]}-{number}"
        return {name: ledger for name, ledger in found.items() if name != ledger}


def _same_names(one: Manifest, other: Manifest) -> bool:
    return (
        set(one.positions) == set(other.positions)
        and one.components.keys() == other.components.keys()
        and one.sinks.keys() == other.sinks.keys()
        and one.watermarks.keys() == other.watermarks.keys()
    )
