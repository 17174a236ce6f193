"""Operators: the base classes that jobs derive their own from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    """The base class of all operators."""

    deterministic: bool = True
    """False if the same events may give other results when applied again (random numbers, the machine's clock, a remote
    look-up).
    """

    channels: dict[str, type[Event]] = {}
    """Names and types of the channels besides the main one: ``channels = {"late": Late}``."""

    manual_ack: ClassVar[bool] = False
    """True if returning from `apply` does not acknowledge the event: then the operator calls ``collector.ack()``, in that call or
    in
    a later one with the event's id. Only used with acknowledging."""

    keeps_key: bool = False
    """True if each event that it emits has, in the fields by which its input is partitioned, the values of the event that it was
    given, or of the timer's key. These fields are those of its own key, or of an earlier one. Then a keyed operator behind it, with
    the same key and parallelism, needs no exchange. A false claim fails the job when a key arrives in an instance that does not
    hold it (SW-KEY-MOVED)."""

    names_rows: ClassVar[bool] = False
    """For `apply_batch`: True if each ``emit_batch(batch, rows=...)`` names the rows of its batch that the emitted events come
    from, in ascending order. Then these keep their order and their watermarks where steps behind need them; else it is given
    rows one by one there."""

    reads_watermark: ClassVar[bool | None] = None
    """True if it reads ``collector.watermark``: then events reach it one at a time. None: its methods show it."""

    long_lived: ClassVar[bool] = False
    """True if an object keeps what the next epoch needs, outside of the engine's state. Such an operator runs in local and live
    mode only: in the other modes an epoch may get new objects."""

    def close(self) -> None:
        """Called when the instance ends, except after a crash."""


class Operator(AnyOperator, Generic[E, O]):
    """Takes an event, emits any number of events, has no state.

    `setup_instance` is called before the first event, perhaps many times and on several objects during one run. It gets the number
    of the instance; `instance.count` is how many there are: as many as its input has, unless the job sets a grouping or a
    parallelism.
    A subclass may define ``apply_batch(self, batch, collector)`` instead of `apply`, to work on whole columns: it gets a
    pyarrow.RecordBatch, and emits record batches of its output type with ``collector.emit_batch(batch)``.
    """

    pure: ClassVar[bool] = False
    """For `apply_batch`: True if a failed call has no effect. Then a batch that fails is divided until the failing rows are known,
    and `on_error` applies to these. Else it runs under ``on_error="fail"`` only."""

    def setup_instance(self, instance: Instance) -> None: ...

    def apply(self, event: E, collector: EventCollector) -> None:
        raise NotImplementedError

    def types(self) -> tuple[type[Event], type[Event]]:
        """(type taken, type emitted)"""
        took, gave = type_arguments(type(self), Operator)
        return took, gave


class StatefulOperator(AnyOperator, Generic[E, R, O]):
    """Keeps one record per instance. `get_state` returns it for each checkpoint, and `setup_instance` gets it back.

    `state` is None on the very first start. Attributes that are not in the record are temporary. There are as many instances, each
    with a record of its own, as its input has, unless the job sets a grouping or a parallelism.
    """

    def setup_instance(self, instance: Instance, state: R | None) -> None:
        raise NotImplementedError

    def apply(self, event: E, collector: EventCollector) -> None:
        raise NotImplementedError

    def get_state(self) -> R:
        raise NotImplementedError

    def rescale(self, states: list[R], count: int) -> Sequence[R | None]:
        """Divide the records of all instances among `count` instances, which there are from now on: a list of `count` records, None
        for an instance that begins without one. Without it, the number of instances cannot be changed.
        """
        raise NotImplementedError

    def types(self) -> tuple[type[Event], type[Record], type[Event]]:
        """(type taken, type kept, type emitted)"""
        took, kept, gave = type_arguments(type(self), StatefulOperator)
        return took, check_record(kept), gave


