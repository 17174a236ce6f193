"""Traces of epochs: their spans are those that the history records; a crash is seen; a collector gets them by OTLP."""

from __future__ import annotations

import contextlib
import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from letter_jobs import squeamish_job
from streamwork import JobFailed, WrongUse
from streamwork.epoch.history.reading import rows
from streamwork.job import Job
from streamwork.run.options import RunOptions
from streamwork.run.runner import run
from streamwork.run.tracing import endpoint_of, provider_of


def traced(job: Job, folder: Path, watcher: Any = None) -> dict[str, list[ReadableSpan]]:
    """The spans of a run by name, also if it fails."""
    spans = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    with contextlib.suppress(JobFailed, Crash):
        run(job, RunOptions.parse(root=folder / "root", mode="local", restart=False), watcher, provider=provider)
    found: dict[str, list[ReadableSpan]] = {}
    for span in spans.get_finished_spans():
        found.setdefault(span.name, []).append(span)
    return found


class Crash(BaseException):
    """The driver dies here."""


class CrashesAt:
    def __init__(self, phase: str, epoch: int) -> None:
        self.phase, self.epoch = phase, epoch

    def on_phase(self, phase: Any, epoch: int, manifest: Any) -> None:
        if (phase.value, epoch) == (self.phase, self.epoch):
            raise Crash

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def outcome(span: ReadableSpan) -> Any:
    return (span.attributes or {})["streamwork.outcome"]


def test_each_epoch_is_a_span_with_its_phases_and_a_link_to_its_parent(tmp_path: Path) -> None:
    found = traced(squeamish_job(tmp_path), tmp_path)
    known = {row.epoch: row for row in rows(tmp_path / "root" / "squeamish" / "history.sqlite", 10)}
    assert set(known) == {1, 2, 3}
    for number, row in known.items():
        (span,) = found[f"epoch {number}"]
        assert span.context is not None and span.start_time is not None and span.end_time is not None
        assert dict(span.attributes or {}) == {
            "streamwork.job": "squeamish",
            "streamwork.mode": "local",
            "streamwork.semantics": "exactly-once",
            "streamwork.epoch": number,
            "streamwork.parent": number - 1,
            "streamwork.fence": 1,
            "streamwork.outcome": "completed",
            "streamwork.events": 10,
        }
        children = [
            one
            for spans in found.values()
            for one in spans
            if one.parent is not None and one.parent.span_id == span.context.span_id
        ]
        seconds = {one.name: ((one.end_time or 0) - (one.start_time or 0)) / 1e9 for one in children}
        recorded = {name: getattr(row.seconds, name) for name in row.seconds.__struct_fields__}
        assert seconds == {name: pytest.approx(took, abs=1e-6) for name, took in recorded.items() if took is not None}
        assert all(span.start_time <= (one.start_time or 0) <= (one.end_time or 0) <= span.end_time for one in children)
        if number > 1:
            parent = found[f"epoch {number - 1}"][0].context
            assert parent is not None
            assert [link.context.span_id for link in span.links] == [parent.span_id]
            assert parent.trace_id != span.context.trace_id


def test_a_crash_between_prepare_and_commit(tmp_path: Path) -> None:
    """The epoch is interrupted; the next start completes it, and goes on from it."""
    first = traced(squeamish_job(tmp_path), tmp_path, CrashesAt("prepare", 2))
    (span,) = first["epoch 2"]
    assert outcome(span) == "interrupted" and not span.status.is_ok
    assert span.events[0].attributes == {
        "exception.type": "interrupted",
        "exception.message": "the driver ended while the epoch was prepared",
    }
    assert "commit" not in {one.name for spans in first.values() for one in spans if one.parent == span.context}
    second = traced(squeamish_job(tmp_path), tmp_path)
    assert outcome(second["epoch 2"][0]) == "rolled-forward"
    assert outcome(second["epoch 3"][0]) == "completed"
    again, rolled = second["epoch 3"][0], second["epoch 2"][0].context
    assert rolled is not None and [link.context.span_id for link in again.links] == [rolled.span_id]


def test_a_failed_epoch_has_the_error(tmp_path: Path) -> None:
    found = traced(squeamish_job(tmp_path, on_error="fail"), tmp_path)
    (span,) = found["epoch 1"]
    assert outcome(span) == "failed" and span.status.description == "SW-OPERATOR-FAILED"


def test_without_an_endpoint_nothing_is_imported(tmp_path: Path) -> None:
    code = (
        "import sys; sys.path[:0] = sys.argv[2:]\n"
        "from pathlib import Path; from letter_jobs import squeamish_job\n"
        "squeamish_job(Path(sys.argv[1])).run(root=sys.argv[1] + '/root')\n"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))\n"
    )
    place = str(Path(__file__).parents[1])
    subprocess.run([sys.executable, "-c", code, str(tmp_path), place], check=True, capture_output=True, env={})


def test_control_with_an_endpoint_there_is_a_provider() -> None:
    assert provider_of(None, {}, print) is None
    provider = provider_of(None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, print)
    assert provider is not None
    provider.shutdown()


def test_addresses_of_collectors() -> None:
    assert endpoint_of(None) is None
    assert (
        endpoint_of("http://127.0.0.1:4318")
        == endpoint_of("http://127.0.0.1:4318/")
        == "http://127.0.0.1:4318/v1/traces"
    )
    assert endpoint_of("https://collector.example/mine") == "https://collector.example/mine"
    for wrong in ("127.0.0.1:4318", "ftp://x", "http://", ""):
        with pytest.raises(WrongUse, match="is not a URL"):
            endpoint_of(wrong)


@pytest.mark.parametrize("endpoint", [None, "http://127.0.0.1:1/v1/traces"])
def test_without_the_extra(monkeypatch: pytest.MonkeyPatch, endpoint: str | None) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    notes: list[str] = []
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    if endpoint is None:
        assert provider_of(None, environment, notes.append) is None
        assert "streamwork[otel]" in notes[0], "the variable may be there for other programs"
    else:
        with pytest.raises(WrongUse, match="SW-JOB-EXTRA"):
            provider_of(endpoint, {}, notes.append)


# ---- over HTTP ------------------------------------------------------------------------------------------------------


class Collector(http.server.BaseHTTPRequestHandler):
    """Takes OTLP over HTTP, as its specification says: POST of a protobuf message to /v1/traces."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path != "/v1/traces" or self.headers["Content-Type"] != "application/x-protobuf":
            self.send_error(400)
            return
        self.server.requests.append(ExportTraceServiceRequest.FromString(body))  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


@pytest.fixture
def collector() -> Iterator[http.server.ThreadingHTTPServer]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        server.requests = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_collector_gets_every_epoch(tmp_path: Path, collector: http.server.ThreadingHTTPServer) -> None:
    options = RunOptions.parse(root=tmp_path / "root", mode="local")
    run(squeamish_job(tmp_path), options, trace=f"http://127.0.0.1:{collector.server_port}")
    spans = [
        (resource, span)
        for request in collector.requests  # type: ignore[attr-defined]
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    assert sorted(span.name for _, span in spans if span.name.startswith("epoch")) == ["epoch 1", "epoch 2", "epoch 3"]
    names = {one.key: one.value.string_value for one in spans[0][0].resource.attributes}
    assert names["service.name"] == "streamwork"
