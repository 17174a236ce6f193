"""Timers of processing time in live mode fire between checkpoints."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from gangs import gang_host
from sample import Payment, Seen, Sums
from streamwork import CallableSink, Job, KeyedCollector, KeyedOperator, ListSource
from streamwork.engine import Assignment
from streamwork.job import Layout


class Waiting(KeyedOperator[Payment, Sums, Seen]):
    def apply(self, event: Payment, state: Sums, collector: KeyedCollector) -> None:
        collector.set_timer(collector.now, clock="processing")

    def on_timer(self, key: str, at: datetime, state: Sums, collector: KeyedCollector) -> None:
        collector.clear_state()


def test_an_instance_without_events_has_no_timers_yet(tmp_path: Path) -> None:
    """The first tick comes before the first event: the state, with its timers, is restored by then."""
    job = Job("timers", semantics="at-least-once")
    source = job.source(ListSource([], Payment), id="payments")
    source.apply(Waiting(), key="card", id="sums").sink(CallableSink(list[Seen]().append), id="out")
    layout = Layout.of(job.graph(), 256)
    work = Assignment(
        instance=0, uid="u", folder=str(tmp_path), groups=256, epoch=1, fence=1, extents={}, states={}, chain=0
    )
    host = gang_host()
    try:
        host.open(layout.graph)
        host.submit(layout, [work])
        assert {report.component for report in host.collect(1, lambda: False)} == {"payments", "sums", "out"}
    finally:
        host.close()
