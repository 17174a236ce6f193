"""The event dispatcher of one instance: takes items from its inputs, and aligns them at checkpoint events.

An input whose checkpoint event has come is blocked until it has come on all of them. Events behind it wait; events before it on
the other inputs are processed first. So the state that is stored holds exactly what came before the checkpoint event, on
every input.
"""

from __future__ import annotations

from collections.abc import Sequence

from streamwork.errors import JobFailed
from streamwork.flow.channel import Aligned, Channel, CheckpointEvent, Data, Watermark


class Dispatcher:
    def __init__(self, inputs: Sequence[Channel], align: bool = True) -> None:
        """`align=False` is for proving that alignment is needed: nothing is blocked then."""
        self.inputs = list(inputs)
        self._align = align
        self._arrived: dict[
            int, dict[str, CheckpointEvent]
        ] = {}  # epoch -> input -> its checkpoint event, until all have it

    def ready(self) -> list[Channel]:
        """The inputs that something can be taken from now."""
        blocked = {name for arrived in self._arrived.values() for name in arrived} if self._align else set()
        return [channel for channel in self.inputs if channel.items and channel.name not in blocked]

    def take(self, channel: Channel) -> Aligned | Data | Watermark | None:
        """The next item of an input; a checkpoint event only when it has come on all inputs, None until then."""
        item = channel.items.popleft()
        if not isinstance(item, CheckpointEvent):
            return item
        arrived = self._arrived.setdefault(item.epoch, {})
        arrived[channel.name] = item
        if len(self._arrived) > 1 and self._align:
            raise JobFailed(
                "SW-ENGINE-ALIGNMENT",
                f"inputs brought checkpoint events of different epochs: {sorted(self._arrived)}",
                "start again: the last checkpoint is good. If it comes back, it is a fault in Streamwork: report it",
            )
        if len(arrived) < len(self.inputs):
            return None
        del self._arrived[item.epoch]
        return Aligned(item.epoch, tuple(sorted(event.attempt for event in arrived.values())))
