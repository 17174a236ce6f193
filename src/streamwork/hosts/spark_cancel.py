"""Giving up on a Spark job that takes too long."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

LOOK_SECONDS = 0.05


class SparkCancel:
    """Around the actions of this thread: as soon as `expired` says so, they are cancelled, and `lost` is true.

    An action that is cancelled raises whatever Spark raises. Cancelling reaches only what Spark has begun, so it is said again
    and again until the block is left.
    """

    def __init__(self, context: Any, expired: Callable[[], bool]) -> None:
        self.lost = False
        self._context = context
        self._expired = expired
        self._tag = f"streamwork-{secrets.token_hex(8)}"  # never used before, so nobody else's job is meant
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._look, name="streamwork-patience", daemon=True)

    def __enter__(self) -> SparkCancel:
        self._context.addJobTag(self._tag)
        self._watch.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._watch.join()
        try:
            self._context.removeJobTag(self._tag)
        except Exception:
            if error is None:  # else Spark is gone, and the error that is on its way says so
                raise

    def _look(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            if self.lost or self._expired():
                self.lost = True
                try:
                    self._context.cancelJobsWithTag(self._tag)
                except Exception:  # Spark is gone: the action has failed, or will
                    return
