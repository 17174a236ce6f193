"""Parameters of a job: values that a job file asks for with `Job.param`, and that ``--param NAME=VALUE`` gives.

A value is given as text and has the type of the default. It is fixed while the job file is imported:

    driver    `load_job` imports the file inside `giving`
    workers   the layout is sent with the values (`pack`); `unpack` gives them before anything of the job is imported

A module that was imported with other values is imported again, so that values of its global variables never mix.
"""

from __future__ import annotations

import contextlib
import math
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, TypeVar

from streamwork.components.duration import LONGEST, Duration, seconds
from streamwork.errors import WrongUse

T = TypeVar("T", int, float, bool, str, Decimal, timedelta, Duration)
Value = bool | int | float | str
"""A value as it is stored: a Decimal as its digits, a duration such as "600s"."""
Values = tuple[tuple[str, Value], ...]
"""Name -> value, in the order in which the job file asks."""

_given: dict[str, str] = {}
_asking: dict[str, dict[str, str]] = {}  # module that has asked for a value -> what was given then


def ask(name: str, default: T, module: str) -> T:
    """The value of a parameter: the one that was given, or the default. `module` is the one that asks."""
    _asking[module] = dict(_given)
    kind = type(default)
    if kind not in _READERS:
        known = ", ".join(one.__name__ for one in _READERS)
        raise WrongUse(
            "SW-JOB-PARAM",
            f"the default of parameter {name!r} is of type {kind.__name__}",
            f"use a default of one of: {known}",
        )
    if _unusable(default):
        raise WrongUse("SW-JOB-PARAM", f"parameter {name!r} has the default {default!r}", "use a finite number")
    return default if name not in _given else read(name, _given[name], kind)


def read(name: str, text: str, kind: type[T]) -> T:
    """The value of this type that the text is; refuses any other text."""
    try:
        found: T = _READERS[kind](text)
        if _unusable(found):
            raise ValueError
    except (ValueError, InvalidOperation, OverflowError, WrongUse):
        raise WrongUse(
            "SW-PARAM-VALUE", f"--param {name}={text}: {text!r} is not {_WORDS[kind]}", f"give {_WORDS[kind]}"
        ) from None
    return found


def check_known(given: Mapping[str, str], job: str, declared: Mapping[str, Any]) -> None:
    """Refuse values for which the job does not ask."""
    unknown = [name for name in given if name not in declared]
    if unknown:
        known = ", ".join(f"{name} ({_WORDS[type(value)]})" for name, value in declared.items())
        raise WrongUse(
            "SW-PARAM-UNKNOWN",
            f"job {job} has no parameter {', '.join(map(repr, unknown))}",
            f"use one of: {known}" if known else 'ask for it in the job file: job.param("NAME", default=...)',
        )


def parse(given: Mapping[str, Any] | Any) -> dict[str, str]:
    """Name -> text, of a mapping or of texts such as "threshold=5"."""
    if isinstance(given, Mapping):
        return {name: value if isinstance(value, str) else text_of(stored(value)) for name, value in given.items()}
    found: dict[str, str] = {}
    for one in given:
        name, equals, text = one.partition("=")
        if not equals or not name:
            raise WrongUse("SW-USAGE", f"--param {one} has no value", "write --param NAME=VALUE")
        if name in found:
            raise WrongUse("SW-USAGE", f"--param {name} is given twice", "give each parameter once")
        found[name] = text
    return found


def stored(value: Any) -> Value:
    """The value as it is stored."""
    if isinstance(value, timedelta):
        micros = Decimal(value // timedelta(microseconds=1))
        return f"{(micros / 1_000_000).normalize():f}s"
    if isinstance(value, bool | int | float):
        return value
    return str(value)


def text_of(value: Value) -> str:
    """A stored value as ``--param`` takes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)


def texts(values: Values) -> dict[str, str]:
    """Name -> text."""
    return {name: text_of(value) for name, value in values}


@contextlib.contextmanager
def giving(given: Mapping[str, str], module: str) -> Iterator[None]:
    """Give these values while `module` is imported."""
    before = dict(_given)
    if _asking.get(module, given) != given:
        _forget()
    _set(given)
    try:
        yield
    finally:
        _set(before)


def pack(values: Values, content: bytes) -> bytes:
    """Pickled content of a job, with the values that its modules are to be imported with."""
    return pickle.dumps((texts(values), content))


def unpack(packed: bytes) -> Any:
    """What `pack` has packed. The values stay given in this process."""
    given, content = pickle.loads(packed)
    if any(before != given for before in _asking.values()):
        _forget()
    _set(given)
    return pickle.loads(content)


def _set(given: Mapping[str, str]) -> None:
    values = dict(given)
    _given.clear()
    _given.update(values)


def _forget() -> None:
    """Let every module that has asked for values be imported again."""
    for module in _asking:
        if module != "__main__":
            sys.modules.pop(module, None)
    _asking.clear()


def _unusable(value: Any) -> bool:
    match value:
        case bool() | str():
            return False
        case int():
            return not -(2**63) <= value < 2**63
        case float():
            return not math.isfinite(value)
        case Decimal():
            return not value.is_finite()
        case timedelta():
            return not timedelta() <= value <= timedelta(microseconds=LONGEST)
    return True


def _bool(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _timedelta(text: str) -> timedelta:
    return timedelta(microseconds=round(Decimal(repr(seconds(text))) * 1_000_000))


_READERS: dict[Any, Callable[[str], Any]] = {
    int: int,
    float: float,
    bool: _bool,
    str: str,
    Decimal: Decimal,
    Duration: Duration,
    timedelta: _timedelta,
}
_WORDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    Decimal: "a decimal number",
    Duration: 'a duration, such as "10min"',
    timedelta: 'a duration, such as "10min"',
}
