"""`Changed`: the rows of a state table that have changed since the last checkpoint, for ``emit="epoch"``."""

from __future__ import annotations

import numpy as np

from streamwork.operators.aggregates.columns import Array


class Changed:
    """A set of places. It is empty after each checkpoint, so it is not stored."""

    def __init__(self) -> None:
        self._mask = np.zeros(0, bool)  # by place

    def add(self, places: Array) -> None:
        if len(places) and (size := int(places.max()) + 1) > len(self._mask):
            self._mask = np.append(self._mask, np.zeros(2 * size - len(self._mask), bool))
        self._mask[places] = True

    def remove(self, places: Array) -> None:
        """Places that are not in the set, and -1 for none, are allowed."""
        self._mask[places[(places >= 0) & (places < len(self._mask))]] = False

    def has(self, places: Array) -> Array:
        """For each of these places, True if it is in the set."""
        found = np.zeros(len(places), bool)
        known = places < len(self._mask)
        found[known] = self._mask[places[known]]
        return found

    def take(self) -> Array:
        """All places, in ascending order; the set is empty then."""
        found = np.flatnonzero(self._mask)
        self._mask[found] = False
        return found
