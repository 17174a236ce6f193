"""Restarts of a failed job, by the job's `Backoff`.

A failure of the job or of its environment (exit code 1) is restarted from the last checkpoint. A lost worker is replaced at once if
checkpoints were completed since the last failure; otherwise, and after other failures, with a pause. Not restarted are:

    wrong use and refusals        a person has to act first
    the same error again          right after a restart, without a checkpoint that processed an event, unless the error is
                                  `retryable`: a service that is down raises the same OSError or TimeoutError for the same event
                                  until it is back. In live mode empty checkpoints may be completed before the event is read again
    an error about the setup      before the first checkpoint: a missing file is then a wrong name rather than an outage
"""

from __future__ import annotations

import re
from typing import Protocol

from streamwork.errors import JobFailed, StreamworkError, WorkerLost, described, is_lasting, is_retryable, raised_at
from streamwork.job import Backoff
from streamwork.wording import plural
from streamwork.world import Clock


class Supervised(Protocol):
    """A run that can be restarted after a failure."""

    @property
    def progress(self) -> int:
        """The number of checkpoints completed so far."""

    @property
    def processed(self) -> int:
        """The number of events processed so far, in completed checkpoints, by any component."""

    @property
    def stopping(self) -> bool:
        """True if a stop has been requested."""

    def run_driver(self) -> None:
        """Run one driver until it ends. Raises its failure."""

    def pause(self, seconds: float) -> None:
        """Wait `seconds`, or until a stop is requested."""

    def note(self, line: str) -> None:
        """Report a restart to the watcher."""

    def keep_trace(self, error: Exception) -> str:
        """Save the traceback of an unexpected exception and return its path; "" if that is not possible."""


def supervise(job: Supervised, policy: Backoff | None, clock: Clock) -> int:
    """Run the job until it ends without failure, with restarts. Returns the number of restarts."""
    restarts: list[float] = []
    lost = 0  # restarts at once
    last: tuple[str, str] | None = None
    while True:
        before, processed = job.progress, job.processed
        failure: StreamworkError
        try:
            job.run_driver()
            return len(restarts) + lost
        except OSError as error:
            failure = _io_failed(error)
        except StreamworkError as error:
            failure = error
        except Exception as error:
            failure = _unforeseen(error, job.keep_trace(error))
        if failure.exit_code != JobFailed.exit_code or policy is None or job.stopping:
            raise failure
        if job.progress == 0 and failure.about_setup:
            raise failure
        fault = failure.code, _without_numbers(failure.cause)
        if fault == last and job.processed == processed and not failure.retryable:
            raise _with(failure, "it happened again right after a restart, so restarts do not help") from failure
        if isinstance(failure, WorkerLost) and job.progress > before:
            job.note(f"failed: {failure.code} {failure.cause}")
            job.note("restart at once")
            lost += 1
            continue
        recent = policy.recent(restarts, clock.monotonic())
        delay = policy.delay(restarts, clock.monotonic())
        if delay is None:
            raise _with(failure, f"given up after {plural(recent, 'restart')} within {policy.within}") from failure
        job.note(f"failed: {failure.code} {failure.cause}")
        job.note(f"restart {recent + 1} of {policy.max_restarts} in {delay:.1f} s")
        job.pause(delay)
        if job.stopping:
            raise failure
        restarts.append(clock.monotonic())
        last = fault


def _io_failed(error: OSError) -> JobFailed:
    failure = JobFailed(
        "SW-IO-FAILED",
        str(error),
        "free disk space, or restore the file or folder, and start again; --root chooses another folder",
        about_setup=is_lasting(error),
    )
    failure.__cause__ = error
    return failure


def _unforeseen(error: Exception, trace: str) -> JobFailed:
    """The failure for an exception without a code: a bug in Streamwork, or in code that it calls unguarded."""
    failure = JobFailed(
        "SW-INTERNAL",
        f"{described(error)}{raised_at(error)[1]}",
        "start again: the last checkpoint is intact. If it happens again, report it"
        + (f" with the traceback in {trace}" if trace else ""),
        retryable=is_retryable(error),
    )
    failure.__cause__ = error
    return failure


def _without_numbers(cause: str) -> str:
    """The cause without epoch numbers, which differ from attempt to attempt."""
    return re.sub(r"\b(epoch|checkpoint) \d+", r"\1", cause)


def _with(failure: StreamworkError, remark: str) -> StreamworkError:
    return failure.with_cause(f"{failure.cause}; {remark}")
