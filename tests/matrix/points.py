"""Where lives break, and what the next one does about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum

from crashes import Crash
from matrix.faults import Fault
from matrix.world import RETAIN, SLICE, Life, World


class Outcome(Enum):
    """What the next start does."""

    GOES_ON = "resumes"
    COMPUTES_AGAIN = "computes the epoch again"
    ROLLS_FORWARD = "rolls forward"
    OFFERS_AGAIN = "commits to the sink what it lacks"
    CATCHES_UP = "falls back, catches up, writes nothing twice"
    DOES_WITHOUT = "uses other files"
    LEAVES_OUT = "leaves out what was planned"
    REFUSES_LEDGER = "refuses: SW-SINK-LEDGER"
    REFUSES_NONE = "refuses: SW-CHECKPOINT-NONE"
    REFUSES_SCHEMA = "refuses: SW-STATE-SCHEMA"


def outcome_of(world: World, life: Life, spent: int) -> Outcome:
    """Told from what a start says and leaves; `spent` is the newest number that was planned before it."""
    if life.error is not None:
        return next(known for known in Outcome if known.value == f"refuses: {life.code}")
    assert life.started is not None
    story = " ".join(life.started.story)
    if "fell back" in story:
        return Outcome.CATCHES_UP
    if life.started.rolled_forward is not None:
        return Outcome.ROLLS_FORWARD
    if "was behind" in story:
        return Outcome.OFFERS_AGAIN
    if "can do without it" in story or "its twin stands in" in story:
        return Outcome.DOES_WITHOUT
    if spent <= life.started.resumed_at:
        return Outcome.GOES_ON
    return Outcome.LEAVES_OUT if world.semantics == "at-most-once" else Outcome.COMPUTES_AGAIN


@dataclass(frozen=True)
class Point:
    """Where a life breaks, and what the next one does about it."""

    name: str
    fault: Fault
    outcome: Outcome
    late: int | None = 4  # how often the place has been passed when the fourth epoch passes it; None: only once
    only: Callable[[tuple[str, ...]], bool] = lambda sinks: True
    semantics: tuple[str, ...] = ()  # those that know such a place; empty: all

    def faults(self) -> Iterator[Fault]:
        yield self.fault
        yield replace(self.fault, nth=self.late or self.fault.nth, dead=self.fault.error is Crash)


def _several(sinks: tuple[str, ...]) -> bool:
    return len(sinks) > 1


def _telling(sinks: tuple[str, ...]) -> bool:
    """What happens to old files does not depend on sinks; it is tried with some that could not be more different."""
    return sinks in (("journal",), ("hashes",), ("calls",))


AGAIN, FORWARD, ON = Outcome.COMPUTES_AGAIN, Outcome.ROLLS_FORWARD, Outcome.GOES_ON
POINTS = [
    Point("before plan", Fault("before create checkpoints/*.plan.json"), ON),
    Point("after plan", Fault("told plan *"), AGAIN),
    Point("mid compute: the operator dies", Fault("apply *", 3), AGAIN, 3 * SLICE + 3),
    Point("mid compute: the source dies", Fault("half read *"), AGAIN),
    Point("mid compute: the disk is full", Fault("before create state/*.delta.parquet", error=OSError), AGAIN, 7),
    Point("mid compute: the disk is full for outputs", Fault("before write outputs/*", error=OSError), AGAIN, 80),
    Point("after a delta file, before its report", Fault("after create state/*.delta.parquet"), AGAIN, 7),
    Point("after all reports", Fault("told report *"), AGAIN),
    Point("before prepared", Fault("before create checkpoints/*[1-9].prepared.json"), AGAIN),
    Point("disk full: prepared", Fault("before create checkpoints/*[1-9].prepared.json", error=OSError), AGAIN),
    Point("after prepared, before the first sink", Fault("told prepare *"), FORWARD),
    Point("mid transaction of the first sink", Fault("rows written to *[!w]"), FORWARD),
    Point("between two sinks", Fault("told commit *"), FORWARD, 7, _several),
    Point("mid transaction of the second sink", Fault("rows written to *[!w]", 2), FORWARD, 8, _several),
    Point("after the last sink, before completed", Fault("before create checkpoints/*[1-9].json"), FORWARD),
    Point("disk full: completed", Fault("before create checkpoints/*[1-9].json", error=OSError), FORWARD),
    Point("after completed", Fault("told complete *"), ON),
    Point("compaction: between two snapshots", Fault("after create state/*.snapshot.parquet"), ON, 1),
    Point("compaction: before a manifest names them", Fault("after create state/*.snapshot.parquet", 2), ON, 2),
    Point("retention: before the first removal", Fault("before discard checkpoints/*"), ON, None),
    Point("retention: between the copies of a manifest", Fault("after discard checkpoints/*"), ON, None),
    Point("retention: between manifest and files", Fault("before discard outputs/*"), ON, None),
    Point("retention: between two files", Fault("after discard outputs/*", 2), ON, None),
    Point("retention: before the plans", Fault("before discard checkpoints/*.plan.json"), ON, None),
]
"""Each early, by an exception after which the driver is closed; and about three epochs later, by one after which nothing is."""

AT_ONCE_POINTS = [
    *(
        replace(point, only=_telling) if point.name.startswith(("compaction", "retention")) else point
        for point in POINTS
        if point.outcome is not FORWARD and "outputs" not in point.fault.at
    ),
    Point("before a claim", Fault("before create claims/*"), AGAIN, 7, semantics=("at-most-once",)),
    Point("after a claim, before the write", Fault("after create claims/*"), AGAIN, 7, semantics=("at-most-once",)),
    Point(
        "retention: before the claims",
        Fault("before discard claims/*"),
        ON,
        None,
        _telling,
        semantics=("at-most-once",),
    ),
    Point("before a write", Fault("about to write *"), AGAIN),
    Point("mid write", Fault("rows written to *"), AGAIN),
    Point("after a write", Fault("has written *"), AGAIN),
    Point("between the writes of two sinks", Fault("has written *"), AGAIN, 9, _several),
    Point("after prepared, before completed", Fault("told prepare *"), FORWARD),
    Point("before completed", Fault("before create checkpoints/*[1-9].json"), FORWARD),
    Point("disk full: completed", Fault("before create checkpoints/*[1-9].json", error=OSError), FORWARD),
]
"""Where rows are written at once there are no commits; instances write in the middle of compute."""

PREPARED = Fault("told prepare *", 4, dead=True)
PRUNING = Fault("before discard outputs/*", dead=True)
RECOVERY = [
    ("register", PREPARED, Fault("told register *")),
    ("read", PREPARED, Fault("told read *")),
    ("commit, mid transaction", PREPARED, Fault("rows written to *[!w]")),
    ("commit", PREPARED, Fault("told commit *")),
    ("before complete", PREPARED, Fault("before create checkpoints/*.json")),
    ("before ready", PREPARED, Fault("before create fences/*.start.json")),
    ("ready", PREPARED, Fault("told ready *")),
    ("before prune", PRUNING, Fault("before discard *")),
    ("mid prune", PRUNING, Fault("after discard *")),
    ("prune", PRUNING, Fault("told prune *")),
]
"""(step of a start, what the life before it left to do, where the start breaks)"""

DAMAGES = [
    ("fallback by 1, sinks ahead", 1, Outcome.CATCHES_UP),
    ("fallback to the oldest retained checkpoint, sinks ahead", RETAIN, Outcome.CATCHES_UP),
    ("all manifests damaged", RETAIN + 1, Outcome.REFUSES_NONE),
]
"""How many of the newest manifests are damaged, both copies."""

BEHIND = [
    ("a sink behind by 1", 1, Outcome.OFFERS_AGAIN),
    ("a sink behind by 2", 2, Outcome.OFFERS_AGAIN),
    ("a sink behind by all retained checkpoints", RETAIN + 1, Outcome.OFFERS_AGAIN),
    ("a sink behind by more than the retained checkpoints", RETAIN + 2, Outcome.REFUSES_LEDGER),
]
"""By how many checkpoints the copy is older that a sink's target was brought back from."""

OTHERS = [
    ("newest manifest: its completed copy damaged", Outcome.DOES_WITHOUT),
    ("newest manifest: its prepared copy damaged", Outcome.GOES_ON),
    ("newest manifest: both copies damaged", Outcome.CATCHES_UP),
    ("a state file damaged, another chain of files is intact", Outcome.DOES_WITHOUT),
    ("a state file damaged that every chain of files needs", Outcome.CATCHES_UP),
    ("staged output damaged before the first commit", Outcome.COMPUTES_AGAIN),
    ("plan damaged after a crash in compute", Outcome.COMPUTES_AGAIN),
    ("an incompatible record", Outcome.REFUSES_SCHEMA),
]
OTHER = dict(OTHERS)
