"""Metrics of the job as a whole: whether it runs, how, and what is wrong with it."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib.metadata import version

from streamwork.observe.metrics.metric import Point, counter, gauge, known
from streamwork.observe.status import JobStatus
from streamwork.observe.verdicts import Kind


def _verdicts(status: JobStatus) -> Iterator[Point]:
    """A state set: each kind has a value. A kind that holds has one for each component that it is about."""
    found = {(one.kind, one.component) for one in status.verdicts}
    held = {kind for kind, _ in found}
    for kind, component in sorted(
        found | {(kind, "") for kind in Kind if kind not in held}, key=lambda one: (list(Kind).index(one[0]), one[1])
    ):
        yield Point((kind.value, component), kind in held)


JOB = (
    gauge(
        "streamwork_build_info",
        "1; the labels are the versions that answer.",
        "version python",
        lambda status: [Point((version("streamwork"), platform.python_version()), 1)],
    ),
    gauge(
        "streamwork_job_info",
        "1; the labels say how the job runs.",
        "mode semantics",
        lambda status: [Point((status.mode, status.semantics), 1)],
    ),
    gauge(
        "streamwork_running",
        "1 while a driver holds the job, also between a failure and the restart; else 0. Missing if that is unknown.",
        "",
        lambda status: known(status.running),
    ),
    gauge("streamwork_restarting", "1 between a failure and the restart.", "", lambda status: known(status.restarting)),
    counter(
        "streamwork_driver_starts_total",
        "Drivers that have claimed the job since its root was created, restarts included.",
        "",
        lambda status: known(0 if status.holder is None else status.holder.fence),
    ),
    gauge(
        "streamwork_standbys",
        "Standbys that wait to take the job over.",
        "",
        lambda status: known(len(status.standbys)),
    ),
    gauge(
        "streamwork_verdict",
        "1 for each verdict that holds, by the component that it is about; 0 for the others.",
        "verdict component",
        _verdicts,
    ),
)
