"""The steps of the protocol, and those who are told of them. The model (`tests/model/`) uses the same names."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from streamwork.epoch.manifest import Manifest


class Phase(Enum):
    """Listeners are told of each step when it is done; of `commit`, `register` and `rebase` once for each sink."""

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
    PRUNE = "prune"  # what is not kept any more is gone
    ABANDON = "abandon"  # instead of 3: the epoch came to nothing


class Listener(Protocol):
    """Told of each step. Progress lines are one; tests that stretch or break a step are another."""

    def on_phase(self, step: Phase, epoch: int, manifest: Manifest | None) -> None: ...
