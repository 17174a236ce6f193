"""Operators: the base classes that jobs derive their own from."""

from __future__ import annotations

from datetime import datetime
from inspect import unwrap
from types import CodeType
from typing import Any, ClassVar, Generic, TypeVar

from streamwork.components.collector import EventCollector, KeyedCollector
from streamwork.components.generics import type_arguments
from streamwork.components.instance import Instance
from streamwork.components.keyed_columns import without_column
from streamwork.components.schema import fields_of
from streamwork.components.values import Event, Record
from streamwork.errors import WrongUse

E = TypeVar("E", bound=Event, contravariant=True)  # in: an operator of a type takes events of its subclasses, too
R = TypeVar("R", bound=Record)  # kept
O = TypeVar("O", bound=Event, covariant=True)  # noqa: E741 (out)


class AnyOperator:
    """What all operators share."""

    deterministic: ClassVar[bool] = True
    """False if the same events may give other results when applied again (random numbers, the time, a look-up elsewhere)."""

    channels: ClassVar[dict[str, type[Event]]] = {}
    """Names and types of what is emitted besides the main channel: ``channels = {"late": Late}``."""

    manual_ack: ClassVar[bool] = False
    """True if returning from `apply` does not mean that the event is done: then ``collector.ack()`` does, in that call or in a
    later one with the event's id. Only acknowledging asks for it."""

    keeps_key: bool = False
    """True if each event that it emits has, in the fields by which its input is partitioned, the values of the event that it was
    given, or of the timer's key. These fields are those of its own key, or of an earlier one. Then a keyed operator behind it, with
    the same key and parallelism, needs no exchange. A false claim fails the job when a key arrives in an instance that does not
    hold it (SW-KEY-MOVED)."""

    reads_watermark: ClassVar[bool | None] = None
    """True if it reads ``collector.watermark``: then events reach it one at a time. None: its methods show it."""

    def close(self) -> None:
        """Called when the instance goes away, except on a crash."""


class Operator(AnyOperator, Generic[E, O]):
    """Takes an event, emits any number of events, keeps nothing.

    `setup_instance` is called before the first event, perhaps many times and on several objects in one life of a job. It is told
    the number of the instance, and in `instance.count` how many instances there are: as many as what the operator reads from,
    unless the job gives it a grouping or a parallelism.
    A subclass may define ``apply_batch(self, batch, collector)`` instead of `apply`, to work on whole columns: it is given a
    pyarrow.RecordBatch, and emits record batches of its output type with ``collector.emit_batch(batch)``.
    """

    def setup_instance(self, instance: Instance) -> None: ...

    def apply(self, event: E, collector: EventCollector) -> None:
        raise NotImplementedError

    def types(self) -> tuple[type[Event], type[Event]]:
        """(what goes in, what comes out)"""
        took, gave = type_arguments(type(self), Operator)
        return took, gave


class StatefulOperator(AnyOperator, Generic[E, R, O]):
    """Keeps one record per instance, which it gives with `get_state` and takes back in `setup_instance`.

    `state` is None on the very first start. Attributes that are not in the record are temporary. There are as many instances, each
    with a record of its own, as of what the operator reads from, unless the job gives it a grouping or a parallelism.
    """

    def setup_instance(self, instance: Instance, state: R | None) -> None:
        raise NotImplementedError

    def apply(self, event: E, collector: EventCollector) -> None:
        raise NotImplementedError

    def get_state(self) -> R:
        raise NotImplementedError

    def types(self) -> tuple[type[Event], type[Record], type[Event]]:
        """(what goes in, what is kept, what comes out)"""
        took, kept, gave = type_arguments(type(self), StatefulOperator)
        return took, check_record(kept), gave


class KeyedOperator(AnyOperator, Generic[E, R, O]):
    """Takes an event and the record of its key, changes the record, emits any number of events.

    The record of a key that was never seen is ``R()``.

    Order: the events of one key that come from one source partition are applied in the order of their offsets, as long as each
    exchange before has routed them by fields that are part of this key (and that no step has changed since). Behind another
    key, `shuffle()` or `all_instances()`, they are applied in the order in which each sending instance has sent them.
    Nothing is promised across partitions, and nothing is sorted.

    A subclass may define ``apply_batch(self, batch, state, collector)``, to work on whole columns; then it is used, and `apply`
    is not. `state` is a `KeyedColumns`, `collector` a `BatchCollector`::

        def apply_batch(self, batch, state, collector):
            state["total"] += np.bincount(state.codes, batch["amount"], len(state))
            collector.emit_batch(pa.record_batch({"card": state.keys["card"], "total": state["total"]}))

    How many rows a batch has is nobody's promise: results must not depend on where the input is cut. It needs on_error="fail",
    sets no timers, and keeps records of plain values (`components.keyed_columns` lists them).
    """

    def setup_instance(self, instance: Instance) -> None: ...

    def apply(self, event: E, state: R, collector: KeyedCollector) -> None:
        raise NotImplementedError

    def on_timer(self, key: Any, at: datetime, state: R, collector: KeyedCollector) -> None:
        """A timer of this key has come due."""
        raise NotImplementedError

    def types(self) -> tuple[type[Event], type[Record], type[Event]]:
        """(what goes in, what is kept, what comes out)"""
        took, kept, gave = type_arguments(type(self), KeyedOperator)
        return took, check_record(kept), gave

    @property
    def uses_timers(self) -> bool:
        return type(self).on_timer is not KeyedOperator.on_timer


def reads_watermark(operator: Any) -> bool:
    """True if an operator reads ``collector.watermark``, as declared, or as its methods show."""
    declared: bool | None = getattr(operator, "reads_watermark", None)
    return names_in_methods(type(operator), "watermark") if declared is None else declared


def names_in_methods(kind: type, name: str) -> bool:
    """True if a method that a user's class defines or inherits names this attribute, in a nested function as well."""
    mine = (base for base in kind.__mro__ if not base.__module__.startswith("streamwork.components."))
    functions = (unwrap(value) for base in mine for value in vars(base).values() if callable(value))
    return any(
        _names(code, name) for function in functions if (code := getattr(function, "__code__", None)) is not None
    )


def _names(code: CodeType, name: str) -> bool:
    return name in code.co_names or any(isinstance(c, CodeType) and _names(c, name) for c in code.co_consts)


def check_batches(operator: AnyOperator, on_error: str | None, retries: bool = False) -> None:
    """Refuse `apply_batch` where it cannot keep what the job promises. `on_error` is what becomes of an event in the end; if it
    `retries`, the whole batch is tried again before that.
    """
    if not hasattr(operator, "apply_batch"):
        return
    name, why, action = type(operator).__name__, "", ""
    if on_error not in (None, "fail"):
        why = f"has on_error={on_error!r}, but of a batch that raises nobody can tell which event is to blame"
        action = 'use on_error="fail", or define apply instead'
    elif retries and not isinstance(operator, Operator):
        why = "has on_error=Retry(...), but the state of a batch that raises cannot be taken back"
        action = 'use on_error="fail", or define apply instead'
    elif isinstance(operator, KeyedOperator):
        kept = operator.types()[1]
        if operator.uses_timers:
            why, action = "has on_timer, which comes between two events", "define apply instead, or leave on_timer out"
        elif fields := without_column(kept):
            why = f"keeps {kept.__name__}, of which {', '.join(fields)} can be no numpy column"
            action = "keep numbers, bools, text, bytes, dates or decimals, or define apply instead"
    if why:
        raise WrongUse("SW-OPERATOR-BATCH", f"{name} defines apply_batch and {why}", action)


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
