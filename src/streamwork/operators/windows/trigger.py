"""`Trigger`: the base class of a user's own rule for results before a window closes."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from streamwork.components import Event
from streamwork.components.columns import to_structs

O = TypeVar("O", bound=Event, contravariant=True)  # noqa: E741 (out)


class Trigger(Generic[O]):
    """Decides, for each event, whether its window emits its result, which includes the event::

        class Alarm(Trigger[CardUsage]):
            def fires(self, result):
                return result.transactions == 10

    The window also emits when it closes. A trigger keeps nothing between two events: it decides by the result.
    """

    def fires(self, result: O) -> bool:
        raise NotImplementedError

    def fires_batch(self, results: pa.RecordBatch, kind: type[Any]) -> np.ndarray[Any, Any]:
        """The same for a batch of results. A subclass may define it, to work on whole columns."""
        return np.array([bool(self.fires(result)) for result in to_structs(kind, results)], bool)
