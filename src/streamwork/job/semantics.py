"""Semantics: what a failure may cost, and what sources and sinks must provide.

semantics       tracking      after a failure                                   sources              sinks
at-most-once    -             a failed event is dropped; nothing is replayed    any                  any, written at once
at-least-once   checkpoint    replay from the last checkpoint                   that can replay      any, written at once
at-least-once   acknowledge   that event is replayed, then it is a dead letter  any but those in     any, written at once
                                                                                Spark
exactly-once    -             roll forward, or replay                           that can replay      that keep a ledger
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Literal

import msgspec

from streamwork.components import OffsetSource, Sink
from streamwork.errors import WrongUse

SemanticsName = Literal["exactly-once", "at-least-once", "at-most-once"]
TrackingName = Literal["checkpoint", "acknowledge"]
IsolationName = Literal["read-committed", "read-uncommitted"]


class Semantics(Enum):
    AT_MOST_ONCE = "at-most-once"
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


class Tracking(Enum):
    """How at-least-once knows that an event has been processed."""

    CHECKPOINT = "checkpoint"
    ACKNOWLEDGE = "acknowledge"


class Isolation(Enum):
    """Whether readers can see rows that are not committed yet, apart from the others."""

    READ_COMMITTED = "read-committed"
    READ_UNCOMMITTED = "read-uncommitted"


class Promise(msgspec.Struct, frozen=True):
    """The semantics of a job."""

    semantics: Semantics = Semantics.EXACTLY_ONCE
    tracking: Tracking | None = None

    def __post_init__(self) -> None:
        if self.tracking is not None and self.semantics is not Semantics.AT_LEAST_ONCE:
            raise WrongUse(
                "SW-JOB-SEMANTICS",
                f"tracking={self.tracking.value!r} has no meaning with {self.semantics.value}",
                "leave it out, or choose semantics='at-least-once'",
            )

    @classmethod
    def of(cls, semantics: str, tracking: str | None) -> Promise:
        chosen: Semantics = _known(Semantics, semantics)
        if tracking is None:
            return cls(chosen, Tracking.CHECKPOINT if chosen is Semantics.AT_LEAST_ONCE else None)
        return cls(chosen, _known(Tracking, tracking))

    def __str__(self) -> str:
        return self.semantics.value + (", acknowledging" if self.acknowledges else "")

    @property
    def options(self) -> str:
        """The options of the command line that select these semantics."""
        tracking = f" --tracking {self.tracking.value}" if self.acknowledges and self.tracking is not None else ""
        return f"--semantics {self.semantics.value}{tracking}"

    @property
    def exactly_once(self) -> bool:
        return self.semantics is Semantics.EXACTLY_ONCE

    @property
    def at_most_once(self) -> bool:
        return self.semantics is Semantics.AT_MOST_ONCE

    @property
    def acknowledges(self) -> bool:
        return self.tracking is Tracking.ACKNOWLEDGE

    @property
    def on_error(self) -> str:
        """The default of `on_error`."""
        if self.at_most_once:
            return "drop"
        return "dead-letter" if self.acknowledges else "fail"


EXACTLY_ONCE = Promise()


def _known(kind: type[Any], value: str) -> Any:
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(repr(one.value) for one in kind)
        raise WrongUse("SW-JOB-SEMANTICS", f"{value!r} is not known", f"use one of: {known}") from None


def known_isolation(isolation: str) -> Isolation:
    found: Isolation = _known(Isolation, isolation)
    return found


def check_source(promise: Promise, source_id: str, source: Any) -> None:
    """Refuse a source that cannot provide the semantics."""
    if isinstance(source, OffsetSource):
        if promise.acknowledges and source.native() is not None:
            raise _cannot(
                promise,
                f"source {source_id!r} is read by Spark, so a single event cannot be read again",
                "use tracking='checkpoint', or a source that Streamwork reads",
            )
        return
    if not source.replayable and not promise.at_most_once and not promise.acknowledges:
        raise _cannot(
            promise,
            f"source {source_id!r} cannot give the same events again",
            "make it a StatefulSource whose state alone decides what comes next, and declare replayable = True; or choose "
            "semantics='at-most-once', or 'at-least-once' with tracking='acknowledge'",
        )


def check_sink(promise: Promise, sink_id: str, sink: Any, isolation: Isolation) -> None:
    """Refuse a sink that cannot provide the semantics."""
    if not isinstance(sink, Sink):
        return
    if promise.exactly_once and not sink.kind.keeps_ledger:
        raise _cannot(
            promise,
            f"sink {sink_id!r} ({type(sink).__name__}) keeps no ledger, so it does not know which rows it has written",
            "write to a sink that is transactional or idempotent, or choose semantics='at-least-once'",
        )
    if isolation is Isolation.READ_UNCOMMITTED:
        if not promise.exactly_once:
            raise _cannot(
                promise,
                f"sink {sink_id!r} has isolation='read-uncommitted', but everything is written at once anyway",
                "leave isolation= out, or choose semantics='exactly-once'",
            )
        if not sink.previews:
            raise _cannot(
                promise,
                f"sink {sink_id!r} ({type(sink).__name__}) has isolation='read-uncommitted', but it cannot show previews",
                "leave isolation= out, or write to SqliteSink or PostgresSink",
            )


def check_operator(promise: Promise, operator_id: str, operator: Any, isolated: bool = False) -> None:
    """Refuse an operator that cannot provide the semantics."""
    if isolated and not promise.at_most_once:
        raise _cannot(
            promise,
            f"{operator_id} is isolated (isolated= or deadline=): its results are dropped when it dies or lags",
            "leave isolated= and deadline= out, or use semantics='at-most-once'",
        )
    if promise.acknowledges and hasattr(operator, "apply_batch"):
        raise _cannot(
            promise,
            f"{operator_id} defines apply_batch, which does not show which event became which",
            "define apply instead, or use tracking='checkpoint'",
        )


def _cannot(promise: Promise, why: str, ways_out: str) -> WrongUse:
    return WrongUse("SW-JOB-SEMANTICS", f"{promise} cannot hold: {why}", ways_out)
