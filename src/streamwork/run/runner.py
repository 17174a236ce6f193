"""`run`: runs a job, for ``streamwork run`` and for ``job.run()`` (`cli.run_here`)."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from streamwork.epoch import in_doubt as doubt
from streamwork.errors import StreamworkError
from streamwork.job import Job
from streamwork.run.drivers import Drivers
from streamwork.run.options import RunOptions
from streamwork.run.outcome import Outcome, how_started
from streamwork.run.stopping import Stop
from streamwork.run.tracing import end, endpoint_of, provider_of
from streamwork.run.watcher import Watcher
from streamwork.world import Clock, RealClock, print_anything
from streamwork.world.heartbeat import Heartbeat

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

BEATS = 4
"""Heartbeats within a lease: one or two may be late."""


def run(
    job: Job,
    options: RunOptions,
    watcher: Watcher | None = None,
    clock: Clock | None = None,
    stop: Stop | None = None,
    trace: str | None = None,
    provider: TracerProvider | None = None,
) -> Outcome:
    """Run until the input ends, until it is caught up with (if asked), or until a stop is requested by SIGINT, SIGTERM or
    `streamwork stop`; the epoch in progress is completed then. A caller that handles signals already passes its `stop`.

    Epochs start `checkpoint_every` apart; with a backlog, the next one starts at once. A failed driver is followed by another one,
    as far as `restart` allows.

    `trace` is where traces are sent to, if not where the environment says (`run.tracing`); or a `provider` takes them, which the
    caller ends.
    """
    print_anything()
    clock = clock or RealClock()
    began = clock.monotonic()
    stop = stop or Stop(clock)
    note = (lambda line: None) if watcher is None else watcher.on_note
    made = provider_of(endpoint_of(trace), os.environ, note) if provider is None else None
    with stop.on_signal(), contextlib.ExitStack() as at_the_end:
        if made is not None:
            at_the_end.callback(end, made)
        drivers = Drivers(job, options, watcher, clock, stop, made or provider)
        if watcher is not None:
            watcher.on_starting(options.mode.folder(job.name), options.mode, options.root)
        with Heartbeat(drivers.beat, drivers.settings.lease / BEATS), drivers.log.of_python():
            try:
                restarts = drivers.run()
            except StreamworkError:
                if watcher is not None:  # a run that fails has no outcome that would report it
                    for line in doubt.lines(drivers.tally.in_doubt.values()):
                        watcher.on_note(line)
                raise
    outcome = Outcome(
        job=job.name,
        root=str(options.root),
        mode=options.mode.value,
        started=how_started(drivers.started),
        fence=drivers.fence,
        checkpoint=drivers.checkpoint,
        checkpoints=drivers.tally.checkpoints,
        events=drivers.tally.events,
        dropped=drivers.tally.dropped,
        seconds=round(clock.monotonic() - began, 3),
        restarts=restarts,
        dead_letters=drivers.tally.dead_letters,
        retried=drivers.tally.retried,
        late=drivers.tally.late,
        in_doubt=tuple(drivers.tally.in_doubt.values()),
    )
    if watcher is not None:
        watcher.on_end(outcome)
    return outcome
