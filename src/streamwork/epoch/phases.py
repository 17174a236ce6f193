"""The phases of a start and of an epoch, and the listeners that follow them. The model (`tests/model/`) uses the same names."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from streamwork.epoch.manifest import Manifest


class Phase(Enum):
    """Listeners are called for each phase when it is done; for `commit`, `register` and `rebase` once for each sink."""

    REGISTER = "register"  # a start: the fence is in a sink
    READ = "read"  # it has chosen what to build on
    REBASE = "rebase"  # a sink's row names the manifest that is built on
    READY = "ready"  # recovery is finished
    PLAN = "plan"  # an epoch: 1
    COMPUTE = "compute"  # 2
    REPORT = "report"  # 3
    PREPARE = "prepare"  # 4
    COMMIT = "commit"  # 5
    COMPLETE = "complete"  # 6
    PRUNE = "prune"  # what no kept checkpoint needs is removed
    ABANDON = "abandon"  # instead of 4: the epoch is abandoned


class Listener(Protocol):
    """Called after each phase: to show progress, or, in tests, to stretch or break a phase."""

    def on_phase(self, phase: Phase, epoch: int, manifest: Manifest | None) -> None: ...
