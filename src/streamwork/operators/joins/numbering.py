"""Numbers of rows of the state that may have the same key and time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from streamwork.components.table_operator import StateTable

NUMBER = "join_number"
"""The column of the sub-key that has them."""


class Numbering:
    """Gives rows numbers that no row of an instance's state has. They say nothing else: they depend on where the input is
    cut.
    """

    def __init__(self) -> None:
        self._next: int | None = None

    def take(self, count: int, state: StateTable) -> pa.Array:
        if self._next is None:
            known = state.numbers(NUMBER, state.places())
            self._next = int(known.max()) + 1 if len(known) else 0
        first, self._next = self._next, self._next + count
        return pa.array(np.arange(first, self._next))
