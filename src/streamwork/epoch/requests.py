"""The requests that the drivers of one run have taken from `control/`. A restart does not forget them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from streamwork.epoch.control import Control, Kind, Request

READ_SECONDS = 0.2
"""How often, at most, a driver reads its requests between epochs."""


class Requests:
    def __init__(self, control: Control, monotonic: Callable[[], float]) -> None:
        self._control = control
        self._now = monotonic
        self._read = float("-inf")
        self._stops: list[Request] = []

    @property
    def stop(self) -> bool:
        """True if a stop is requested."""
        return bool(self._stops)

    def is_due(self) -> bool:
        """True, once, if the requests were not read for a while."""
        now = self._now()
        if now < self._read + READ_SECONDS:
            return False
        self._read = now
        return True

    def read(self, fence: int) -> None:
        """Take the requests to the driver of this fence. May be called from any thread."""
        for request in self._control.requests(fence):
            if request.kind is Kind.STOP and request not in self._stops:
                self._stops.append(request)

    def answer(self, ok: bool, text: str, checkpoint: int | None) -> None:
        """The run ends: answer every request to stop it. `checkpoint` is the newest completed one."""
        for request in self._stops:
            with contextlib.suppress(OSError):  # the process that asked sees that the driver has ended
                self._control.reply(request, ok, text, checkpoint)
