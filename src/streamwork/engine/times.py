"""The times that a component sees through its collector."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from streamwork.components.times import from_microseconds
from streamwork.errors import WrongUse
from streamwork.job import Node


class InstanceTimes(Protocol):
    """The times of the instance."""

    @property
    def now(self) -> datetime: ...

    @property
    def checkpoint(self) -> int: ...


class RowTimes:
    """For a component that reads the watermark: that just before the event being applied."""

    def __init__(self, instance: InstanceTimes) -> None:
        self._instance = instance
        self.at: int | None = None  # in microseconds; set by the walk of the step (`engine.steps.walk`)

    @property
    def now(self) -> datetime:
        return self._instance.now

    @property
    def checkpoint(self) -> int:
        return self._instance.checkpoint

    @property
    def watermark(self) -> datetime | None:
        return None if self.at is None else from_microseconds(self.at)


class BatchTimes:
    """For a component that is given whole batches: the watermark within a batch is not known."""

    def __init__(self, instance: InstanceTimes, node: Node) -> None:
        self._instance = instance
        self._node = node

    @property
    def now(self) -> datetime:
        return self._instance.now

    @property
    def checkpoint(self) -> int:
        return self._instance.checkpoint

    @property
    def watermark(self) -> datetime | None:
        raise WrongUse(
            "SW-OPERATOR-WATERMARK",
            f"{self._node.id} reads collector.watermark, but no method of {self._node.title} shows it, so events come in batches",
            f"declare reads_watermark = True in class {self._node.title}",
        )
