"""What the rest of a job needs to know about the events of one chain."""

from __future__ import annotations

from typing import NamedTuple

from streamwork.job import Layout


class Needs(NamedTuple):
    """The side columns that the events of a chain carry."""

    roots: bool = False  # under acknowledging
    origins: bool = False  # something behind is spread by `shuffle()`
    # a component in the chain or behind it compares event time with that of its source partition
    watermarks: bool = False
    # the order in which events leave the chain matters, between each other and to timers behind it
    order: bool = False

    @classmethod
    def of(cls, layout: Layout, chain: int) -> Needs:
        return cls(
            layout.graph.promise.acknowledges,
            layout.rotates(chain),
            _judges_lateness(layout, chain),
            layout.interleaves(chain),
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the side columns, but for the order."""
        return tuple(name for name in ("roots", "origins", "watermarks") if getattr(self, name))


def _judges_lateness(layout: Layout, chain: int) -> bool:
    mine = (layout.graph[node].component for node in layout.chains[chain].nodes)
    return any(getattr(component, "judges_lateness", False) for component in mine) or any(
        _judges_lateness(layout, after) for after in layout.downstream[chain]
    )
