"""Cancels a Spark job that takes too long."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

CHECK_SECONDS = 0.05


class SparkCancel:
    """A context around the actions of this thread: when `expired()` is true they are cancelled, and `cancelled` is set.

    A cancelled action raises Spark's error. Cancelling reaches only jobs that Spark has begun, so it is repeated until
    the block is left.
    """

    def __init__(self, context: Any, expired: Callable[[], bool]) -> None:
        self.cancelled = False
        self._context = context
        self._expired = expired
        self._tag = f"streamwork-{secrets.token_hex(8)}"  # never used before, so no other job has it
        self._left = threading.Event()
        self._watch = threading.Thread(target=self._cancel_when_expired, name="streamwork-cancel", daemon=True)

    def __enter__(self) -> SparkCancel:
        self._context.addJobTag(self._tag)
        self._watch.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.set()
        self._watch.join()
        try:
            self._context.removeJobTag(self._tag)
        except Exception:
            if error is None:  # otherwise Spark is gone, and `error` says so
                raise

    def _cancel_when_expired(self) -> None:
        while not self._left.wait(CHECK_SECONDS):
            if self.cancelled or self._expired():
                self.cancelled = True
                try:
                    self._context.cancelJobsWithTag(self._tag)
                except Exception:  # Spark is gone: the action has failed, or will
                    return
