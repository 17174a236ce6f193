"""Who may drive a job: the newcomer's rule, on a disk in memory, with virtual time and processes that are told apart by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamwork.epoch.fences import Beat, Fences, HolderState, Life
from streamwork.errors import Refused
from streamwork.testing import DiskCrashed, SimulatedDisk
from streamwork.testing.clock import VirtualClock
from streamwork.world import Clock, ProcessId

JOB = Path("/jobs/job")
LEASE = 10.0


class World:
    """Some machines that share a disk and a clock."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.clock = Ticking()
        self.dead: set[ProcessId] = set()

    def fences(self, host: str = "here", pid: int = 1) -> Fences:
        return Fences(self.disk, JOB, self.clock, Machine(self, ProcessId(host, pid, 0.0)))

    def path(self, name: str) -> Path:
        return JOB / "fences" / name


class Machine:
    def __init__(self, world: World, me: ProcessId) -> None:
        self._world = world
        self._me = me

    def me(self) -> ProcessId:
        return self._me

    def gone(self, process: ProcessId) -> bool:
        return process.host == self._me.host and process in self._world.dead


class Ticking(VirtualClock):
    """While somebody sleeps, the others go on."""

    def __init__(self) -> None:
        super().__init__()
        self.others: list[Fences] = []
        self.slept = 0.0
        self.at: dict[float, object] = {}

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        before, self.slept = self.slept, self.slept + seconds
        for moment, happens in list(self.at.items()):
            if self.slept >= moment:
                del self.at[moment]
                happens()  # type: ignore[operator]
        if int(self.slept / LEASE * 4) > int(before / LEASE * 4):
            for other in self.others:
                other.beat()


@pytest.fixture
def world() -> World:
    return World()


def test_numbers_only_grow(world: World) -> None:
    assert world.fences().highest() == 0
    assert world.fences().newest() is None
    assert [world.fences().claim().fence for _ in range(3)] == [1, 2, 3]
    assert world.fences().claim(floor=41).fence == 42, "a sink has seen 41"
    world.disk.remove(world.path("42.json"))
    assert world.fences().claim().fence == 43, "42.alive tells that the number was taken"


def test_two_that_claim_at_once_get_different_numbers(world: World) -> None:
    class Slow(SimulatedDisk):
        """Shows the folder as it was when the first of them looked."""

        stale = False

        def names(self, folder: Path) -> list[str]:
            return [] if self.stale else super().names(folder)

    world.disk = disk = Slow()
    assert world.fences(pid=1).claim().fence == 1
    disk.stale = True
    assert world.fences(pid=2).claim().fence == 2


def test_nobody_is_waited_for_where_nobody_is(world: World) -> None:
    world.fences().wait(LEASE)
    assert world.clock.slept == 0


def test_a_holder_that_ended_well_is_not_waited_for_even_elsewhere(world: World) -> None:
    holder = world.fences("there")
    holder.claim()
    holder.end()
    world.fences().wait(LEASE)
    assert world.clock.slept == 0


def test_a_holder_whose_process_is_gone_is_not_waited_for_here_but_elsewhere(world: World) -> None:
    for host, waited in (("here", 0.0), ("there", LEASE)):
        world = World()
        process = world.fences(host).claim().process
        world.dead.add(process)
        world.fences("here", pid=2).wait(LEASE)
        assert world.clock.slept == pytest.approx(waited), host


@pytest.mark.parametrize("host", ["here", "there"])
def test_a_holder_that_lives_is_left_alone(world: World, host: str) -> None:
    holder = world.fences(host, pid=77)
    holder.claim()
    world.clock.others.append(holder)
    newcomer = world.fences("here", pid=2)
    with pytest.raises(
        Refused, match=rf"SW-DRIVER-ALIVE: process 77 on {host} .* since 2026-01-01 .*\n.*stop.*--take-over"
    ):
        newcomer.wait(LEASE)
    assert world.clock.slept < LEASE, "one beat is enough"
    assert newcomer.mine is None and world.fences().highest() == 1, "nothing was written"


def test_who_was_watched_in_vain_is_not_watched_again_unless_it_has_moved_since(world: World) -> None:
    holder = world.fences("there", pid=77)
    holder.claim()
    early, late = world.fences("here", pid=2), world.fences("here", pid=2)
    early.wait(LEASE)
    assert world.clock.slept == pytest.approx(LEASE)
    late.silent = early.silent
    late.wait(LEASE)
    assert world.clock.slept == pytest.approx(LEASE), "it stands where it stood"
    holder.beat()
    world.clock.others.append(holder)
    with pytest.raises(Refused, match="SW-DRIVER-ALIVE"):
        late.wait(LEASE)


def test_take_over_asks_nobody(world: World) -> None:
    holder = world.fences()
    holder.claim()
    world.clock.others.append(holder)
    newcomer = world.fences(pid=2)
    newcomer.wait(LEASE, take_over=True)
    newcomer.claim()
    assert world.clock.slept == 0
    newcomer.check(2)
    with pytest.raises(Refused, match="SW-DRIVER-FENCED: process 2 on here .* fence 2, this driver fence 1"):
        holder.check(1)


def test_a_holder_that_stands_still_is_given_the_whole_lease(world: World) -> None:
    world.fences("there").claim()
    told: list[str] = []
    newcomer = world.fences()
    newcomer.tell = told.append
    newcomer.wait(LEASE)
    assert world.clock.slept == pytest.approx(LEASE)
    assert told == ["process 1 on there holds this job; watching for 10 s whether it is alive"]


def test_a_longer_lease_of_the_holder_counts(world: World) -> None:
    """It beats less often, so that whoever watches shorter would take it for dead."""
    world.fences("there").claim(lease=60.0)
    world.fences().wait(LEASE)
    assert world.clock.slept == pytest.approx(60.0)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b'{"count": "many"}', b'{"count": 1, "phase": "dancing"}', None])
