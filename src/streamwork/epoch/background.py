"""Work beside the epochs: snapshots and savepoints are written while epochs go on."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, TypeVar

T = TypeVar("T")


class Background(Protocol):
    def __call__(self, work: Callable[[], T], /) -> Future[T]:
        """Begin the work, which may wait for earlier work."""


def at_once(work: Callable[[], T], /) -> Future[T]:
    """Run in the foreground, for simulations with a fixed order."""
    done: Future[T] = Future()
    try:
        done.set_result(work())
    except Exception as error:
        done.set_exception(error)
    return done
