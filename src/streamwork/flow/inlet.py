"""The receiving end of all channels of one instance from other processes: unpacks their parcels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from streamwork.errors import JobFailed
from streamwork.flow.channel import Channel, CheckpointEvent, Idle, Item
from streamwork.flow.parcel import Kind, Parcel, Wire
from streamwork.flow.wiring import Place, channel_name


class UpstreamFailed(Exception):
    """An instance upstream has failed, and has reported why to the driver."""


class Inlet:
    """Checks that the parcels of every sender are complete, each once, in order, and of one attempt."""

    def __init__(self, wire: Wire, senders: Iterable[Place], to: Place) -> None:
        self.channels = {sender: Channel(channel_name(sender, to)) for sender in senders}
        self._wire = wire
        self._to = to
        self._next = dict.fromkeys(self.channels, 0)
        self._attempts: dict[Place, str] = {}
        self._complete: set[Place] = set()

    def unpack(self, parcel: Parcel) -> Iterator[tuple[Channel, Item]]:
        """The items of a parcel, and the channel that they belong to."""
        head = parcel.head
        if head.kind is Kind.FAILED:
            raise UpstreamFailed
        attempt = self._attempts.setdefault(head.sender, head.attempt)
        if head.attempt != attempt:
            raise self._incomplete(
                f"{self._name(head.sender)} sent parcels of two attempts, {attempt} and {head.attempt}"
            )
        if head.number != self._next[head.sender]:
            raise self._incomplete(
                f"parcel {head.number} of {self._name(head.sender)} came where {self._next[head.sender]} was due"
            )
        self._next[head.sender] += 1
        channel = self.channels[head.sender]
        if head.kind is Kind.CHECKPOINT:
            self._complete.add(head.sender)
            yield channel, CheckpointEvent(head.epoch, head.attempt, head.sent, head.dropped)
            return
        if head.kind is Kind.IDLE:
            yield channel, Idle(head.epoch, head.idle, head.is_resumed)
            return
        for item in self._wire.unpack(head, parcel.content):
            yield channel, item

    def finish(self) -> None:
        """The input is complete: every sender must have sent its checkpoint event."""
        if missing := [self._name(sender) for sender in self.channels if sender not in self._complete]:
            raise self._incomplete(f"no checkpoint event came from {', '.join(missing)}")

    def _name(self, place: Place) -> str:
        return f"chain {place[0] + 1}, instance {place[1]}"

    def _incomplete(self, what: str) -> JobFailed:
        return JobFailed(
            "SW-EXCHANGE-INCOMPLETE",
            f"to {self._name(self._to)}: {what}",
            "start again: the last checkpoint is good. If it happens again, it is a fault in Streamwork: report it",
        )
