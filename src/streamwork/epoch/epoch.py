"""One epoch: its plan, assignments, reports, manifest and timings, and the state that it is in.

    PLANNED    -> COMPUTING                  1  the plan is durable
               -> FAILED                        the host does not take it again: the driver ends
    COMPUTING  -> REPORTED                   2  the host has the assignments
               -> PLANNED                       the attempts do not agree: the epoch is computed again
               -> FAILED                        an attempt raised an error: the driver ends
    REPORTED   -> PREPARED                   3  every instance has reported, and the attempts agree
               -> IDLE                          nothing has happened in it: the next epoch uses the same plan
    PREPARED   -> COMMITTED                  4  the manifest is durable: the epoch is only rolled forward from here on
    COMMITTED  -> COMPLETED                  5  every sink has it
    COMPLETED  -> FINISHED                   6  the manifest is completed, and the effects outside it are published
    FINISHED                                 .  what no kept checkpoint needs is pruned

Before PREPARED an epoch may also become ABANDONED (it took too long, its number is taken, or it cannot be computed again) or
DISCARDED (it was built on one that was abandoned or is computed again). A driver that ends leaves its epochs in the state that
they are in; the crash table of `epoch.driver` says what the next start does with each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from streamwork.components import Position
from streamwork.delivery.counts import Counts, Refusals
from streamwork.engine import Assignment, Report
from streamwork.epoch.brought import Brought
from streamwork.epoch.manifest import Manifest, Plan
from streamwork.epoch.slices import Partitions
from streamwork.epoch.timings import Timings


class State(Enum):
    PLANNED = "planned"
    COMPUTING = "computing"
    REPORTED = "reported"
    PREPARED = "prepared"
    COMMITTED = "committed"
    COMPLETED = "completed"
    FINISHED = "finished"
    IDLE = "idle"
    ABANDONED = "abandoned"
    DISCARDED = "discarded"
    FAILED = "failed"


_GIVEN_UP = frozenset({State.ABANDONED, State.DISCARDED})

NEXT: Mapping[State, frozenset[State]] = {
    State.PLANNED: _GIVEN_UP | {State.COMPUTING, State.FAILED},
    State.COMPUTING: _GIVEN_UP | {State.REPORTED, State.PLANNED, State.FAILED},
    State.REPORTED: _GIVEN_UP | {State.PREPARED, State.IDLE},
    State.PREPARED: frozenset({State.COMMITTED}),
    State.COMMITTED: frozenset({State.COMPLETED}),
    State.COMPLETED: frozenset({State.FINISHED}),
    State.FINISHED: frozenset(),
    State.IDLE: frozenset(),
    State.ABANDONED: frozenset(),
    State.DISCARDED: frozenset(),
    State.FAILED: frozenset(),
}
"""The transition table: state -> the states that may follow it."""


class WrongTransition(RuntimeError):
    """A fault in the driver: an epoch was to enter a state that cannot follow the state that it is in."""


class Epoch:
    """Its methods are its transitions; each takes what is known from then on. A wrong one raises `WrongTransition`."""

    def __init__(self, plan: Plan, timings: Timings, partitions: Partitions, continues: bool = False) -> None:
        """With `continues` it begins where its parent ends, which is known when the parent is prepared (`begin_at`)."""
        self.plan = plan
        self.continues = continues
        self.start = plan.start
        self.partitions = partitions
        """Of its sources with offsets, as of the plan."""
        self.timings = timings
        self.brought = Brought()
        self.assignments: Sequence[Assignment] = ()
        self.reports: Sequence[Report] = ()
        """Those of the newest attempt that has reported."""
        self.repeated: list[Counts] = []
        """What attempts counted after which the epoch was computed again."""
        self.unreported: Sequence[Counts] = ()
        """What the attempt had counted that was abandoned or failed, as far as the host knows."""
        self.failure = ""
        """Why it failed: the code of the error, or the name of its class."""
        self.refused: Refusals = {}
        """The rows that sinks refused at the commit."""
        self._manifest: Manifest | None = None
        self._state = State.PLANNED

    def __repr__(self) -> str:
        return f"<epoch {self.number}, {self._state.value}>"

    @property
    def number(self) -> int:
        return self.plan.epoch

    @property
    def state(self) -> State:
        return self._state

    @property
    def manifest(self) -> Manifest:
        """From PREPARED on."""
        assert self._manifest is not None, f"{self} has no manifest yet"
        return self._manifest

    @property
    def counts(self) -> list[Counts]:
        """What the newest attempt counted that has reported, by instance."""
        return [Counts.of(report.component, report.instance, report.counters) for report in self.reports]

    def begin_at(self, start: Position) -> None:
        """The parent is prepared, and ends here."""
        if self.continues:
            self.start = start

    # ---- transitions ----------------------------------------------------------------------------------------------

    def compute(self, assignments: Sequence[Assignment]) -> None:
        self._enter(State.COMPUTING)
        self.assignments = assignments

    def report(self, reports: Sequence[Report]) -> None:
        """No transition: whether the attempts agree is not known yet."""
        assert self._state is State.COMPUTING, self
        self.repeated += self.counts
        self.reports = reports

    def agree(self) -> None:
        self._enter(State.REPORTED)

    def repeat(self) -> None:
        self._enter(State.PLANNED)

    def prepare(self, manifest: Manifest) -> None:
        self._enter(State.PREPARED)
        self._manifest = manifest

    def commit(self, refused: Refusals) -> None:
        self._enter(State.COMMITTED)
        self.refused = refused

    def complete(self) -> None:
        self._enter(State.COMPLETED)

    def finish(self) -> None:
        self._enter(State.FINISHED)

    def idle(self) -> None:
        self._enter(State.IDLE)

    def abandon(self, unreported: Sequence[Counts]) -> None:
        self._enter(State.ABANDONED)
        self.unreported = unreported

    def discard(self) -> None:
        self._enter(State.DISCARDED)

    def fail(self, unreported: Sequence[Counts], failure: str) -> None:
        self._enter(State.FAILED)
        self.unreported, self.failure = unreported, failure

    def _enter(self, state: State) -> None:
        if state not in NEXT[self._state]:
            raise WrongTransition(f"epoch {self.number} is {self._state.value} and cannot become {state.value}")
        self._state = state
