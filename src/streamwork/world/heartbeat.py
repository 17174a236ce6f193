"""A heartbeat from a thread of its own, which continues while Spark computes or an operator is slow."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from types import TracebackType


class Heartbeat:
    """Calls `beat` every `every` seconds of real time, inside a `with`.

    A beat that fails with an OSError is skipped. After too many skipped beats another driver may take this one for dead; the
    fence then keeps the results correct.
    """

    def __init__(self, beat: Callable[[], None], every: float) -> None:
        self._beat = beat
        self._every = every
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="streamwork-heartbeat", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._every):
            with contextlib.suppress(OSError):
                self._beat()
