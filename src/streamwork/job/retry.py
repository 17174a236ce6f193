"""`on_error=Retry(...)`: the policy that retries a failed event in place. `engine.steps.retrying` applies it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec

from streamwork.components.duration import seconds
from streamwork.components.source import OnError, check_on_error
from streamwork.errors import WrongUse

NAME = "retry"
_USE = 'write "retry", or for example "retry:times=5,within=1min,then=drop"'


class Retry(msgspec.Struct, frozen=True):
    """Retry an event in place, up to `times` times within `within` of its first failure; then apply `then`.

    The pauses grow: `first`, then each time `factor` longer, up to `most`; the last one is shortened so that the last attempt is
    made when `within` ends. `times=None` and `within=None` set no limit. `then` is "fail", "drop" or "dead-letter"; None: the
    default of the job's semantics. Every Exception is retried, except one with the attribute ``retryable = False``.
    """

    times: int | None = None
    within: str | float | None = "10min"
    then: OnError | None = None
    first: str | float = "100ms"
    factor: float = 2.0
    most: str | float = "30s"

    def __post_init__(self) -> None:
        times = self.times
        if times is not None and (not isinstance(times, int) or isinstance(times, bool) or times < 1):
            raise _wrong(f"times={times!r}", "use a whole number from 1 on, or None for no limit")
        if self.within is not None and seconds(self.within) <= 0:
            raise _wrong(f"within={self.within!r}", 'use a duration above zero, such as "1min", or None for no limit')
        if not isinstance(self.factor, int | float) or not 1 <= self.factor < float("inf"):
            raise _wrong(f"factor={self.factor!r}", "use a number from 1 on: the pauses do not get shorter")
        if seconds(self.first) <= 0:
            raise _wrong(f"first={self.first!r}", 'use a duration above zero, such as "100ms"')
        if seconds(self.most) < seconds(self.first):
            raise _wrong(f"most={self.most!r} is shorter than first={self.first!r}", "make it at least as long")
        check_on_error(self.then)

    @property
    def limit(self) -> float | None:
        """`within` in seconds."""
        return None if self.within is None else seconds(self.within)

    def pause(self, failures: int, elapsed: float) -> float | None:
        """Seconds to wait after so many failures, `elapsed` seconds after the first of them; None: give up."""
        left = float("inf") if self.limit is None else self.limit - elapsed
        if left <= 0 or (self.times is not None and failures > self.times):
            return None
        try:
            grown = seconds(self.first) * self.factor ** (failures - 1)
        except OverflowError:
            grown = float("inf")
        return min(grown, seconds(self.most), left)

    def __str__(self) -> str:
        """The text that `--on-error` takes."""
        given = {name: getattr(self, name) for name in self.__struct_fields__}
        for name in ("within", "first", "most"):  # a number of seconds
            if isinstance(given[name], int | float):
                given[name] = f"{Decimal(repr(given[name])):f}s"
        changed = [f"{name}={value}" for name, value in given.items() if value != getattr(_DEFAULT, name)]
        return f"{NAME}:{','.join(changed)}" if changed else NAME

    @classmethod
    def parse(cls, text: str) -> Retry:
        """Parse the text of the command line: ``retry``, ``retry:times=5,within=1min,then=drop``."""
        name, _, rest = text.partition(":")
        given: dict[str, Any] = {}
        for part in rest.split(",") if rest else ():
            field, _, value = part.strip().partition("=")
            if field not in cls.__struct_fields__ or field in given or not value:
                raise WrongUse("SW-JOB-SETTING", f"on_error={text!r}: {part!r} is not understood", _USE)
            given[field] = _value(text, field, value)
        if name != NAME:
            raise WrongUse("SW-JOB-SETTING", f"on_error={text!r} is not known", _USE)
        return cls(**given)


_DEFAULT = Retry()


def policy(on_error: str | Retry | None) -> tuple[OnError | None, Retry | None]:
    """(`on_error` after all retries, the retry policy), checked. None: the default of the semantics; no retries."""
    if isinstance(on_error, str) and on_error.partition(":")[0] == NAME:
        on_error = Retry.parse(on_error)
    if isinstance(on_error, Retry):
        return on_error.then, on_error
    return check_on_error(on_error), None


def policy_of_sink(sink_id: str, on_error: str | Retry | None) -> OnError | None:
    """The `on_error` of a sink, for rows that it rejects for good, checked."""
    if policy(on_error)[1] is not None:
        raise WrongUse(
            "SW-JOB-SETTING",
            f"sink {sink_id!r} has on_error={on_error}, but only operators retry",
            "use on_error= for rows that the sink rejects for good: a target that is not available fails the job, which restarts "
            "(restart=Backoff(...)) and loses nothing; or make the call in an operator with on_error=Retry(...)",
        )
    return check_on_error(on_error)  # type: ignore[arg-type]


def _value(text: str, field: str, value: str) -> Any:
    if value == "None":
        return None
    try:
        return int(value) if field == "times" else float(value) if field == "factor" else value
    except ValueError:
        raise WrongUse("SW-JOB-SETTING", f"on_error={text!r}: {field}={value} is no number", _USE) from None


def _wrong(cause: str, action: str) -> WrongUse:
    return WrongUse("SW-JOB-SETTING", f"on_error=Retry({cause})", action)
