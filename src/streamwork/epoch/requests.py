"""Requests to the drivers of one run: to stop, by a signal or by a file in `control/`, which a restart does not forget; and for
savepoints, by a file, to one driver.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from streamwork.epoch.control import Control, Kind, Request
from streamwork.epoch.fences import Fences
from streamwork.errors import StreamworkError

DRAIN = "drain"
"""An argument of a request to stop: read the rest of the input first."""
READ_SECONDS = 0.2
"""How often, at most, a driver reads its requests between epochs."""


class Requests:
    def __init__(
        self,
        control: Control | None,
        monotonic: Callable[[], float],
        signalled: Callable[[], bool] = lambda: False,
    ) -> None:
        """Without `control` no files are read. `signalled` is True once a signal asks for a stop."""
        self._control = control
        self._now = monotonic
        self._signalled = signalled
        self._read_at = float("-inf")
        self._stops: list[Request] = []
        self.savepoints: list[Request] = []
        """The requests for a savepoint when the files were last read."""

    @property
    def stop_requested(self) -> bool:
        """True if a signal, or a request that was read, asks for a stop. May be called from any thread."""
        return self._signalled() or any(not _drains(request) for request in self._stops)

    @property
    def drain_requested(self) -> bool:
        """True if a request that was read asks to stop when the input that was there then has been read."""
        return any(_drains(request) for request in self._stops)

    @property
    def stop_requested_by_file(self) -> bool:
        """True if a request that was read asks for a stop: `streamwork stop`."""
        return bool(self._stops)

    def attend(self, fences: Fences) -> None:
        """Between two epochs, and while idle: refuse to go on if another driver has taken the job, and read the requests."""
        now = self._now()
        if self._control is None or fences.mine is None or now < self._read_at + READ_SECONDS:
            return
        self._read_at = now
        fences.check(fences.mine.fence)
        self._read(self._control, fences.mine.fence)

    def stop_requested_now(self, fences: Fences) -> bool:
        """During an epoch: the requests are read first. May be called from any thread."""
        if not self.stop_requested and self._control is not None and fences.mine is not None:
            self._read(self._control, fences.mine.fence)
        return self.stop_requested

    def _read(self, control: Control, fence: int) -> None:
        found = control.requests(fence)
        self.savepoints = [request for request in found if request.kind is Kind.SAVEPOINT]
        self._stops += [request for request in found if request.kind is Kind.STOP and request not in self._stops]

    def saved(self, request: Request, checkpoint: int) -> None:
        """The savepoint is complete."""
        assert self._control is not None, "it was read there"
        self._control.reply(request, True, request.arguments.get("name", ""), checkpoint)

    def not_saved(self, request: Request, error: StreamworkError) -> None:
        assert self._control is not None, "it was read there"
        self._control.refuse(request, error)

    def answer(self, ok: bool, text: str, checkpoint: int | None) -> None:
        """The run ends: answer every request to stop it. `checkpoint` is the newest completed one."""
        for request in self._stops:
            assert self._control is not None, "it was read there"
            with contextlib.suppress(OSError):  # the process that asked sees that the driver has ended
                self._control.reply(request, ok, text, checkpoint)


def _drains(request: Request) -> bool:
    return DRAIN in request.arguments
