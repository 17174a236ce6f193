"""How a checkpoint works: what the page says a start would do after a kill is what a start then does."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from failpoint_job import SLICE as FAILPOINT_SLICE
from matrix.faults import Fault
from matrix.targets import SINKS
from matrix.world import MORE, SLICE, World
from sample import Payment, payments, run_job, summing_job
from streamwork import WrongUse
from streamwork.components import LedgerRow
from streamwork.epoch import Phase, driver
from streamwork.epoch.recovery import next_start
from streamwork.epoch.recovery.catalogue import Catalogue
from streamwork.epoch.recovery.next_start import Action
from streamwork.epoch.recovery.restore_point import RestorePoint, choose
from streamwork.epoch.recovery.sink_paths import SinkPaths
from streamwork.observe.checkpoints import CheckpointState, read_checkpoints
from streamwork.observe.explained import CrashRow, ExplainedEpoch, explain_epoch
from streamwork.observe.explained.protocol import STEPS
from streamwork.world import RealClock
from test_failpoints import Life, add_events

EPOCH = 3
"""The epoch in which a life is killed: it has a parent, and its sinks have been written before."""
EXACTLY_ONCE = {name: SINKS[name] for name in ("SQLite", "SQLite + log")}


def explained(world: World, epoch: int = EPOCH) -> ExplainedEpoch:
    return explain_epoch(world.root, "matrix", world.clock, epoch)


def whole(folder: Path, sinks: tuple[str, ...], semantics: str = "exactly-once") -> ExplainedEpoch:
    """The epoch in a run that nothing disturbs."""
    world = World(folder, sinks, semantics=semantics)
    world.live(MORE[: EPOCH * SLICE]).survived()
    return explained(world)


def kill(world: World, row: CrashRow) -> None:
    """Kill the driver where this row of the crash table says."""
    committed = row.killed.startswith("during 5") or row.killed.startswith("after 5")
    nth = 1 if not committed else 1 if row.offered else len(row.held)
    broken = world.live(MORE[: EPOCH * SLICE], Fault(f"told {row.step} {EPOCH}", nth, dead=True))
    assert broken.error is not None


def happened(world: World) -> dict[str, Any]:
    """What the next start does, as its trace and its plans show it."""
    before = len(world.trace)
    life = world.live(MORE[: (EPOCH + 1) * SLICE]).survived()
    assert life.started is not None
    trace = world.trace[before:]
    recovery = trace[: trace.index(f"told ready {life.started.resumed_at}")]
    first = min(number for number, plan in world.plans.items() if plan["fence"] == max(world.fences))
    return {
        "resumes_at": life.started.resumed_at,
        "completes": life.started.rolled_forward == EPOCH,
        "written": {line.removeprefix("rows written to ") for line in recovery if line.startswith("rows written")},
        "reads_from": world.plans[first]["from"],
    }


def said(row: CrashRow) -> dict[str, Any]:
    return {
        "resumes_at": row.resumes_at,
        "completes": row.action == Action.ROLL_FORWARD.value,
        "written": set(row.offered),
        "reads_from": row.reads_from,
    }


class Killed(World):
    @property
    def fences(self) -> list[int]:
        return [int(path.stem) for path in self.home.glob("fences/*.json") if path.name.count(".") == 1]


def compare(folder: Path, row: CrashRow, sinks: tuple[str, ...], semantics: str = "exactly-once") -> None:
    world = Killed(folder, sinks, semantics=semantics)
    kill(world, row)
    assert happened(world) == said(row), row.killed


@pytest.mark.parametrize("sinks", EXACTLY_ONCE.values(), ids=EXACTLY_ONCE)
def test_what_is_said_of_each_kill_is_what_the_next_start_does(tmp_path: Path, sinks: tuple[str, ...]) -> None:
    table = whole(tmp_path / "whole", sinks).crash_table
    assert len(table) == 6 + len(sinks), "each phase, and each sink's commit"
    assert {row.action for row in table} == {"read again", "roll forward", "go on"}
    for number, row in enumerate(table):
        compare(tmp_path / str(number), row, sinks)


@pytest.mark.parametrize("semantics", ["at-least-once", "at-most-once"])
def test_the_same_under_other_semantics(tmp_path: Path, semantics: str) -> None:
    table = whole(tmp_path / "whole", ("journal",), semantics).crash_table
    assert [row.step for row in table] == ["plan", "compute", "report", "prepare", "complete", "prune"]
    assert table[0].action == ("leave out" if semantics == "at-most-once" else "read again")
    for number, row in enumerate(table):
        compare(tmp_path / str(number), row, ("journal",), semantics)


def test_control_a_policy_that_ignores_prepared_manifests_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is what the policy of a start says: with another policy it is another table, and recovery contradicts it."""

    def without_prepared(
        catalogue: Catalogue, paths: SinkPaths, ledgers: Mapping[str, LedgerRow | None], why: Any
    ) -> RestorePoint:
        point = choose(catalogue, paths, ledgers, why)
        parent = catalogue.parent(point.at)
        return point if point.completed or parent is None else replace(point, at=parent, completed=True, offers=())

    monkeypatch.setattr(next_start, "choose", without_prepared)
    table = whole(tmp_path / "whole", ("journal",)).crash_table
    (row,) = [row for row in table if row.step == "prepare"]
    assert row.action == "read again"
    with pytest.raises(AssertionError, match="after 4 prepare"):
        compare(tmp_path / "killed", row, ("journal",))


def test_the_steps_are_those_of_the_driver() -> None:
    numbered = re.findall(r"^    ([1-6.])  (\w+)", driver.__doc__ or "", re.MULTILINE)
    assert [(words.number, phase.value) for phase, words in STEPS.items()] == numbered


