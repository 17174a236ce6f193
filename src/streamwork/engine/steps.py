"""The steps of a chain: each takes a list of events and gives the list that goes on.

A step works through a whole list before the next step sees any of it. Along a line this is the same as going event by
event, since each step meets the same events in the same order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from streamwork.components import EventCollector
from streamwork.components.schema import show
from streamwork.engine.staging import Staging
from streamwork.errors import JobFailed, StreamworkError
from streamwork.job import Node
from streamwork.state import KeyedState

Events = list[Any]


class Step(ABC):
    """One component at work in one instance."""

    def __init__(self, node: Node, instance: int) -> None:
        self.node = node
        self.instance = instance
        self.processed = 0

    @abstractmethod
    def process(self, events: Events) -> Events: ...

    def counters(self) -> dict[str, int]:
        return {"processed": self.processed}

    def reset(self) -> None:
        self.processed = 0


class OperatorStep(Step):
    def process(self, events: Events) -> Events:
        emitted: Events = []
        collector = EventCollector(emitted.append)
        apply, event = self.node.component.apply, None
        try:
            for event in events:
                apply(event, collector)
        except Exception as error:
            raise applying_failed(self, event, error) from error
        self.processed += len(events)
        return emitted


class KeyedStep(Step):
    state: KeyedState

    def process(self, events: Events) -> Events:
        assert self.node.key is not None and self.node.keeps is not None
        emitted: Events = []
        collector = EventCollector(emitted.append)
        apply, new_record, records = self.node.component.apply, self.node.keeps, self.state.records
        keys, event = self.node.key.values(events), None
        try:
            for event, key in zip(events, keys, strict=True):
                record = records.get(key)
                if record is None:
                    record = records[key] = new_record()
                apply(event, record, collector)
        except Exception as error:
            raise applying_failed(self, event, error) from error
        self.state.changed.update(keys)
        self.processed += len(events)
        return emitted

    def counters(self) -> dict[str, int]:
        return {"processed": self.processed, "keys": len(self.state)}


class StageStep(Step):
    """The last step before a sink: outputs become durable here, and visible when the driver commits them."""

    staging: Staging

    def process(self, events: Events) -> Events:
        self.staging.add(events)
        self.processed += len(events)
        return []


def applying_failed(step: Step, event: Any, error: Exception) -> StreamworkError:
    """The error of an operator that raised. The chain adds the epoch."""
    if isinstance(error, StreamworkError):
        return error
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    code = traceback.tb_frame.f_code if traceback is not None else None
    place = f" ({code.co_filename}:{traceback.tb_lineno} in {code.co_name})" if code and traceback else ""
    who, what = f"{step.node.id} (instance {step.instance})", f"{type(error).__name__}: {error}{place}"
    return JobFailed(
        "SW-OPERATOR-FAILED",
        f"{who} raised {what} while applying {show(event)}",
        "mend the operator or the input and start again: the last checkpoint is good, and the job resumes there",
    )
