"""Starting a job again after it failed, by the job's `Backoff`.

A failure of the job or of its surroundings (exit code 1) is worth another try from the last checkpoint. Wrong use and refusals
are not: they wait for a person. Nor is an error that is not `retryable` and comes again right after a restart (the same event,
the same error): it will do so for ever. OSError and TimeoutError are retryable (`errors.is_retryable`): a look-up that is down
raises the same error for the same event until it is back. Nor is a start that cannot succeed: before anything was done, a file
that is not there is a wrong name rather than an outage.
"""

from __future__ import annotations

import re
from typing import Protocol

from streamwork.errors import JobFailed, StreamworkError, described, is_lasting, is_retryable, raised_at
from streamwork.job import Backoff
from streamwork.wording import plural
from streamwork.world import Clock


class Supervised(Protocol):
    """Something that runs, and can be run again after it failed."""

    @property
    def progress(self) -> int:
        """Grows with each completed checkpoint."""

    @property
    def stopping(self) -> bool:
        """True if somebody has asked for the end."""

    def live(self) -> None:
        """Run until the end. Raises what went wrong."""

    def pause(self, seconds: float) -> None:
        """Wait so long, or until somebody asks for the end."""

    def tell(self, line: str) -> None: ...

    def keep_trace(self, error: Exception) -> str:
        """Keep the traceback of an exception that was not foreseen, and say where; "" if that is not possible."""


def supervise(job: Supervised, policy: Backoff | None, clock: Clock) -> int:
    """Let it live until it ends well, starting it again where that may help. Returns how often that was."""
    restarts: list[float] = []
    last: tuple[str, str] | None = None
    while True:
        before = job.progress
        failure: StreamworkError
        try:
            job.live()
            return len(restarts)
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
        if fault == last and job.progress == before and not failure.retryable:
            raise _with(failure, "it came again right after a restart, so restarts do not help") from failure
        recent = policy.recent(restarts, clock.monotonic())
        delay = policy.delay(restarts, clock.monotonic())
        if delay is None:
            raise _with(failure, f"given up after {plural(recent, 'restart')} within {policy.within}") from failure
        job.tell(f"failed: {failure.code} {failure.cause}")
        job.tell(f"restart {recent + 1} of {policy.max_restarts} in {delay:.1f} s")
        job.pause(delay)
        if job.stopping:
            raise failure
        restarts.append(clock.monotonic())
        last = fault


def _io_failed(error: OSError) -> JobFailed:
    failure = JobFailed(
        "SW-IO-FAILED",
        str(error),
        "make room, or bring the file or folder back, and start again; --root chooses another folder",
        about_setup=is_lasting(error),
    )
    failure.__cause__ = error
    return failure


def _unforeseen(error: Exception, trace: str) -> JobFailed:
    """An exception without a code. It is a fault in Streamwork, or in code that it calls without a guard."""
    failure = JobFailed(
        "SW-INTERNAL",
        f"{described(error)}{raised_at(error)[1]}",
        "start again: the last checkpoint is good. If it comes back, report it"
        + (f" with the traceback in {trace}" if trace else ""),
        retryable=is_retryable(error),
    )
    failure.__cause__ = error
    return failure


def _without_numbers(cause: str) -> str:
    """Each try has an epoch number of its own; what it fails at is the same."""
    return re.sub(r"\b(epoch|checkpoint) \d+", r"\1", cause)


def _with(failure: StreamworkError, remark: str) -> StreamworkError:
    return failure.with_cause(f"{failure.cause}; {remark}")
