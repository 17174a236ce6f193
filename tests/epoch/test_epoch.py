"""The states of an epoch, and the participants that are told of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sample import Payment, Summing, payments
from streamwork import Job, ListSource, Record, SqliteSink, StatefulSource
from streamwork.engine import Abandoned, EndKnown, Report
from streamwork.epoch import Driver, Epoch, Manifest, Participant, Phase, Plan, Store, collecting, participant
from streamwork.epoch import driver as driver_module
from streamwork.epoch.draft import ManifestDraft
from streamwork.epoch.epoch import NEXT, State, WrongTransition
from streamwork.epoch.slices import Partitions
from streamwork.epoch.timings import Timings
from streamwork.errors import JobFailed
from streamwork.hosts.local import LocalHost
from streamwork.testing.clock import VirtualClock
from streamwork.testing.disk import SimulatedDisk
from streamwork.testing.memory import MemorySink, Table
from streamwork.testing.processes import SimulatedProcesses
from tiers import quick_every

# ---- the transition table ---------------------------------------------------------------------------------------------

MANIFEST = Manifest(1, 0, "", 1, "uid", {}, {}, {}, {}, "")
TRANSITIONS: dict[State, Callable[[Epoch], None]] = {
    State.PLANNED: lambda epoch: epoch.repeat(),
    State.COMPUTING: lambda epoch: epoch.compute(()),
    State.REPORTED: lambda epoch: epoch.agree(),
    State.PREPARED: lambda epoch: epoch.prepare(MANIFEST),
    State.COMMITTED: lambda epoch: epoch.commit({}),
    State.COMPLETED: lambda epoch: epoch.complete(),
    State.FINISHED: lambda epoch: epoch.finish(),
    State.IDLE: lambda epoch: epoch.idle(),
    State.ABANDONED: lambda epoch: epoch.abandon(()),
    State.DISCARDED: lambda epoch: epoch.discard(),
    State.FAILED: lambda epoch: epoch.fail((), "SW-X"),
}
WAYS = {  # a shortest way from PLANNED to each state, written down, so that the table is not its own oracle
    State.PLANNED: (),
    State.COMPUTING: (State.COMPUTING,),
    State.REPORTED: (State.COMPUTING, State.REPORTED),
    State.PREPARED: (State.COMPUTING, State.REPORTED, State.PREPARED),
    State.COMMITTED: (State.COMPUTING, State.REPORTED, State.PREPARED, State.COMMITTED),
    State.COMPLETED: (State.COMPUTING, State.REPORTED, State.PREPARED, State.COMMITTED, State.COMPLETED),
    State.FINISHED: (
        State.COMPUTING,
        State.REPORTED,
        State.PREPARED,
        State.COMMITTED,
        State.COMPLETED,
        State.FINISHED,
    ),
    State.IDLE: (State.COMPUTING, State.REPORTED, State.IDLE),
    State.ABANDONED: (State.ABANDONED,),
    State.DISCARDED: (State.DISCARDED,),
    State.FAILED: (State.COMPUTING, State.FAILED),
}


def epoch_in(state: State) -> Epoch:
    epoch = Epoch(Plan(1, 0, 1, {}, {}), Timings(VirtualClock()), Partitions({}, frozenset()))
    for step in WAYS[state]:
        TRANSITIONS[step](epoch)
    assert epoch.state is state
    return epoch


@pytest.mark.parametrize("start", State, ids=lambda state: state.value)
@pytest.mark.parametrize("end", State, ids=lambda state: state.value)
def test_a_transition_is_in_the_table_or_raises(start: State, end: State) -> None:
    epoch = epoch_in(start)
    if end in NEXT[start]:
        TRANSITIONS[end](epoch)
        assert epoch.state is end
    else:
        with pytest.raises(WrongTransition, match=f"epoch 1 is {start.value} and cannot become {end.value}"):
            TRANSITIONS[end](epoch)
        assert epoch.state is start


def test_from_prepared_on_an_epoch_is_only_rolled_forward() -> None:
    reachable, new = {State.PREPARED}, {State.PREPARED}
    while new:
        new = {after for state in new for after in NEXT[state]} - reachable
        reachable |= new
    assert reachable == {State.PREPARED, State.COMMITTED, State.COMPLETED, State.FINISHED}


def test_every_state_leads_to_an_end() -> None:
    ends = {state for state, after in NEXT.items() if not after}
    assert ends == {State.FINISHED, State.IDLE, State.ABANDONED, State.DISCARDED, State.FAILED}
    assert NEXT.keys() == set(State)


# ---- participants -------------------------------------------------------------------------------------------------------

PHASES = (
    Phase.PLAN,
    Phase.COMPUTE,
    Phase.REPORT,
    Phase.PREPARE,
    Phase.COMMIT,
    Phase.COMPLETE,
    Phase.PRUNE,
    Phase.ABANDON,
)
BEFORE = {Phase.PREPARE: "contribute"}  # told before a listener hears of the phase, and after it
AFTER = {
    Phase.PREPARE: "prepared",
    Phase.COMMIT: "committed",  # there is one sink
    Phase.COMPLETE: "completed",
    Phase.PRUNE: "finished",
}


class Crash(Exception):
    pass


class Recording(Participant):
    """Writes down what it is told. The epoch must be in the state that it is told of."""

    def __init__(self, name: str, calls: list[tuple[str, str, int]]) -> None:
        self._name, self._calls = name, calls
        self.unprepared: set[int] = set()

    def _note(self, hook: str, epoch: Epoch, *states: State) -> None:
        assert epoch.state in states
        self._calls.append((self._name, hook, epoch.number))

    def planned(self, epoch: Epoch) -> None:
        self._note("planned", epoch, State.PLANNED)

    def contribute(self, epoch: Epoch, draft: Any) -> None:
        self._note("contribute", epoch, State.REPORTED)

    def prepared(self, epoch: Epoch) -> None:
        self._note("prepared", epoch, State.PREPARED)

    def committed(self, epoch: Epoch) -> None:
        self._note("committed", epoch, State.COMMITTED)

    def completed(self, epoch: Epoch) -> None:
        self._note("completed", epoch, State.COMPLETED)

    def finished(self, epoch: Epoch) -> None:
        self._note("finished", epoch, State.FINISHED)

    def idle(self, epoch: Epoch) -> None:
        self._note("idle", epoch, State.IDLE)

    def abandoned(self, epoch: Epoch) -> None:
        self._note("abandoned", epoch, State.ABANDONED, State.DISCARDED)

    def failed(self, epoch: Epoch) -> None:
        self._note("failed", epoch, State.FAILED)

    def close(self, unprepared: Sequence[Epoch]) -> None:
        self.unprepared = {epoch.number for epoch in unprepared}


class At(Record):
    offset: int = 0


class Trickle(StatefulSource[Payment, At]):
    """Gives one event in every other epoch."""

    replayable = True
    max_events = 1

    def setup_instance(self, instance: int, state: At | None) -> None:
        self._at = At() if state is None else state
        self._asked = 0

    def get_events(self, collector: Any) -> None:
        self._asked += 1
        if self._asked % 2 == 0:
            self._at.offset += 1
            collector.emit(Payment("card-1", self._at.offset))

    def get_state(self) -> At:
        return self._at


class History:
    """One driver whose epochs are abandoned, fail, are computed again, are idle or crash, by a seed.

    It is host and listener of that driver: from what it sees as such, it says what participants must have been told.
    """

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self.calls: list[tuple[str, str, int]] = []
        self.expected: dict[int, list[str]] = {}
        self.in_flight: set[int] = set()
        self.recorders = [Recording("first", self.calls), Recording("second", self.calls)]
        self._polled = self._rng.random() < 0.3
        self._crash_at, self._crash_from = self._rng.choice([None, *PHASES]), self._rng.randint(1, 6)
        self._repeats: dict[int, int] = {}
        self._collecting = 0
        self._disk = SimulatedDisk()
        self._host = LocalHost(self._disk)

    # ---- the host -------------------------------------------------------------------------------------------------

    name = "local"
    overlaps = False
    continuous = False
    ends_known = EndKnown.BY_PLAN
    sizes_slices = False
    bounds = False

    def open(self, graph: Any) -> None: ...

    def keep_warm(self) -> None: ...

    def close(self) -> None: ...

    def submit(self, layout: Any, assignments: Sequence[Any]) -> None:
        epoch = assignments[0].epoch
        if epoch in self.in_flight:
            self._give_up([later for later in self.in_flight if later > epoch])
        self.in_flight.add(epoch)
        self.expected.setdefault(epoch, []).append("planned")
        self._host.submit(layout, assignments)

    def collect(self, epoch: int, expired: Callable[[], bool]) -> Sequence[Report]:
        self._collecting = epoch
        reports = self._host.collect(epoch, expired)
        fate = self._rng.choices(["done", "abandoned", "failed"], (12, 2, 1))[0]
        if fate == "abandoned":
            self._host.abandon()
            self._give_up([later for later in self.in_flight if later >= epoch])
            raise Abandoned(epoch)
        if fate == "failed":
            self.expected[epoch].append("failed")
            raise JobFailed("SW-X", "it failed", "nothing")
        return reports

    def _give_up(self, epochs: Sequence[int]) -> None:
        for epoch in epochs:
            self.expected[epoch].append("abandoned")
            self.in_flight.discard(epoch)

    def wasted(self) -> Sequence[Any]:
        return self._host.wasted()

    def abandon(self) -> None:
        self._host.abandon()

    def disagreement(self, layout: Any, reports: Sequence[Report]) -> str:
        done = self._repeats.setdefault(self._collecting, self._rng.choice([0, 0, 0, 1, 2]))
        self._repeats[self._collecting] = max(0, done - 1)
        if not done:
            return ""
        self._host.abandon()
        return "they do not agree"

    # ---- the listener ---------------------------------------------------------------------------------------------

    def on_phase(self, phase: Phase, epoch: int, manifest: Manifest | None) -> None:
        if epoch == 0 or (epoch not in self.expected and phase is not Phase.PLAN):
            return  # of the start
        told = self.expected.get(epoch, [])
        if phase in BEFORE:
            told.append(BEFORE[phase])
            self.in_flight.discard(epoch)
        if phase is self._crash_at and epoch >= self._crash_from:
            if phase is Phase.COMPUTE:
                told.append("failed")
            raise Crash
        if phase in AFTER:
            told.append(AFTER[phase])

    # ---- one life -------------------------------------------------------------------------------------------------

    def live(self) -> None:
        job = Job("told", checkpoint_every=0)
        source: Any = Trickle() if self._polled else ListSource(payments(40), Payment, max_events=4)
        seen = job.source(source, id="in").apply(Summing(), key="card", id="sums")
        seen.sink(SqliteSink("never-opened.db", "t"), id="out")
        driver = Driver(
            job.graph(instead={"out": MemorySink(Table(), True)}),
            job.settings,
            Store(self._disk, Path("/told"), job.name),
            self,
            VirtualClock(),
            lambda: f"{self._rng.randrange(2**64):016x}",
            listener=self,
            depth=(depth := self._rng.randint(1, 2)),
            overlap=depth == 1 and self._rng.random() < 0.5,
            processes=SimulatedProcesses(),
            participants=self.recorders,
        )
        driver.start()
        with suppress(Crash, JobFailed):
            for _ in range(12):
                if driver.run_epoch() is None:
                    if self._collecting not in self.in_flight:
                        break
                    self.expected[self._collecting].append("idle")
                    self.in_flight.discard(self._collecting)
        driver.close()

    def differences(self) -> list[str]:
        """What was told differently."""
        found = []
        for recorder in self.recorders:
            told: dict[int, list[str]] = {}
            for name, hook, epoch in self.calls:
                if name == recorder._name:
                    told.setdefault(epoch, []).append(hook)
            if told != self.expected:
                found.append(f"{recorder._name} was told {told} instead of {self.expected}")
            if recorder.unprepared != self.in_flight:
                found.append(f"{recorder.unprepared} were left unprepared, and not {self.in_flight}")
        if self.calls[::2] != [("first", *what) for _, *what in self.calls[1::2]]:
            found.append("they were not told in the order of the list")
        return found


SEEDS = range(300)


def histories(monkeypatch: pytest.MonkeyPatch, seeds: Sequence[int] = SEEDS) -> Iterator[History]:
    for seed in seeds:
        history = History(seed)
        monkeypatch.setattr(collecting, "disagreement", history.disagreement)
        history.live()
        yield history


@pytest.mark.parametrize("seeds", quick_every(2, [SEEDS[:60], SEEDS[60:]]), ids=["the first", "the others"])
def test_participants_are_told_of_every_state_in_the_order_of_the_list(
    monkeypatch: pytest.MonkeyPatch, seeds: Sequence[int]
) -> None:
    seen: set[str] = set()
    for seed, history in zip(seeds, histories(monkeypatch, seeds), strict=True):
        assert not history.differences(), f"seed {seed}"
        seen |= {hook for hooks in history.expected.values() for hook in hooks}
        seen |= {"repeated" for hooks in history.expected.values() if hooks[:2] == ["planned", "planned"]}
        seen |= {"unprepared"} if history.in_flight else set()
    assert seen >= {"finished", "idle", "abandoned", "failed", "repeated", "unprepared"}, "the seeds reach too little"


@pytest.mark.parametrize("state", [State.ABANDONED, State.DISCARDED, State.FAILED, State.IDLE, State.FINISHED])
def test_without_one_of_the_calls_the_checker_notices(monkeypatch: pytest.MonkeyPatch, state: State) -> None:
    monkeypatch.setitem(participant._HOOKS, state, lambda participant, epoch: None)  # type: ignore[arg-type]
    assert any(history.differences() for history in histories(monkeypatch))


def test_in_another_order_the_checker_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    inform = driver_module.inform
    monkeypatch.setattr(driver_module, "inform", lambda told, epoch: inform(tuple(told)[::-1], epoch))
    assert any(history.differences() for history in histories(monkeypatch, range(5)))


def test_what_a_participant_contributes_is_in_the_manifest() -> None:
    class Contributing(Participant):
        def contribute(self, epoch: Epoch, draft: ManifestDraft) -> None:
            draft.count({"elsewhere": {"processed": epoch.number, "dropped": epoch.number}})

    history = History(0)
    history.recorders = [Contributing()]  # type: ignore[list-item]
    history._crash_at = None
    with suppress(Exception):
        history.live()
    stored = [one.manifest for one in Store(history._disk, Path("/told"), "told").stored() if one.manifest is not None]
    counted = {manifest.epoch: manifest.counters["elsewhere"]["dropped"] for manifest in stored if manifest.epoch}
    assert counted and all(epoch == dropped for epoch, dropped in counted.items())
