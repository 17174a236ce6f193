"""Errors are part of the product: each has a code, a cause and an action.

The three classes differ in what they mean for the caller, which is also the exit code of the command line.
Every code is explained in ``docs/errors.md``.
"""

from __future__ import annotations

from types import FrameType


def writable(text: str) -> str:
    """The text, with halves of characters escaped: what people's code says goes into files and onto terminals."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def printable(text: str) -> str:
    """The text for a terminal: characters that would steer it are escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


UNCHANGING = frozenset(
    {
        "SW-ENGINE-FAILED",
        "SW-INBOX-EVENT",
        "SW-INTERNAL",
        "SW-OPERATOR-COPY",
        "SW-OPERATOR-FAILED",
        "SW-SINK-REJECTED",
        "SW-SOURCE-BAD-EVENT",
        "SW-SOURCE-HEADER",
        "SW-SOURCE-SCHEMA",
        "SW-TYPE-EVENT",
        "SW-TYPE-VALUE",
    }
)
"""Codes of errors that come again unless the code or the data changes. An operator that raised is one unless what it raised is
retryable (`is_retryable`)."""

ABOUT_ONE_EVENT = frozenset(
    {"SW-OPERATOR-FAILED", "SW-SINK-REJECTED", "SW-SOURCE-BAD-EVENT", "SW-TYPE-EVENT", "SW-TYPE-VALUE"}
)
"""Codes of errors that another `on_error` of the component would have set aside with their event."""


def is_retryable(error: BaseException) -> bool:
    """True if the same call may succeed later, although nothing is changed in the code or the data.

    An exception can say so itself: an attribute `retryable`, True or False. Without one, an OSError is retryable (TimeoutError
    and ConnectionError are OSErrors), and so is an error that was raised from a retryable one (``raise ... from error``).
    """
    said = getattr(error, "retryable", None)
    if isinstance(said, bool):
        return said
    if isinstance(error, OSError):
        return True
    return error.__cause__ is not None and error.__cause__ is not error and is_retryable(error.__cause__)


def described(error: BaseException) -> str:
    """An exception of any code's, as text: its type and what it says. Never raises."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return f"{type(error).__name__}, which cannot be shown"


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
    """Something a person has to know about.

    `code` is stable and can be searched for, `cause` says what happened, `action` says what to do about it.
    """

    exit_code = 1
    component = ""
    """If it is about one event: the component that could not do it, and whose `on_error` decides what becomes of it."""
    retryable: bool
    """True if a restart may help although nothing is changed. If not, the same error twice in a row ends the run."""

    def __init__(self, code: str, cause: str, action: str) -> None:
        cause = writable(cause)
        super().__init__(code, cause, action)
        self.code = code
        self.cause = cause
        self.action = action
        self.retryable = self.exit_code == 1 and code not in UNCHANGING

    @property
    def about_one_event(self) -> bool:
        """True if another `on_error` of `component` would have set the event aside."""
        return self.code in ABOUT_ONE_EVENT and bool(self.component)

    def __str__(self) -> str:
        return printable(f"{self.code}: {self.cause}\n  what to do: {self.action}")

    def to_dict(self) -> dict[str, str]:
        return {"code": self.code, "cause": self.cause, "action": self.action}


class JobFailed(StreamworkError):
    """The job, its input or its surroundings failed; the last completed checkpoint is good."""

    exit_code = 1


class WrongUse(StreamworkError):
    """The job or the command is not well formed; nothing was started."""

    exit_code = 2


class Refused(StreamworkError):
    """Going on could lose or double results, so Streamwork does not, until a person decides."""

    exit_code = 3
