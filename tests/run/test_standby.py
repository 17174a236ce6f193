"""A standby: what it makes of what it sees, who wins of several, its files, and what it reads ahead."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sample import Payment, Seen, Sums, payments, run_job, summing_job
from streamwork import Job, KeyedOperator, ListSource, Refused, SqliteSink, WrongUse
from streamwork.engine import Assignment
from streamwork.epoch import Store
from streamwork.epoch.fences import Beat, End, Fence, Fences, HolderState, Sign
from streamwork.hosts.local import LocalHost
from streamwork.job import Layout
from streamwork.run.mode import Mode
from streamwork.run.options import RunOptions
from streamwork.run.read_ahead import MOST_SECONDS, READ_SECONDS, ReadAhead, pause_after
from streamwork.run.runner import run
from streamwork.run.standby import LONGEST_POLL, Move, Stillness, judge
from streamwork.run.standbys import STALE_SECONDS, Place, ask_to_end, standbys
from streamwork.testing import SimulatedDisk
from streamwork.testing.clock import VirtualClock
from streamwork.world import ProcessId, RealClock, RealDisk, RealProcesses

JOB = Path("/jobs/job")
HERE, THERE = ProcessId("here", 1, 0.0), ProcessId("there", 2, 0.0)
LEASE = 10.0


class Machine:
    """A process, and those that it knows to have ended."""

    def __init__(self, me: ProcessId, dead: Sequence[ProcessId] = ()) -> None:
        self._me = me
        self.dead = set(dead)

    def me(self) -> ProcessId:
        return self._me

    def gone(self, process: ProcessId) -> bool:
        return process.host == self._me.host and process in self.dead


# ---- what it does ---------------------------------------------------------------------------------------------------------


def sign(
    phase: HolderState, end: End | None = None, gone: bool = False, own: bool = False, lease: float = LEASE
) -> Sign:
    return Sign(Fence(7, THERE, 0.0, lease), Beat(3, phase, end), gone, own)


RUNNING, RESTARTING, ENDED = HolderState.RUNNING, HolderState.RESTARTING, HolderState.ENDED


@pytest.mark.parametrize(
    ("seen", "move"),
    [
        (None, Move.TAKE_OVER),
        (sign(RUNNING), Move.WAIT),
        (sign(RESTARTING), Move.WAIT),
        (sign(RUNNING, gone=True), Move.TAKE_OVER),
        (sign(RESTARTING, gone=True), Move.TAKE_OVER),
        (sign(RESTARTING, own=True), Move.TAKE_OVER),
        (sign(RUNNING, own=True), Move.WAIT),
        (sign(ENDED), Move.WAIT),  # it may be about to say that it starts again
        (sign(ENDED, gone=True), Move.TAKE_OVER),
        (sign(ENDED, End.STOPPED), Move.END),
        (sign(ENDED, End.STOPPED, gone=True), Move.END),
        (sign(ENDED, End.FINISHED, gone=True), Move.END),
        (sign(ENDED, End.SIGNALLED), Move.TAKE_OVER),
        (sign(ENDED, End.FAILED), Move.TAKE_OVER),
    ],
)
def test_what_a_standby_does(seen: Sign | None, move: Move) -> None:
    assert judge(seen, False, 0.0, LEASE)[0] is move


@pytest.mark.parametrize("end", End)
def test_a_standby_that_finds_a_job_at_rest_starts_it(end: End) -> None:
    assert judge(sign(ENDED, end), True, 0.0, LEASE)[0] is Move.TAKE_OVER


@pytest.mark.parametrize("phase", HolderState)
def test_a_holder_that_stands_still_is_waited_for_as_long_as_the_longer_lease(phase: HolderState) -> None:
    for mine, theirs in ((LEASE, 1.0), (1.0, LEASE)):
        assert judge(sign(phase, lease=theirs), False, LEASE - 0.01, mine)[0] is Move.WAIT
        move, why = judge(sign(phase, lease=theirs), False, LEASE, mine)
        assert move is Move.TAKE_OVER and why == "process 2 on there has given no sign of life for 10 s"


def test_standing_still_is_counted_while_this_process_looks() -> None:
    stillness = Stillness()
    assert stillness.look(sign(RUNNING), 100.0) == 0.0
    assert stillness.look(sign(RUNNING), 100.5) == 0.5
    assert stillness.look(sign(RUNNING), 4000.0) == 0.5 + LONGEST_POLL, "suspended: the holder may have been, too"
    moved = msgspec.structs.replace(sign(RUNNING), beat=Beat(4, RUNNING))
    assert stillness.look(moved, 4000.1) == 0.0
    assert stillness.look(None, 4000.2) == 0.0


# ---- several standbys -----------------------------------------------------------------------------------------------------


def heirs(heir_of: int | None) -> tuple[Fences, Fences]:
    """Two drivers that have watched fence 1, whose holder is gone."""
    disk, clock = SimulatedDisk(), VirtualClock()
    Fences(disk, JOB, clock, Machine(HERE)).claim()
    both = tuple(Fences(disk, JOB, clock, Machine(ProcessId("here", 10 + i, 0.0), [HERE])) for i in range(2))
    for one in both:
        one.heir_of = heir_of
        one.wait(LEASE)
    return both  # type: ignore[return-value]


@pytest.mark.proves("several standbys of one driver")
def test_one_of_two_heirs_claims_the_job() -> None:
    winner, loser = heirs(1)
    assert winner.claim().fence == 2
    with pytest.raises(Refused, match="SW-DRIVER-ALIVE"):
        loser.claim()
    with pytest.raises(Refused, match="SW-DRIVER-ALIVE"):
        loser.wait(LEASE)
    assert loser.mine is None
    winner.check(2)


def test_the_race_is_decided_by_the_exclusive_creation() -> None:
    winner, loser = heirs(1)
    highest = loser.highest()
    winner.claim()
    loser.highest = lambda: highest  # type: ignore[method-assign]  # it looked just before
    with pytest.raises(Refused, match="SW-DRIVER-ALIVE"):
        loser.claim()
    winner.check(2)


@pytest.mark.proves("a standby claims only the fence after the one it watched")
def test_without_the_rule_the_second_takes_the_job_from_the_first() -> None:
    winner, second = heirs(None)
    winner.claim()
    assert second.claim().fence == 3
    with pytest.raises(Refused, match="SW-DRIVER-FENCED"):
        winner.check(2)


# ---- its files ------------------------------------------------------------------------------------------------------------


def test_a_standby_is_listed_until_it_leaves() -> None:
    disk, clock, machine = SimulatedDisk(), VirtualClock(), Machine(HERE)
    place = Place(disk, JOB, clock, machine)
    place.enter()
    assert standbys(disk, JOB, clock, machine) == []
    place.write(7, None)
    clock.sleep(1)
    place.write(7, 42)
    (found,) = standbys(disk, JOB, clock, machine)
    assert (found.process, found.fence, found.checkpoint, clock.now() - found.since) == (HERE, 7, 42, 1)
    clock.sleep(0.1)
    before = found
    place.write(7, 42)
    assert standbys(disk, JOB, clock, machine) == [before], "it is not written at each look"
    ask_to_end(disk, JOB, found)
    assert place.asked_to_end()
    place.leave()
    assert standbys(disk, JOB, clock, machine) == [] and disk.names(JOB / "standbys") == []


def test_a_standby_that_is_gone_is_not_listed_and_its_files_are_removed_by_the_next() -> None:
    disk, clock = SimulatedDisk(), VirtualClock()
    killed = Place(disk, JOB, clock, Machine(HERE))
    killed.enter()
    killed.write(7, 42)
    machine = Machine(ProcessId("here", 3, 0.0), dead=[HERE])
    assert standbys(disk, JOB, clock, machine) == []
    Place(disk, JOB, clock, machine).enter()
    assert disk.names(JOB / "standbys") == []


def test_a_standby_elsewhere_is_listed_as_long_as_it_says_so() -> None:
    disk, clock = SimulatedDisk(), VirtualClock()
    place = Place(disk, JOB, clock, Machine(THERE))
    place.enter()
    place.write(7, 42)
    clock.sleep(STALE_SECONDS - 1)
    place.write(7, 42)
    clock.sleep(STALE_SECONDS - 1)
    assert len(standbys(disk, JOB, clock, Machine(HERE))) == 1
    clock.sleep(1)
    assert standbys(disk, JOB, clock, Machine(HERE)) == []


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b'{"id": "../../job", "process": 1}'])
def test_a_file_that_cannot_be_read_is_passed_over(content: bytes) -> None:
    disk = SimulatedDisk()
    disk.make_folder(JOB / "standbys")
    disk.create(JOB / "standbys" / "a.json", content)
    assert standbys(disk, JOB, VirtualClock(), Machine(HERE)) == []


# ---- reading ahead --------------------------------------------------------------------------------------------------------


class Reading(LocalHost):
    """Remembers what it was to read."""

    def __init__(self) -> None:
        super().__init__(RealDisk())
        self.read: list[Sequence[Assignment]] = []

    def read_ahead(self, layout: Layout, works: Sequence[Assignment]) -> None:
        self.read.append(works)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    run_job(summing_job(payments(30), tmp_path / "out.db"), tmp_path / "root")
    return tmp_path / "root"


def reader(job: Job, root: Path, notes: list[str] | None = None) -> tuple[ReadAhead, Reading]:
    store, host = Store(RealDisk(), root, "summing"), Reading()
    fences = Fences(store.disk, store.folder, RealClock(), RealProcesses())
    return ReadAhead(job.graph(), store, fences.starts, host, ([] if notes is None else notes).append), host


def test_the_newest_checkpoint_is_read_once(root: Path) -> None:
    ahead, host = reader(summing_job(payments(60), root.parent / "out.db"), root)
    ahead.read()
    ahead.read()
    assert ahead.checkpoint == 3 and ahead.reads == 1 and len(host.read) == 1
    (chain,) = (work.states["sums"] for work in host.read[0] if work.states)
    assert chain and all((root / "summing" / ref.path).exists() for ref in chain)
    run_job(summing_job(payments(60), root.parent / "out.db"), root)
    ahead.read()
    assert ahead.checkpoint == 6 and len(host.read) == 2


def test_a_job_that_has_never_run_has_nothing_to_read(tmp_path: Path) -> None:
    ahead, host = reader(summing_job(payments(1), tmp_path / "out.db"), tmp_path / "root")
    ahead.read()
    assert ahead.checkpoint is None and host.read == []


class OtherSums(Sums):
    number: str = ""  # type: ignore[assignment]


class Otherwise(KeyedOperator[Payment, OtherSums, Seen]):
    def apply(self, event: Payment, state: OtherSums, collector: Any) -> None: ...


def test_a_job_that_does_not_fit_is_refused_before_the_takeover(root: Path) -> None:
    job = Job("summing")
    seen = job.source(ListSource(payments(30), Payment), id="payments").apply(Otherwise(), key="card", id="sums")
    seen.sink(SqliteSink(root.parent / "out.db", "journal"), id="journal")
    ahead, host = reader(job, root)
    with pytest.raises(Refused, match="SW-STATE-SCHEMA"):
        ahead.read()
    assert host.read == []


def test_a_damaged_file_is_reported_once_and_does_not_end_the_standby(root: Path) -> None:
    notes: list[str] = []
    ahead, _ = reader(summing_job(payments(60), root.parent / "out.db"), root, notes)
    damaged = next((root / "summing" / "state").rglob("*.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    ahead.read()
    ahead.read()
    assert len(notes) == 1 and damaged.name in notes[0] and "standby: checkpoint 3 is damaged" in notes[0]


def test_reading_takes_a_small_part_of_the_time() -> None:
    assert pause_after(0.01, 9) == READ_SECONDS
    assert pause_after(1.0, 9) == 19.0
    assert pause_after(10.0, 9) == MOST_SECONDS
    assert pause_after(10.0, 1) == READ_SECONDS, "the first one has started workers"


# ---- options --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"take_over": True}, "--take-over"),
        ({"mode": Mode.BATCH}, "--mode batch"),
        ({"drop_state": ("sums",)}, "--drop-state"),
        ({"refill": ("journal",)}, "--refill"),
        ({"change_semantics": True}, "--change-semantics"),
    ],
)
def test_options_that_are_for_one_start_exclude_a_standby(tmp_path: Path, other: dict[str, Any], named: str) -> None:
    options = RunOptions(**{"mode": Mode.LOCAL, **other}, root=tmp_path / "root", standby=True)
    with pytest.raises(WrongUse, match=f"--standby and {named}"):
        run(summing_job(payments(30), tmp_path / "out.db"), options)
    assert not (tmp_path / "root").exists()


def test_a_standby_of_a_job_that_has_never_run_starts_it(tmp_path: Path) -> None:
    outcome = run_job(summing_job(payments(30), tmp_path / "out.db"), tmp_path / "root", standby=True)
    assert (outcome.started, outcome.checkpoint) == ("new", 3)
    again = run_job(summing_job(payments(60), tmp_path / "out.db"), tmp_path / "root", standby=True)
    assert (again.started, again.checkpoint) == ("resumed at checkpoint 3", 6)
    assert list((tmp_path / "root" / "summing" / "standbys").iterdir()) == []
