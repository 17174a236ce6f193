"""Crashes of a start that writes all state again: in another division (rescale), or in another form (evolution)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from savepoint_world import World
from streamwork.epoch import Manifest, Phase
from streamwork.epoch.recovery.rewriting import Rewriting
from streamwork.testing.disk import DiskCrashed, Survival

W = TypeVar("W", bound=World)


def power_fails_in(world: World, step: int, survival: Survival, start: Callable[[], Any]) -> bool:
    """Cut the power in a step of a start. False if the start has fewer steps."""
    world.disk.crash_at(world.disk.steps + step)
    try:
        start()
    except DiskCrashed:
        world.disk.crash(survival)
        return True
    world.disk.crash_at(None)
    return False


class BreakAt:
    """Breaks off after the n-th phase that it is told of."""

    def __init__(self, left: int) -> None:
        self.left = left

    def on_phase(self, phase: Phase, epoch: int, manifest: Manifest | None) -> None:
        self.left -= 1
        if self.left < 0:
            raise DiskCrashed


def break_everywhere(prepared: Callable[[], W], start: Callable[[W, BreakAt], Any], end: Callable[[W], Any]) -> None:
    """A start breaks off after each of its phases in turn; then comes the `end`, in the same world."""
    phase, more = 0, True
    while more:
        world = prepared()
        try:
            start(world, BreakAt(phase))
            more = False
        except DiskCrashed:
            phase += 1
        end(world)
    assert phase >= 6, "register, read, prepare, commit, complete, ready"


def write_nothing_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """For controls: ledgers are moved before the manifest is durable."""
    real = Rewriting._prepare

    def forgets(self: Rewriting, *args: Any) -> Manifest:
        kept = self._store.write_prepared
        self._store.write_prepared = lambda manifest: None  # type: ignore[method-assign]
        try:
            return real(self, *args)
        finally:
            self._store.write_prepared = kept  # type: ignore[method-assign]

    monkeypatch.setattr(Rewriting, "_prepare", forgets)
