"""Requests to a living driver, as files: no port to guard, and any machine that sees the folder can ask.

    control/ID.request.json  a request to the driver of a certain fence
    control/ID.answer.json   the driver has done it, or says why not; the process that asked removes it
    control/ID.malformed     a malformed request, moved aside

The driver reads its requests between two epochs, also while it is idle (`epoch.requests`): to stop, or to make a savepoint
(`epoch.savepoints.taking`). Correctness does not depend on these files, and only a request to stop can stop a driver.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable
from enum import Enum
from pathlib import Path

import msgspec

from streamwork.epoch.sealed import to_bytes
from streamwork.errors import StreamworkError
from streamwork.world import Clock, Disk

REQUEST, ANSWER, MALFORMED = ".request.json", ".answer.json", ".malformed"
STALE_SECONDS = 3600.0
GONE = "that driver is gone"


class Kind(Enum):
    STOP = "stop"
    SAVEPOINT = "savepoint"


class Request(msgspec.Struct, frozen=True):
    id: str
    kind: Kind
    fence: int  # the driver that it is meant for
    asked_at: float
    arguments: dict[str, str] = {}


class Answer(msgspec.Struct, frozen=True):
    id: str
    ok: bool
    text: str
    checkpoint: int | None  # the newest completed one, where that is known
    answered_at: float
    code: str = ""  # of the error, and what to do, if it is not ok
    action: str = ""


class _Written(msgspec.Struct, frozen=True):
    """A request as it stands in its file: the kind may be one that a later version knows."""

    kind: str
    fence: int
    asked_at: float
    arguments: dict[str, str] = {}


class Control:
    def __init__(
        self, disk: Disk, folder: Path, clock: Clock, new_id: Callable[[], str] = lambda: secrets.token_hex(8)
    ) -> None:
        """`folder` is that of the job."""
        self._disk = disk
        self._folder = folder / "control"
        self._clock = clock
        self._new_id = new_id

    # ---- the process that asks -------------------------------------------------------------------------------------------------

    def ask(self, kind: Kind, fence: int, arguments: dict[str, str] | None = None) -> str:
        """Ask the driver of that fence; the id is for `answer`."""
        self._disk.make_folder(self._folder)
        request = Request(self._new_id(), kind, fence, self._clock.now(), arguments or {})
        self._disk.create(self._path(request.id, REQUEST), to_bytes(request))
        return request.id

    def answer(self, asked: str) -> Answer | None:
        """The answer, once; None as long as there is none."""
        path = self._path(asked, ANSWER)
        try:
            found = msgspec.json.decode(self._disk.read(path), type=Answer)
        except FileNotFoundError:
            return None
        except (msgspec.MsgspecError, UnicodeDecodeError):
            found = Answer(asked, False, "the answer cannot be read", None, self._clock.now())
        self._disk.remove(path)
        return found

    def withdraw(self, asked: str) -> None:
        """Ask no longer. The driver may be at it already."""
        self._disk.remove(self._path(asked, REQUEST))

    # ---- the driver ---------------------------------------------------------------------------------------------

    def requests(self, fence: int) -> list[Request]:
        """The requests to the driver of this fence, oldest first. Requests that no driver will handle are answered and removed.

        Never raises: a folder that cannot be read is one without requests.
        """
        found: list[Request] = []
        with contextlib.suppress(OSError):
            for name in self._disk.names(self._folder):
                if name.endswith(REQUEST):
                    found += self._requests_in(name.removesuffix(REQUEST), fence)
                elif name.endswith(ANSWER):
                    self._expire(self._folder / name)
        return sorted(found, key=lambda request: (request.asked_at, request.id))

    def reply(self, request: Request, ok: bool, text: str, checkpoint: int | None = None) -> None:
        self._reply(request.id, ok, text, checkpoint)

    def refuse(self, request: Request, error: StreamworkError) -> None:
        """The answer is an error, which the process that asked raises."""
        self._reply(request.id, False, error.cause, None, error.code, error.action)

    def _requests_in(self, asked: str, fence: int) -> list[Request]:
        path = self._path(asked, REQUEST)
        if self._disk.exists(self._path(asked, ANSWER)):  # a crash came between the answer and the removal
            self._disk.remove(path)
            return []
        try:
            data = self._disk.read(path)
        except FileNotFoundError:
            return []
        try:
            written = msgspec.json.decode(data, type=_Written)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            self._disk.replace(self._path(asked, MALFORMED), data)
            self._reply(asked, False, f"the request cannot be read ({error}); it was moved aside")
            return []
        if written.fence > fence:
            return []  # it is for a newer driver
        if written.fence < fence:
            self._reply(asked, False, GONE)
            return []
        if written.kind not in {kind.value for kind in Kind}:
            self._reply(asked, False, f"this driver does not know how to {written.kind!r}")
            return []
        return [Request(asked, Kind(written.kind), written.fence, written.asked_at, written.arguments)]

    def _reply(
        self, asked: str, ok: bool, text: str, checkpoint: int | None = None, code: str = "", action: str = ""
    ) -> None:
        """The answer first, so that a crash in between leaves a request that was answered, never one that vanished."""
        answer = Answer(asked, ok, text, checkpoint, self._clock.now(), code, action)
        self._disk.replace(self._path(asked, ANSWER), to_bytes(answer))
        self._disk.remove(self._path(asked, REQUEST))

    def _expire(self, path: Path) -> None:
        try:
            answered_at = msgspec.json.decode(self._disk.read(path), type=Answer).answered_at
        except FileNotFoundError:
            return
        except (msgspec.MsgspecError, UnicodeDecodeError):
            answered_at = float("-inf")
        if self._clock.now() - answered_at > STALE_SECONDS:
            self._disk.remove(path)

    def _path(self, asked: str, suffix: str) -> Path:
        return self._folder / f"{asked}{suffix}"
