"""Errors are part of the product: each has a code, a cause and an action.

The three classes differ in what they mean for the caller, which is also the exit code of the command line.
Every code is explained in ``docs/errors.md``.
"""

from __future__ import annotations


def writable(text: str) -> str:
    """The text, with halves of characters escaped: what people's code says goes into files and onto terminals."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


class StreamworkError(Exception):
    """Something a person has to know about.

    `code` is stable and can be searched for, `cause` says what happened, `action` says what to do about it.
    """

    exit_code = 1
    component = ""
    """If it is about one event: the component that could not do it, and whose `on_error` decides what becomes of it."""

    def __init__(self, code: str, cause: str, action: str) -> None:
        cause = writable(cause)
        super().__init__(code, cause, action)
        self.code = code
        self.cause = cause
        self.action = action

    def __str__(self) -> str:
        return f"{self.code}: {self.cause}\n  what to do: {self.action}"

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