class KeyedOperator(AnyOperator, Generic[E, R, O]):
    """Takes an event and the record of its key, changes the record, emits any number of events.

    The record of a new key is ``R()``.

    Order: the events of one key that come from one source partition are applied in the order of their offsets, as long as each
    exchange before has routed them by fields that are part of this key (and that no step has changed since). Behind another
    key, `shuffle()` or `all_instances()`, they are applied in the order in which each sending instance has sent them.
    Nothing is promised across partitions, and nothing is sorted.

    A subclass may define ``apply_batch(self, batch, state, collector)``, to work on whole columns; then it is used, and `apply`
    is not. `state` is a `KeyedColumns`, `collector` a `BatchCollector`::

        def apply_batch(self, batch, state, collector):
            state["total"] += np.bincount(state.codes, batch["amount"], len(state))
            collector.emit_batch(pa.record_batch({"card": state.keys["card"], "total": state["total"]}))

    The number of rows of a batch is not fixed: results must not depend on where the input is cut. It needs on_error="fail",
    sets no timers, and keeps records of plain values (`components.keyed_columns` lists them).
    """

    def setup_instance(self, instance: Instance) -> None: ...

    def apply(self, event: E, state: R, collector: KeyedCollector) -> None:
        raise NotImplementedError

    def on_timer(self, key: Any, at: datetime, state: R, collector: KeyedCollector) -> None:
        """Called when a timer of this key is due."""
        raise NotImplementedError

    def types(self) -> tuple[type[Event], type[Record], type[Event]]:
        """(type taken, type kept, type emitted)"""
        took, kept, gave = type_arguments(type(self), KeyedOperator)
        return took, check_record(kept), gave

    @property
    def uses_timers(self) -> bool:
        return type(self).on_timer is not KeyedOperator.on_timer


def rescale_of(component: Any) -> Callable[[list[Any], int], Sequence[Any]] | None:
    """The `rescale` of a component that keeps a record per instance; None if it defines none."""
    method = getattr(component, "rescale", None)
    mine = getattr(method, "__func__", method)
    return None if mine is None or mine.__module__.startswith("streamwork.components.") else method


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


def isolates_failures(operator: Any) -> bool:
    """False if a failure does not identify the failing event: then ``on_error="fail"`` alone is possible."""
    if hasattr(operator, "apply_batch"):  # state that it has changed cannot be restored
        return isinstance(operator, Operator) and operator.pure
    return bool(operator.pure) if hasattr(operator, "apply_rows") else True


def check_batches(operator: AnyOperator, on_error: str | None, retries: bool = False) -> None:
    """Refuse whole columns where they cannot provide the job's `on_error`. If it `retries`, the whole batch is retried before
    `on_error` applies.
    """
    name, why, action = type(operator).__name__, "", ""
    method = "apply_batch" if hasattr(operator, "apply_batch") else "apply_rows"
    if not hasattr(operator, method):
        return
    keeps_nothing = isinstance(operator, Operator)
    if not isolates_failures(operator) and on_error not in (None, "fail"):
        why = f"has on_error={on_error!r}, but a failing batch does not identify the failing event"
        action = 'use on_error="fail"; or declare pure = True, if a failed call has changed nothing; or use an operator with apply'
    elif not isolates_failures(operator) and retries and not keeps_nothing:
        why = "has on_error=Retry(...), but state that a failing batch has changed cannot be restored"
        action = 'use on_error="fail", or use an operator with apply'
    elif operator.manual_ack and method == "apply_rows":
        why = "has manual_ack = True, but acknowledges no single event"
        action = "leave manual_ack out: an event is acknowledged when it was applied"
    elif isinstance(operator, KeyedOperator):
        kept = operator.types()[1]
        if operator.uses_timers:
            why, action = (
                "has on_timer, which is called between two events",
                "define apply instead, or leave on_timer out",
            )
        elif fields := without_column(kept):
            why = f"keeps {kept.__name__}, of which {', '.join(fields)} cannot be a numpy column"
            action = "keep numbers, bools, text, bytes, dates or decimals, or define apply instead"
    if why:
        raise WrongUse("SW-OPERATOR-BATCH", f"{name} defines {method} and {why}", action)


def check_record(kind: type[Any]) -> type[Record]:
    if not issubclass(kind, Record):
        raise WrongUse(
            "SW-TYPE-RECORD",
            f"{kind.__name__} is kept as state but is not a Record",
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
