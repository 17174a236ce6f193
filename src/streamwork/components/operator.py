"""Operators: what people write."""

from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeVar

from streamwork.components.collector import EventCollector
from streamwork.components.generics import type_arguments
from streamwork.components.schema import fields_of
from streamwork.components.values import Event, Record
from streamwork.errors import WrongUse

E = TypeVar("E", bound=Event)
R = TypeVar("R", bound=Record)
O = TypeVar("O", bound=Event)  # noqa: E741 (E in, R kept, O out, as the documentation has it)


class AnyOperator:
    """What all operators share."""

    deterministic: ClassVar[bool] = True
    """False if the same events may give other results when applied again (random numbers, the time, a look-up
    elsewhere).
    """

    def setup_instance(self, instance: int) -> None:
        """Called before the first event, perhaps many times and on several objects in one life of a job. May open
        connections.
        """

    def close(self) -> None:
        """Called when the instance goes away, except on a crash."""


class Operator(AnyOperator, Generic[E, O]):
    """Takes an event, emits any number of events, keeps nothing."""

    def apply(self, event: E, collector: EventCollector) -> None:
        raise NotImplementedError

    @classmethod
    def types(cls) -> tuple[type[Event], type[Event]]:
        """(what goes in, what comes out)"""
        took, gave = type_arguments(cls, Operator)
        return took, gave


class KeyedOperator(AnyOperator, Generic[E, R, O]):
    """Takes an event and the record of its key, changes the record, emits any number of events.

    The record of a key that was never seen is ``R()``. Per key and source partition, events come in offset order.
    """

    def apply(self, event: E, state: R, collector: EventCollector) -> None:
        raise NotImplementedError

    @classmethod
    def types(cls) -> tuple[type[Event], type[Record], type[Event]]:
        """(what goes in, what is kept, what comes out)"""
        took, kept, gave = type_arguments(cls, KeyedOperator)
        return took, check_record(kept), gave


def check_record(kind: type[Any]) -> type[Record]:
    if not issubclass(kind, Record):
        raise WrongUse(
            "SW-TYPE-RECORD",
            f"{kind.__name__} is kept as state but is no Record",
            f"write class {kind.__name__}(Record)",
        )
    fields_of(kind)
    try:
        kind()
    except TypeError:
        raise WrongUse(
            "SW-TYPE-RECORD",
            f"{kind.__name__} has fields without a default",
            "give every field a default: a record starts empty",
        ) from None
    return kind
