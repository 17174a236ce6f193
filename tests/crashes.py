"""Crashes for tests that drive a run in this process."""

from __future__ import annotations

from typing import Any

from streamwork.epoch import Manifest, Phase


class Crash(KeyboardInterrupt):  # all that passes through an operator's step as it is
    """Like kill -9: nothing that handles errors sees it."""


class CrashAt:
    """A watcher that crashes the run at the n-th step it is told of, those of its start included; or of one kind of step."""

    def __init__(self, steps: int, only: Phase | None = None) -> None:
        self.left = steps
        self.only = only

    def on_phase(self, step: Phase, epoch: int, manifest: Manifest | None) -> None:
        self.left -= self.only in (None, step)
        if self.left < 0:
            raise Crash

    def on_starting(self, *_: Any) -> None: ...
    def on_started(self, *_: Any) -> None: ...
    def on_note(self, line: str) -> None: ...
    def on_end(self, *_: Any) -> None: ...
    def close(self) -> None: ...
