"""Shared parts of sinks that keep the newest row of each key: the check of key fields, and the condition of deletes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamwork.components import Event, Key
from streamwork.components.expression import Expression
from streamwork.components.schema import fields_of
from streamwork.errors import WrongUse

_EXAMPLE = 'write key="card", delete=field("closed")'


def check_key(event: type[Event], key: Sequence[str]) -> None:
    """Refuse key fields that the event does not have, or that may be None."""
    Key.of(event, key)
    for name in key:
        if fields_of(event)[name].nullable:
            raise WrongUse(
                "SW-KEY-TYPE",
                f"{event.__name__}.{name} may be None, and None cannot be a key of a sink",
                "use key fields that cannot be None",
            )


class Deletes:
    """The condition by which a row removes its key. If it is null, because a field is null, the row is not a delete.

    It is evaluated on columns. Of several rows of one key only the last counts.
    """

    def __init__(self, condition: Expression | None, key: Sequence[str]) -> None:
        if condition is not None and not isinstance(condition, Expression):
            raise WrongUse("SW-SINK-DELETE", f"delete={condition!r} is not a condition on fields", _EXAMPLE)
        if condition is not None and not key:
            raise WrongUse("SW-SINK-DELETE", f"delete={condition!r}, but the sink has no key", _EXAMPLE)
        self.condition = condition
        self._ask: Callable[[pa.RecordBatch], pa.BooleanArray] | None = None

    def __bool__(self) -> bool:
        return self.condition is not None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_ask": None}  # compiled where it is used

    def check(self, event: type[Event]) -> None:
        """Compile the condition for this event. Refuses a condition that does not fit the event."""
        if self.condition is not None:
            self._ask = self.condition.to_arrow(event)

    def mask(self, rows: pa.RecordBatch) -> pa.BooleanArray:
        """True for rows that remove their key, else False; never null."""
        assert self._ask is not None, "`check` must be called first"
        return pc.fill_null(self._ask(rows), False)
