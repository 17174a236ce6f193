"""Traces of epochs by OpenTelemetry (extra `otel`): one span for each epoch, with a child for each phase.

    epoch 42    from its plan until it is finished, abandoned, failed or interrupted
      plan, compute, prepare, commit, complete, prune

Each epoch is a trace of its own, linked to the epoch that its plan names as its parent. Spans are made when an epoch is over, from
the same timings that the history records; epochs in which nothing happened have none. Tracing is off unless an endpoint is given,
by ``--trace`` or by `OTEL_EXPORTER_OTLP_ENDPOINT`; then the other `OTEL_*` variables apply, too. Before that, nothing of
OpenTelemetry is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from streamwork.epoch.epoch import Epoch, State
from streamwork.epoch.footing import Footing
from streamwork.epoch.participant import Participant
from streamwork.errors import WrongUse
from streamwork.world import Clock

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import SpanContext

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PATH = "/v1/traces"
FLUSH_MS = 5_000
"""Longest wait, at the end of a run, for spans that were not sent yet."""
NANOSECONDS = 1_000_000_000
MOST_LINKED = 10
"""Epochs whose spans may still be linked to."""


class EpochTracer(Participant):
    """Makes the spans of one driver's epochs."""

    def __init__(self, provider: TracerProvider, clock: Clock, attributes: Mapping[str, str]) -> None:
        """`attributes` are set on every span of an epoch."""
        self._tracer = provider.get_tracer("streamwork")
        self._clock = clock
        self._attributes = attributes
        self._open: dict[int, Epoch] = {}
        self._contexts: dict[int, SpanContext] = {}

    def resume(self, footing: Footing) -> Sequence[str]:
        """A checkpoint that this start has completed belongs to a driver that is gone: its phases are not known."""
        if footing.rolled_forward:
            base, now = footing.base, self._now()
            self._span(base.epoch, base.parent, now, now, "rolled-forward", base.fence, base.events, {})
        return ()

    def planned(self, epoch: Epoch) -> None:
        self._open[epoch.number] = epoch

    def finished(self, epoch: Epoch) -> None:
        self._end(epoch, "completed")

    def idle(self, epoch: Epoch) -> None:
        self._open.pop(epoch.number, None)

    def abandoned(self, epoch: Epoch) -> None:
        self._end(epoch, epoch.state.value, "the epoch was abandoned; its input is computed again")

    def failed(self, epoch: Epoch) -> None:
        self._end(epoch, "failed", epoch.failure)

    def close(self, unprepared: Sequence[Epoch]) -> None:
        """What is open now was interrupted: the next start abandons it or completes it."""
        for epoch in list(self._open.values()):
            self._end(epoch, "interrupted", f"the driver ended while the epoch was {epoch.state.value}")

    def _end(self, epoch: Epoch, outcome: str, error: str = "") -> None:
        if self._open.pop(epoch.number, None) is None:
            return
        began = round(epoch.timings.started * NANOSECONDS)
        made = epoch.state in (State.PREPARED, State.COMMITTED, State.COMPLETED, State.FINISHED)
        events = epoch.manifest.events if made else 0
        seconds = epoch.timings.seconds
        ended = began + round(sum(seconds.values()) * NANOSECONDS) if not error else max(began, self._now())
        plan = epoch.plan
        self._span(plan.epoch, plan.parent, began, ended, outcome, plan.fence, events, seconds, error)

    def _span(
        self,
        number: int,
        parent: int,
        began: int,
        ended: int,
        outcome: str,
        fence: int,
        events: int,
        seconds: Mapping[str, float],
        error: str = "",
    ) -> None:
        from opentelemetry.context import Context
        from opentelemetry.trace import Link, Status, StatusCode, set_span_in_context

        own: dict[str, str | int] = {
            "epoch": number,
            "parent": parent,
            "fence": fence,
            "outcome": outcome,
            "events": events,
        }
        attributes: dict[str, str | int] = {
            **self._attributes,
            **{f"streamwork.{name}": value for name, value in own.items()},
        }
        known = self._contexts.get(parent)
        links = [] if known is None else [Link(known, {"streamwork.link": "parent epoch"})]
        span = self._tracer.start_span(
            f"epoch {number}", Context(), attributes=attributes, links=links, start_time=began
        )
        inside, at = set_span_in_context(span, Context()), began
        for phase, took in seconds.items():
            child = self._tracer.start_span(phase, inside, start_time=at)
            at += round(took * NANOSECONDS)
            child.end(at)
        if error:
            span.set_status(Status(StatusCode.ERROR, error))
            span.add_event("exception", {"exception.type": outcome, "exception.message": error}, timestamp=ended)
        span.end(max(at, ended))
        self._contexts[number] = span.get_span_context()
        for old in sorted(self._contexts)[:-MOST_LINKED]:
            del self._contexts[old]

    def _now(self) -> int:
        return round(self._clock.now() * NANOSECONDS)


def endpoint_of(given: str | None) -> str | None:
    """The URL that traces are sent to; the path is that of OTLP over HTTP, unless there is one."""
    if given is None:
        return None
    parts = urlsplit(given)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise WrongUse(
            "SW-USAGE",
            f"--trace {given!r} is not a URL",
            "give the address of a collector, such as http://127.0.0.1:4318",
        )
    return given if parts.path.strip("/") else given.rstrip("/") + PATH


def provider_of(
    endpoint: str | None, environment: Mapping[str, str], note: Callable[[str], None]
) -> TracerProvider | None:
    """Sends spans in the background to `endpoint`, or to the one in the environment; None without one."""
    if endpoint is None and not any(environment.get(name) for name in ENDPOINTS):
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        what, action = "traces need the OpenTelemetry SDK", 'pip install "streamwork[otel]"'
        if endpoint is None:  # the variables may be there for other programs
            note(f"no traces: {what}: {action}")
            return None
        raise WrongUse("SW-JOB-EXTRA", what, action) from None
    name = {} if environment.get("OTEL_SERVICE_NAME") else {"service.name": "streamwork"}
    provider = TracerProvider(resource=Resource.create(name), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    return provider


def end(provider: TracerProvider) -> None:
    """Send what was not sent yet."""
    provider.force_flush(FLUSH_MS)
    provider.shutdown()
