"""The checks of an operator that is added to a job."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from streamwork.components import (
    AnyOperator,
    Event,
    KeyedOperator,
    Operator,
    Record,
    StatefulOperator,
    TableOperator,
    TimerClock,
)
from streamwork.components.duration import duration_in_microseconds
from streamwork.components.operator import check_batches
from streamwork.errors import WrongUse
from streamwork.job.graph import check_types
from streamwork.job.node import Port

_METHODS = ("apply", "apply_batch", "on_timer", "apply_rows", "on_time", "on_checkpoint")


def checked(
    operator: AnyOperator, id: str | None, keyed: bool, grouped: bool, then: str | None, retries: bool
) -> tuple[type[Event], type[Record] | None, type[Event]]:
    """(type taken, type kept, type emitted) of an operator. Refuses one that cannot be applied like this."""
    name = type(operator).__name__
    keeps: type[Record] | None = None
    if isinstance(operator, KeyedOperator | StatefulOperator | TableOperator):
        takes, keeps, gives = operator.types()
    elif isinstance(operator, Operator):
        takes, gives = operator.types()
    else:
        raise not_a("operator", operator, "an Operator, a StatefulOperator, a KeyedOperator or a TableOperator")
    if keeps is not None and id is None:
        raise WrongUse("SW-JOB-ID", f"{name} keeps state but has no id", "add id=...: state belongs to the id")
    check_batches(operator, then, retries)
    for method in (getattr(operator, one, None) for one in _METHODS):
        if inspect.isgeneratorfunction(method) or inspect.iscoroutinefunction(method):
            raise WrongUse(
                "SW-OPERATOR-YIELD",
                f"{name}.{method.__name__} yields or is async, so calling it does nothing",
                "send events with collector.emit(event)",
            )
    _check_key(operator, id or name, keeps is not None, keyed, grouped)
    return takes, keeps, gives


def _check_key(operator: AnyOperator, id: str, keeps: bool, keyed: bool, grouped: bool) -> None:
    by_key = isinstance(operator, KeyedOperator) or (isinstance(operator, TableOperator) and keeps)
    name = type(operator).__name__
    if by_key and not keyed:
        raise WrongUse(
            "SW-JOB-KEY", f"{id} keeps state by key but has no key", "add key=...: the field to keep state by"
        )
    if keyed and grouped:
        raise WrongUse("SW-JOB-KEY", f"{id} has both key= and grouping=", "leave grouping= out: the key decides")
    if keyed and not by_key and not isinstance(operator, TableOperator):
        raise WrongUse(
            "SW-JOB-KEY",
            f"{name} has no state per key, so key= has no meaning",
            "leave key= out, or make it a KeyedOperator",
        )


def check_ttl(operator: AnyOperator, id: str, ttl: str | float | None, clock: str) -> tuple[int | None, TimerClock]:
    """(microseconds, clock) after which a key that is not touched is forgotten."""
    if clock not in ("event", "processing"):
        raise WrongUse("SW-JOB-SETTING", f"{id}: ttl_clock={clock!r}", "use event or processing")
    if ttl is None:
        return None, TimerClock(clock)
    if not isinstance(operator, KeyedOperator) or hasattr(operator, "apply_batch"):
        raise WrongUse(
            "SW-JOB-SETTING",
            f"{id} has ttl=, but does not keep records by key, event by event",
            "use a KeyedOperator with apply, or leave ttl= out; an operator on columns forgets rows itself",
        )
    found = duration_in_microseconds(ttl)
    if found < 1:
        raise WrongUse("SW-JOB-SETTING", f"{id}: ttl={ttl!r}", "use a duration above zero")
    return found, TimerClock(clock)


def check_ports(operator: AnyOperator, id: str, ports: Sequence[Port]) -> None:
    """Refuse streams at ports that the operator does not have, or of other types."""
    known = operator.ports if isinstance(operator, TableOperator) else {}
    given = {port.name: port for port in ports[1:]}
    if wrong := sorted(given.keys() ^ known.keys()):
        raise WrongUse(
            "SW-JOB-PORT",
            f"{id}: {type(operator).__name__} has {_named(known)}, but others= gives {_named(given)}",
            f"give one stream and its key for each: others={{{wrong[0]!r}: (stream, key)}}"
            if wrong[0] in known
            else "leave the others out, or declare them in `ports`",
        )
    for name, kind in known.items():
        check_types(f"port {name!r} of {id}", kind, given[name].takes, str(given[name].inputs[0]))


def _named(ports: object) -> str:
    names = ", ".join(map(repr, ports))  # type: ignore[call-overload]
    return f"the ports {names}" if names else "no ports besides the main one"


def not_a(what: str, thing: object, expected: str) -> WrongUse:
    shown = f"the class {thing.__name__}" if isinstance(thing, type) else f"a {type(thing).__name__}"
    hint = f"; write {thing.__name__}(...)" if isinstance(thing, type) else ""
    return WrongUse("SW-JOB-COMPONENT", f"{shown} is not a {what}", f"give {expected}{hint}")
