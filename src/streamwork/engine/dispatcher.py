"""The event dispatcher of one instance: takes items from its inputs, and aligns them at checkpoint events.

An input whose checkpoint event has come is blocked until it has come on all of them. Events behind it wait; events before it on
the other inputs are processed first. So the state that is stored holds exactly what came before the checkpoint event, on
every input.
"""

from __future__ import annotations

from collections.abc import Sequence

from streamwork.engine.channel import Channel, CheckpointEvent, Data, Watermark
from streamwork.errors import JobFailed


class Dispatcher:
    def __init__(self, inputs: Sequence[Channel], align: bool = True) -> None:
        """`align=False` is for proving that alignment is needed: nothing is blocked then."""
        self.inputs = list(inputs)
        self._align = align
        self._arrived: dict[str, CheckpointEvent] = {}  # input -> its checkpoint event, while others are waited for

    def ready(self) -> list[Channel]:
        """The inputs that something can be taken from now."""
        return [c for c in self.inputs if c.items and not (self._align and c.name in self._arrived)]

    def take(self, channel: Channel) -> Data | Watermark | CheckpointEvent | None:
        """The next item of an input; a checkpoint event only when it has come on all inputs, None until then."""
        item = channel.items.popleft()
        if not isinstance(item, CheckpointEvent):
            return item
        self._arrived.setdefault(channel.name, item)
        epochs = {event.epoch for event in self._arrived.values()}
        if len(epochs) > 1 and self._align:
            raise JobFailed(
                "SW-ENGINE-ALIGNMENT",
                f"inputs brought checkpoint events of different epochs: {sorted(epochs)}",
                "start again: the last checkpoint is good. If it comes back, it is a fault in Streamwork: report it",
            )
        if len(self._arrived) < len(self.inputs):
            return None
        self._arrived.clear()
        return item

    def upstream_attempts(self) -> tuple[str, ...]:
        return tuple(event.attempt for event in self._arrived.values())
