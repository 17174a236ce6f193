"""The errors that Streamwork reports. Each has a code, a cause and an action.

There is one class for each exit code of the command line. ``docs/errors.md`` explains every code.
"""

from __future__ import annotations

import copy
import errno
import traceback
from types import FrameType
from typing import Self


def writable(text: str) -> str:
    """The text with lone surrogates escaped, so that it can be encoded. Texts of user code may contain them."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def printable(text: str) -> str:
    """The text for a terminal, with control characters escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


MOST_TRACE = 20_000
"""Characters of a traceback that are kept: the last ones."""
LASTING = frozenset(
    {
        errno.EACCES,
        errno.EEXIST,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EPERM,
        errno.EROFS,
    }
)
"""Error numbers of the operating system for a wrong path or missing rights. A full disk or an I/O error may be temporary."""


def is_lasting(error: OSError) -> bool:
    """True if the operation fails again until a path or the rights on it are changed."""
    return error.errno in LASTING


def is_retryable(error: BaseException) -> bool:
    """True if the same call may succeed later without a change of code or data.

    An exception may have an attribute `retryable`, True or False, which decides. Without it, an OSError is retryable (TimeoutError
    and ConnectionError are OSErrors), and so is an error that was raised from a retryable one (``raise ... from error``).
    """
    said = getattr(error, "retryable", None)
    if isinstance(said, bool):
        return said
    if isinstance(error, OSError):
        return True
    return error.__cause__ is not None and error.__cause__ is not error and is_retryable(error.__cause__)


def described(error: BaseException) -> str:
    """The type and the message of an exception. Never raises, even if the exception's `__str__` does."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return f"{type(error).__name__}, whose message cannot be printed"


def raised_at(error: BaseException) -> tuple[FrameType | None, str]:
    """The frame that raised an exception, and its place as text: file, line and function."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None:
        return None, ""
    code = traceback.tb_frame.f_code
    return traceback.tb_frame, f" ({code.co_filename}:{traceback.tb_lineno} in {code.co_name})"


class StreamworkError(Exception):
    """An error that is reported to the user.

    `code` is stable, `cause` describes what happened, `action` what the user can do. The other attributes
    decide how a run handles the error. The raise site sets them; they survive pickling, and `engine.report.Failure` carries
    them from a worker to the driver.
    """

    exit_code = 1
    retryable = False
    """True if a restart without any change may help. If False, the same error twice in a row ends the run."""
    about_one_event = False
    """True if one event caused the error: another `on_error` of `component` would drop that event or store it as a dead letter."""
    about_setup = False
    """True for a missing file, server or program. Before the first completed checkpoint of a run the likely cause is a wrong path
    or address, and the run ends; later it is retried."""
    component = ""
    """The component whose `on_error` applies to the event; empty if no `on_error` applies."""
    raised_in: str
    """The component that raised it, with its instance: "per-card[1]"; empty if no component did."""
    in_epoch: int | None
    trace: str
    """The traceback in the worker that raised it; empty if it was raised in this process."""

    def __init__(
        self,
        code: str,
        cause: str,
        action: str,
        *,
        retryable: bool | None = None,
        about_one_event: bool = False,
        about_setup: bool = False,
        component: str = "",
    ) -> None:
        cause = writable(cause)
        super().__init__(code, cause, action)
        self.code = code
        self.cause = cause
        self.action = action
        self.retryable = type(self).retryable if retryable is None else retryable
        self.about_one_event = about_one_event
        self.about_setup = about_setup
        self.component = component
        self.raised_in = ""
        self.in_epoch = None
        self.trace = ""

    def __str__(self) -> str:
        return printable(f"{self.code}: {self.cause}\n  what to do: {self.action}")

    def to_dict(self) -> dict[str, str]:
        return {"code": self.code, "cause": self.cause, "action": self.action}

    def full_trace(self) -> str:
        """The traceback where it was raised, with its causes; empty if it was not raised."""
        known = self.__traceback__ is not None or self.__cause__ is not None
        text = self.trace or ("".join(traceback.format_exception(self)) if known else "")
        return text if len(text) <= MOST_TRACE else f"...\n{text[-MOST_TRACE:]}"

    def with_cause(self, cause: str) -> Self:
        """The same error with another cause."""
        changed = copy.copy(self)
        changed.cause = writable(cause)
        return changed


class JobFailed(StreamworkError):
    """The job, its input or its surroundings failed. The last completed checkpoint is intact."""

    exit_code = 1
    retryable = True


class WorkerLost(JobFailed):
    """A process that computes for the job has died. If checkpoints were completed since the last such loss, the job is restarted
    at once, and the restart does not count against the limit of restarts.
    """


class WrongUse(StreamworkError):
    """The job or the command is not well formed. Nothing was started."""

    exit_code = 2


class Refused(StreamworkError):
    """To continue could lose or repeat results, so Streamwork stops until the user decides."""

    exit_code = 3
