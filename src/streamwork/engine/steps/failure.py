"""Errors of components, as the engine reports them."""

from __future__ import annotations

from typing import Any

from streamwork.components import Instance
from streamwork.components.acknowledging import EventFailed
from streamwork.components.columns import Columns
from streamwork.components.field_types import show
from streamwork.components.sink import RowsRejected
from streamwork.engine.steps.emitted import is_emit
from streamwork.errors import JobFailed, StreamworkError, described, is_retryable, raised_at, writable
from streamwork.job import Node
from streamwork.wording import plural

MOST_TEXT = 1_000  # characters of an error
RETURNED = "apply returned a value, which is not used: send it with collector.emit(event)"


def error_text(error: BaseException) -> str:
    """An error as a dead letter holds it."""
    text = str(error) if isinstance(error, EventFailed | RowsRejected) else described(error)
    if isinstance(error, StreamworkError):
        text = f"{error.code}: {error.cause}"
    text = writable(text)
    return text if len(text) <= MOST_TEXT else text[:MOST_TEXT] + " ..."


def applying_failed(
    node: Node, instance: Instance, event: Any, error: BaseException, is_one: bool = True
) -> StreamworkError:
    """The error of an operator that raised, or whose output or state does not fit. `is_one`: it is about one event or timer,
    which another `on_error` would set aside.
    """
    if isinstance(error, StreamworkError):
        if error.about_one_event and is_one and not error.component:
            error.cause += f", while applying {show(event)}"
            error.component = node.id
        error.raised_in = error.raised_in or f"{node.id}[{int(instance)}]"
        return error
    frame, place = raised_at(error)
    who, what = f"{node.id} (instance {instance})", described(error)
    in_emit = frame is not None and is_emit(frame.f_code)
    undeclared = isinstance(error, KeyError | TypeError) and ("append" in what or in_emit)
    hint = "; a channel must be declared: channels = {...}" if undeclared else ""
    about_one_event = is_one and isinstance(error, Exception)  # `on_error` does not apply to SystemExit and its like
    failure = JobFailed(
        "SW-OPERATOR-FAILED",
        f"{who} raised {what}{place} while applying {show(event)}{hint}",
        "fix the operator or the input and start again: the last checkpoint is good, and the job resumes there",
        retryable=is_retryable(error),
        about_one_event=about_one_event,
        component=node.id if about_one_event else "",
    )
    failure.raised_in = f"{node.id}[{int(instance)}]"
    return failure


class BatchOfRows:
    """Stands in an error for the events of a batch."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns

    def __repr__(self) -> str:
        return (
            f"a batch of {plural(len(self._columns), 'event')}, the first of which is {self._columns[:1].events[0]!r}"
        )