# ---- the files ----------------------------------------------------------------------------------------------------------


def test_the_files_are_those_that_are_there(tmp_path: Path) -> None:
    world = World(tmp_path, ("journal",))
    world.live(MORE[: EPOCH * SLICE]).survived()
    found = explained(world)
    files = {step.name: step.files for step in found.steps}
    there = {path.relative_to(world.home).as_posix() for path in world.home.rglob(f"{EPOCH:012d}*") if path.is_file()}
    assert {file.path for step in found.steps for file in step.files} == there
    assert all(file.there and file.written_at for step in found.steps for file in step.files)
    (prepared,), (completed,) = files["prepare"], files["complete"]
    assert prepared.sha256 == completed.sha256 == found.steps[4].ledgers[0].manifest_sha256 == world.newest()[1]
    assert found.steps[4].ledgers[0].position == found.end == world.ledger("journal")[0]
    assert found.state is CheckpointState.COMPLETED and found.here == len(found.crash_table) - 1
    assert found.events == SLICE and all(step.reached for step in found.steps)


@pytest.mark.parametrize(
    ("at", "here", "reached"),
    [
        ("told plan 3", "after 1 plan", "plan"),
        ("told report 3", "during 2 compute", "compute"),
        ("told prepare 3", "after 4 prepare", "prepare"),
    ],
)
def test_an_epoch_that_is_not_finished_stands_where_its_files_say(
    tmp_path: Path, at: str, here: str, reached: str
) -> None:
    world = World(tmp_path, ("journal",))
    world.live(MORE[: EPOCH * SLICE], Fault(at, dead=True))
    found = explained(world)
    assert found.crash_table[found.here].killed == here
    assert [step.name for step in found.steps if step.reached][-1] == reached
    left = found.steps[1].files
    assert bool(left) == (reached != "plan")
    if reached == "compute":
        assert all(file.there and "no manifest names it" in file.content for file in left)
    world.live(MORE[: (EPOCH + 1) * SLICE]).survived()
    if reached != "prepare":
        assert explained(
            world
        ).story == f"Epoch 3 is {explained(world).state.value}: it never became a checkpoint. " + (
            "Epoch 4 read the same input again."
        )


def test_every_listed_epoch_with_a_plan_can_be_explained(tmp_path: Path) -> None:
    world = World(tmp_path, ("journal",))
    world.live(MORE).survived()
    listed = read_checkpoints(world.root, "matrix", RealClock()).checkpoints
    newest = explain_epoch(world.root, "matrix", RealClock())
    assert newest.checkpoint == max(one.checkpoint for one in listed)
    states = {explained(world, number).state for number in newest.kept}
    assert CheckpointState.COMPLETED in states
    assert set(newest.kept) == {one.checkpoint for one in listed if one.checkpoint in world.plans}


def test_the_first_epoch_of_a_job(tmp_path: Path) -> None:
    """Its sinks have no position in their ledgers yet."""
    run_job(summing_job(payments(5), tmp_path / "out.db"), tmp_path / "root")
    found = explain_epoch(tmp_path / "root", "summing", RealClock())
    assert found.checkpoint == 1 and found.parent == 0
    assert [row.action for row in found.crash_table if row.step in ("prepare", "commit")] == ["roll forward"] * 3
    assert [row.offered for row in found.crash_table if row.step in ("prepare", "commit")] == [
        ("journal", "latest"),
        ("latest",),
        (),
    ]


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    job = summing_job([], tmp_path / "out.db")
    run_job(job, tmp_path / "root")
    with pytest.raises(WrongUse, match="planned no epoch yet"):
        explain_epoch(tmp_path / "root", "summing", RealClock())
    run_job(summing_job([Payment("a", 1)], tmp_path / "out.db"), tmp_path / "root")
    with pytest.raises(WrongUse, match="no plan of an epoch 7"):
        explain_epoch(tmp_path / "root", "summing", RealClock(), 7)


def test_it_is_plain_json(tmp_path: Path) -> None:
    run_job(summing_job(payments(5), tmp_path / "out.db"), tmp_path / "root")
    from streamwork.components.position import from_plain, plain

    found = explain_epoch(tmp_path / "root", "summing", RealClock())
    encoded = msgspec.json.encode(found, enc_hook=plain)
    assert msgspec.json.decode(encoded, type=ExplainedEpoch, dec_hook=from_plain) == found


def test_each_phase_of_an_epoch_has_its_words() -> None:
    starts = {Phase.REGISTER, Phase.READ, Phase.REBASE, Phase.READY, Phase.ABANDON}
    assert set(STEPS) == set(Phase) - starts


@pytest.mark.slow
def test_a_process_that_is_killed_with_9_leaves_what_the_table_says(tmp_path: Path) -> None:
    """The same with real kills, of the command line."""

    def live(folder: Path, failpoint: str = "none") -> Life:
        if not folder.exists():
            folder.mkdir()
            add_events(folder, 2 * FAILPOINT_SLICE)
        return Life(folder, failpoint, mode="local").ends_with(0 if failpoint == "none" else -signal.SIGKILL)

    live(tmp_path / "whole")
    table = explain_epoch(tmp_path / "whole" / "root", "guarded", RealClock(), 2).crash_table
    for number, row in enumerate(table):
        folder = tmp_path / str(number)
        nth = 2 + len(row.held) if row.step == "commit" else 2
        live(folder, f"epochs/{row.step}/{nth}/SIGKILL")
        text = live(folder).text
        assert ("rolled forward" in text) is (row.action == Action.ROLL_FORWARD.value), row.killed
        assert f"resumed at checkpoint {row.resumes_at}" in text, row.killed
