"""`ExplainedEpoch`: one epoch of a job, step by step. The command line prints it, and the console shows it."""

from __future__ import annotations

import msgspec

from streamwork.components import Position
from streamwork.observe.checkpoints import CheckpointState


class StepFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a step has written. What is not known is None."""

    path: str  # below the job's folder
    content: str
    there: bool  # False: it has been removed since
    bytes: int | None
    sha256: str | None
    rows: int | None
    written_at: float | None  # seconds since 1970


class LedgerFact(msgspec.Struct, frozen=True):
    """The ledger row that a sink has once it has committed the epoch."""

    sink: str
    position: Position
    manifest_sha256: str


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step of the protocol, as this epoch took it."""

    number: str  # "1" to "6"; "." for what follows
    name: str
    does: str
    durable: str  # what is durable after it
    reached: bool  # False: this epoch did not get as far, or it is not known
    seconds: float | None
    files: tuple[StepFile, ...] = ()
    ledgers: tuple[LedgerFact, ...] = ()


class CrashRow(msgspec.Struct, frozen=True, kw_only=True):
    """What the next start does if the driver is killed here."""

    step: str  # the name of the step
    killed: str
    left: str  # what the kill leaves behind
    action: str
    resumes_at: int
    reads_from: Position
    offered: tuple[str, ...]  # the sinks that are offered the staged outputs
    held: tuple[str, ...]  # the sinks that have them already
    does: str


class ExplainedEpoch(msgspec.Struct, frozen=True, kw_only=True):
    """One epoch: its steps with their files, and what a start does after a kill at each of its points."""

    job: str
    root: str
    checkpoint: int
    state: CheckpointState
    semantics: str
    parent: int
    fence: int
    events: int | None
    start: Position
    end: Position
    steps: tuple[Step, ...]
    crash_table: tuple[CrashRow, ...]
    here: int  # the row of the crash table at which this epoch is now, or at which it ended
    story: str  # how it ended
    kept: tuple[int, ...]  # the checkpoints that can be explained, newest first
