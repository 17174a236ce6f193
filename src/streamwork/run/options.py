"""`RunOptions`: how to run a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from streamwork.hosts.master import DEFAULT_MASTER
from streamwork.job import Settings
from streamwork.run.mode import Mode


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to run a job; what is None is the job's own choice."""

    mode: Mode = Mode.MICROBATCH
    root: Path
    master: str = DEFAULT_MASTER
    until_caught_up: bool = False
    checkpoint_every: float | None = None
    retain: int | None = None
    lease: float | None = None
    restart: bool = True  # False: a failure ends the run, whatever the job says
    take_over: bool = False
    accept_divergence: bool = False
    semantics: str | None = None
    tracking: str | None = None
    change_semantics: bool = False
    refill: tuple[str, ...] = ()  # sinks that may be filled again if their target is lost
    drop_state: tuple[str, ...] = ()  # components whose state is not used any more
    drop_request: str = ""  # the same in all runs that are one request: state is dropped once
    spark_log: bool = False
    module_folder: Path | None = None
    on_error: dict[str, str] = {}  # component -> what becomes of events that it cannot do, in this run
    command: tuple[str, ...] = ()  # what a person has typed to run it, for errors that say how to go on

    def settings(self, chosen: Settings) -> Settings:
        """What the job has chosen for itself, where it is not overridden here."""
        names = ("checkpoint_every", "retain", "lease", "semantics", "tracking")
        asked = {name: getattr(self, name) for name in names}
        changes: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
        if self.semantics is not None and self.tracking is None:
            changes["tracking"] = None  # it belongs to the semantics that the job has chosen
        if not self.restart:
            changes["restart"] = None
        return msgspec.structs.replace(chosen, **changes)
