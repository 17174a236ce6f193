"""A batch: events of one type, as objects or as columns, with the side columns that steps behind need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streamwork.components.batches import joined as joined_batches
from streamwork.components.columns import Columns, as_events
from streamwork.flow import lineage as lineages
from streamwork.flow.lineage import UNTRACKED, Array, Lineage

Given = list[Any] | Columns


class Batch:
    """What moves from step to step and from instance to instance. It is not changed once it was passed on."""

    __slots__ = ("given", "lineage")

    def __init__(self, given: Given, lineage: Lineage | None = None) -> None:
        """`given` are the events: a list, or columns."""
        self.given = given
        self.lineage = lineage

    def __len__(self) -> int:
        return len(self.given)

    def __repr__(self) -> str:
        kept = () if self.lineage is None else tuple(self.lineage.columns)
        return f"Batch({len(self)} events{', with ' + ', '.join(kept) if kept else ''})"

    @property
    def events(self) -> list[Any]:
        """The events as objects."""
        return as_events(self.given)

    @property
    def roots(self) -> Sequence[int]:
        """The root of each event, under acknowledging."""
        lineage = self.lineage
        return [UNTRACKED] * len(self) if lineage is None or lineage.roots is None else lineage.roots.tolist()

    @property
    def moments(self) -> Array | None:
        return None if self.lineage is None else self.lineage.moments

    def __getitem__(self, part: slice) -> Batch:
        return Batch(self.given[part], None if self.lineage is None else self.lineage.take(part))

    def take(self, places: Array) -> Batch:
        """The events at these places."""
        given: Given
        if isinstance(self.given, Columns):
            given = self.given.take(places)
        else:
            events = self.given
            given = [events[place] for place in places.tolist()]
        return Batch(given, None if self.lineage is None else self.lineage.take(places))

    def at(self, moments: Array | None) -> Batch:
        """These events at other moments."""
        if self.lineage is None:
            return self if moments is None else Batch(self.given, Lineage(moments=moments))
        lineage = self.lineage.at(moments)
        return Batch(self.given, lineage if lineage.columns else None)


def joined(batches: Sequence[Batch]) -> Batch:
    """Several batches of one type in a row."""
    if len(batches) == 1:
        return batches[0]
    lineage = lineages.joined([(batch.lineage, len(batch)) for batch in batches])
    given = [batch.given for batch in batches]
    if all(isinstance(some, Columns) for some in given):
        pieces = list(joined_batches(some.batch for some in given if isinstance(some, Columns)))
        if len(pieces) == 1:  # more are too large for one
            return Batch(Columns(given[0].kind, pieces[0]), lineage)  # type: ignore[union-attr]
    return Batch([event for batch in batches for event in batch.events], lineage)


def merged(batches: Sequence[Batch]) -> Batch:
    """Several batches of one type in the order of their moments, each of which is in that order already."""
    whole = joined(batches)
    if len(batches) == 1:
        return whole
    assert whole.moments is not None, "what meets is ordered"
    order = np.argsort(whole.moments, kind="stable")
    return whole.take(order)


def join_outputs(found: Sequence[Mapping[str, Batch]]) -> Mapping[str, Batch]:
    """Several outputs of one step in a row: channel -> batch."""
    if len(found) == 1:
        return found[0]
    batches: dict[str, list[Batch]] = {}
    for outputs in found:
        for channel, batch in outputs.items():
            batches.setdefault(channel, []).append(batch)
    return {channel: joined(mine) for channel, mine in batches.items()}
