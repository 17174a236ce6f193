"""The event dispatcher of one instance: receives items from its inputs, and aligns them at checkpoint events.

An input whose checkpoint event has come is blocked until the event has come on all inputs. Events behind it wait; events before
it on the other inputs are processed first. So the stored state contains exactly what came before the checkpoint event, on
every input.
"""

from __future__ import annotations

from collections.abc import Sequence

from streamwork.errors import JobFailed
from streamwork.flow.channel import Aligned, Channel, CheckpointEvent, Data, Idle, Watermark


class Dispatcher:
    """Blocks and releases the inputs of one instance."""

    def __init__(self, inputs: Sequence[Channel], align: bool = True) -> None:
        """`align=False` is for proving that alignment is needed: no input is blocked then."""
        self.inputs = list(inputs)
        self._align = align
        self._arrived: dict[int, dict[str, CheckpointEvent]] = {}  # epoch -> input -> event, until it is on all inputs

    @property
    def blocked(self) -> set[str]:
        """The inputs whose checkpoint event has come, while others still lack it."""
        return {name for arrived in self._arrived.values() for name in arrived} if self._align else set()

    def ready(self) -> list[Channel]:
        """The inputs that have an item and are not blocked."""
        blocked = self.blocked
        return [channel for channel in self.inputs if channel.items and channel.name not in blocked]

    def receive(self, channel: Channel) -> Aligned | Data | Watermark | Idle | None:
        """The next item of an input; a checkpoint event only when it has come on all inputs, None until then."""
        item = channel.receive()
        if not isinstance(item, CheckpointEvent):
            return item
        came, channel.came = channel.came, 0
        dropped = sum(events for _, events in item.dropped)
        if item.sent is not None and came + dropped != item.sent:
            raise JobFailed(
                "SW-EXCHANGE-INCOMPLETE",
                f"channel {channel.name}, epoch {item.epoch}: {item.sent} events were sent, {came} came, {dropped} were dropped",
                "start again: the last checkpoint is good. If it happens again, it is a fault in Streamwork: report it",
            )
        arrived = self._arrived.setdefault(item.epoch, {})
        arrived[channel.name] = item
        if len(self._arrived) > 1 and self._align:
            raise JobFailed(
                "SW-ENGINE-ALIGNMENT",
                f"inputs brought checkpoint events of different epochs: {sorted(self._arrived)}",
                "start again: the last checkpoint is good. If it happens again, it is a fault in Streamwork: report it",
            )
        if len(arrived) < len(self.inputs):
            return None
        del self._arrived[item.epoch]
        events = arrived.values()
        attempts = tuple(sorted(event.attempt for event in events))
        return Aligned(item.epoch, attempts, tuple(one for event in events for one in event.dropped))