def test_an_alive_file_that_cannot_be_read_does_not_move(world: World, content: bytes | None) -> None:
    world.fences("there").claim()
    if content is None:
        world.disk.remove(world.path("1.alive"))
    else:
        world.disk.replace(world.path("1.alive"), content)
    newcomer = world.fences()
    newcomer.wait(LEASE)
    assert world.clock.slept == pytest.approx(LEASE)
    assert newcomer.claim().fence == 2


def test_a_fence_that_cannot_be_read_is_somebody(world: World) -> None:
    world.fences().claim()
    world.disk.replace(world.path("1.json"), b"{")
    world.fences().wait(LEASE)
    assert world.clock.slept == pytest.approx(LEASE)
    assert world.fences().claim().fence == 2


def test_the_end_while_it_is_watched_ends_the_watch(world: World) -> None:
    holder = world.fences("there")
    holder.claim()
    world.clock.at[3.0] = holder.end
    world.fences().wait(LEASE)
    assert world.clock.slept == pytest.approx(3.0, abs=0.2)


def test_another_newcomer_that_comes_first_is_looked_at_in_turn(world: World) -> None:
    world.fences("there").claim()
    faster = world.fences("yonder", pid=5)

    def overtake() -> None:
        faster.claim()
        world.clock.others.append(faster)

    world.clock.at[9.0] = overtake
    with pytest.raises(Refused, match="SW-DRIVER-ALIVE: process 5 on yonder"):
        world.fences().wait(LEASE)


def test_a_driver_that_starts_again_does_not_wait_for_itself_but_others_do(world: World) -> None:
    first = world.fences(pid=1)
    first.claim()
    first.end()
    first.rest()
    world.clock.others.append(first)
    world.fences(pid=1).wait(LEASE)
    assert world.clock.slept == 0
    with pytest.raises(Refused, match="SW-DRIVER-ALIVE"):
        world.fences(pid=2).wait(LEASE)


def test_a_beat_after_the_end_does_not_raise_the_dead(world: World) -> None:
    holder = world.fences("there")
    holder.beat()  # before it has claimed anything
    assert world.disk.names(JOB / "fences") == []
    holder.claim()
    holder.beat()
    holder.end()
    holder.beat()
    found = holder.holder()
    assert found is not None and found.life is Life.ENDED


def test_what_status_sees(world: World) -> None:
    assert world.fences().holder() is None
    here = world.fences("here")
    here.claim()
    assert _life(world) is Life.RUNNING
    world.dead.add(ProcessId("here", 1, 0.0))
    assert _life(world) is Life.GONE
    there = world.fences("there")
    there.claim()
    assert _life(world) is Life.UNKNOWN
    assert _life(world, watch=5) is Life.UNKNOWN, "it does not move"
    world.clock.others.append(there)
    assert _life(world, watch=5) is Life.RUNNING
    there.end()
    assert _life(world) is Life.ENDED
    there.rest()
    found = world.fences("there", pid=9).holder()
    assert found is not None and (found.life, found.restarting) == (Life.RUNNING, True)


def _life(world: World, watch: float = 0.0) -> Life:
    found = world.fences("here", pid=9).holder(watch)
    assert found is not None
    return found.life


def test_starts_are_kept_and_damage_is_not_guessed_away(world: World) -> None:
    for epoch in (0, 7):
        fences = world.fences()
        fences.claim()
        fences.starts.write(fences.mine.fence, epoch, f"hash-{epoch}")
    found = world.fences().starts.all()
    assert {number: (start.epoch, start.sha256) for number, start in found.items()} == {
        1: (0, "hash-0"),
        2: (7, "hash-7"),
    }
    for damage in (b"", b"{", world.disk.read(world.path("1.start.json"))):
        world.disk.replace(world.path("2.start.json"), damage)
        with pytest.raises(Refused, match=r"SW-FENCE-DAMAGED: .*2\.start\.json"):
            world.fences().starts.all()


def test_old_fences_are_forgotten_but_never_the_newest(world: World) -> None:
    for _ in range(4):
        fences = world.fences()
        fences.claim()
        fences.starts.write(fences.mine.fence, 0, "x")
    world.fences().forget(below=3)
    assert world.disk.names(JOB / "fences") == [f"{n}{s}" for n in (3, 4) for s in (".alive", ".json", ".start.json")]
    world.fences().forget(below=99)
    assert world.fences().highest() == 4
    assert world.fences().claim().fence == 5


def test_a_crash_anywhere_in_claiming_leaves_a_job_that_can_be_claimed() -> None:
    steps = _claim(SimulatedDisk(), None)
    assert steps > 3
    for step in range(1, steps + 1):
        disk = SimulatedDisk(seed=step)
        with pytest.raises(DiskCrashed):
            _claim(disk, step)
        disk.crash()
        clock: Clock = VirtualClock()
        fences = Fences(disk, JOB, clock, Machine(World(), ProcessId("here", 2, 0.0)))
        fences.wait(LEASE)
        assert fences.claim().fence in (1, 2)


def _claim(disk: SimulatedDisk, crash_at: int | None) -> int:
    disk.crash_at(crash_at)
    Fences(disk, JOB, VirtualClock(), Machine(World(), ProcessId("here", 1, 0.0))).claim()
    return disk.steps


def test_the_beat_on_disk_is_what_the_page_says(world: World) -> None:
    holder = world.fences()
    holder.claim()
    assert world.disk.read(world.path("1.alive")) == b'{"count":1,"phase":"running"}\n'
    holder.end()
    assert holder._read_beat(1) == Beat(2, HolderState.ENDED)
