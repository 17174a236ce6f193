"""Files that go bad: a job does without them, falls back, or refuses. It never gives wrong results, and never begins empty."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from matrix.faults import HOW, Fault, damage
from matrix.oracles import check, fold
from matrix.points import OTHER, Outcome, outcome_of
from matrix.targets import LOCAL
from matrix.world import EVENTS, MORE, RETAIN, World, shorten_chains
from streamwork import Refused
from streamwork.world import FileRef
from tiers import quick_every

every_sink = pytest.mark.parametrize("sinks", LOCAL.values(), ids=LOCAL)
not_both = pytest.mark.slow(sinks=[sinks for sinks in LOCAL.values() if sinks != LOCAL["SQLite + log"]])


pytestmark = pytest.mark.usefixtures("short_chains")


@pytest.fixture(scope="module")
def resting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A job with two sinks after eight checkpoints: to be forked, never touched."""
    with pytest.MonkeyPatch.context() as patch:
        shorten_chains(patch)
        world = World(tmp_path_factory.mktemp("resting") / "world", LOCAL["SQLite + log"])
        world.live(EVENTS).survived()
        yield world


def goes_on(world: World, spent: int = 0) -> Outcome:
    """The next life, with more input; whatever it did, the results are right."""
    life = world.live(MORE).survived()
    check(world, MORE)
    return outcome_of(world, life, spent)


# ---- manifests ------------------------------------------------------------------------------------------------------


@pytest.mark.slow(copies=[("prepared",)])
@not_both
@every_sink
@pytest.mark.parametrize("copies", [("completed",), ("prepared",), ("completed", "prepared")], ids=" and ".join)
def test_the_newest_manifest_is_damaged(folder: Path, copies: tuple[str, ...], sinks: tuple[str, ...]) -> None:
    whole = World(folder / "whole", sinks)
    whole.live(EVENTS).survived()
    name = "both copies" if len(copies) > 1 else f"its {copies[0]} copy"
    for how in HOW:
        world = whole.fork(folder / how)
        found = world.copies(int(whole.checkpoints[-1].name[:12]))
        for copy in copies:
            damage(found[copy], how)
        wanted = OTHER[f"newest manifest: {name} damaged"]
        if copies == ("completed",) and how == "missing":
            wanted = Outcome.ROLLS_FORWARD  # what is left is what a crash before step 6 leaves
        assert goes_on(world) is wanted


@pytest.mark.parametrize("how", HOW)
def test_without_any_manifest_a_job_never_begins_empty(folder: Path, resting: World, how: str) -> None:
    world = resting.fork(folder / "world")
    for path in world.home.glob("checkpoints/*.json"):
        damage(path, how)
    before = world.everything()
    for _ in range(2):
        assert world.live(MORE).code == "SW-CHECKPOINT-NONE"
        assert world.everything() == before, "SAFE"


@pytest.mark.parametrize("how", HOW)
def test_without_its_identity_a_job_never_begins_empty(folder: Path, resting: World, how: str) -> None:
    world = resting.fork(folder / "world")
    damage(world.home / "job.json", how)
    before = world.everything()
    assert world.live(MORE).code in ("SW-ROOT-DAMAGED", "SW-CHECKPOINT-DAMAGED")
    assert world.everything() == before, "SAFE"


@pytest.mark.parametrize("suffix", [".json", ".prepared.json"])
def test_a_folder_with_the_name_of_a_manifest_is_passed_over(folder: Path, resting: World, suffix: str) -> None:
    world = resting.fork(folder / "world")
    stray = world.home / "checkpoints" / f"{42:012d}{suffix}"
    (stray / "inner").mkdir(parents=True)
    life = world.live(MORE).survived()
    check(world, MORE)
    assert life.started is not None and any("is a folder, not a file" in line for line in life.started.story)
    assert not stray.exists() and list(world.home.glob(f"quarantine/*/checkpoints/{stray.name}/inner"))


# ---- any file -------------------------------------------------------------------------------------------------------


@pytest.mark.slow(how="missing")
@pytest.mark.parametrize("third", quick_every(3, range(3)))
@pytest.mark.parametrize("how", ["flipped", "missing"])
def test_any_one_file_of_the_folder_may_go_bad(folder: Path, resting: World, how: str, third: int) -> None:
    """The results are right, or the start is refused and has changed nothing."""
    refused = set()
    paths = [path.relative_to(resting.home) for path in sorted(resting.home.rglob("*")) if path.is_file()]
    assert len(paths) > 25
    for path in paths[third::3]:
        world = resting.fork(folder / "world")
        damage(world.home / path, how)
        before = world.substance()
        life = world.live(MORE)
        if life.error is None:
            check(world, MORE)
        else:
            assert isinstance(life.error, Refused)
            assert world.substance() == before, "SAFE"
            refused.add(path.parts[0])
        shutil.rmtree(world.folder)
    assert refused <= {"job.json", "fences"}


# ---- state files ----------------------------------------------------------------------------------------------------


def readable(chain: list[dict[str, Any]], lost: set[str]) -> bool:
    """Is there a whole snapshot with all deltas after it, or are there all deltas from the beginning on?"""
    paths = [ref["path"] for ref in chain]
    begins = [place for place, path in enumerate(paths) if "snapshot" in path]
    if not begins or begins[0] > 0:
        begins.append(-1)
    return any(
        not lost & {path for place, path in enumerate(paths) if place == begin or (place > begin and "delta" in path)}
        for begin in begins
    )


def can_do_without(manifest: dict[str, Any], lost: set[str]) -> bool:
    return all(readable(chain, lost) for chain in manifest["components"]["sums"].values())


def make_stale(path: Path) -> None:
    """Put another file of the same kind in its place, whole in itself, as a disk that lost a write would."""
    others = [other for other in sorted(path.parent.glob("*.parquet")) if other != path]
    path.write_bytes(others[0].read_bytes())


def spoil(path: Path, how: str) -> None:
    make_stale(path) if how == "stale" else damage(path, how)


@pytest.mark.slow(how=[*HOW])
@pytest.mark.parametrize("how", [*HOW, "stale"])
def test_any_one_state_file_may_go_bad(folder: Path, resting: World, how: str) -> None:
    newest, _ = resting.newest()
    named = {ref["path"] for chain in newest["components"]["sums"].values() for ref in chain}
    met = set()
    for path in map(resting.name, resting.state_files()):
        world = resting.fork(folder / "world")
        spoil(world.home / path, how)
        wanted = Outcome.GOES_ON
        if path in named:
            needed = not can_do_without(newest, {path})
            replaceable = "a state file damaged, another chain of files is intact"
            wanted = OTHER["a state file damaged that every chain of files needs" if needed else replaceable]
        assert goes_on(world) is wanted, path
        met.add(wanted)
        shutil.rmtree(world.folder)
    assert met >= {Outcome.DOES_WITHOUT, Outcome.CATCHES_UP}


@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_only_the_loss_of_all_ways_is_refused(folder: Path, resting: World, data: st.DataObject) -> None:
    every = sorted(map(resting.name, resting.state_files()))
    lost = data.draw(st.sets(st.sampled_from(every), min_size=1, max_size=len(every)))
    kept = [json.loads(path.read_bytes()) for path in resting.checkpoints]
    world = resting.fork(folder / "world")
    for path in lost:
        damage(world.home / path, HOW[len(path) % 3])
    before = world.everything()
    life = world.live(MORE)
    if any(can_do_without(manifest, lost) for manifest in kept):
        life.survived()
        check(world, MORE)
    else:
        assert life.code == "SW-CHECKPOINT-NONE"
        assert world.everything() == before, "SAFE"
    shutil.rmtree(world.folder)


def test_without_all_state_files_nothing_is_changed(folder: Path, resting: World) -> None:
    world = resting.fork(folder / "world")
    for path in world.state_files():
        path.unlink()
    before = world.everything()
    assert world.live(MORE).code == "SW-CHECKPOINT-NONE"
    assert world.everything() == before, "SAFE"


def test_without_the_hash_a_stale_file_gives_wrong_results(
    folder: Path, resting: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control: the file is good Parquet of the right schema; only its hash tells."""
    monkeypatch.setattr(FileRef, "read", lambda self, disk, folder, kind: (folder / self.path).read_bytes())
    monkeypatch.setattr(FileRef, "map", FileRef.read)
    failed = 0
    for path in map(resting.name, resting.state_files()):
        world = resting.fork(folder / "world")
        make_stale(world.home / path)
        world.live(MORE).survived()
        try:
            check(world, MORE)
        except AssertionError as error:
            assert str(error).startswith(("ECHO", "STATE"))
            failed += 1
        shutil.rmtree(world.folder)
    assert failed > 0


def test_the_state_can_be_read_with_sql(resting: World) -> None:
    """With DuckDB, over the files as they lie there: the newest row of each key."""
    query = f"""
        SELECT card, max_by(number, __epoch), max_by(total, __epoch)
        FROM read_parquet('{resting.home}/state/sums/*/*.parquet') GROUP BY card"""
    with duckdb.connect() as db:
        assert {card: kept for card, *kept in db.execute(query).fetchall()} == {
            card: list(kept) for card, kept in fold(EVENTS)[1].items()
        }


# ---- outputs and plans ----------------------------------------------------------------------------------------------


def staged(world: World, sink: str, epoch: int) -> list[Path]:
    return sorted(world.home.glob(f"outputs/{sink}/{epoch:012d}-*"))


@not_both
@every_sink
def test_a_staged_output_goes_bad_before_the_first_commit(folder: Path, sinks: tuple[str, ...]) -> None:
    whole = World(folder / "whole", sinks)
    whole.live(EVENTS, Fault("told prepare *", 5, dead=True))
    for how in HOW:
        for sink in sinks:
            world = whole.fork(folder / f"{how}-{sink}")
            damage(staged(world, sink, 5)[-1], how)
            assert goes_on(world, spent=5) is OTHER["staged output damaged before the first commit"]


@pytest.mark.parametrize("how", quick_every(3, HOW))
@pytest.mark.parametrize("sinks", [LOCAL["SQLite + log"], LOCAL["log + SQLite, upsert"]], ids=" + ".join)
def test_a_staged_output_goes_bad_between_two_commits(folder: Path, sinks: tuple[str, ...], how: str) -> None:
    """The first sink is ahead of the only checkpoint that is left."""
    world = World(folder, sinks)
    world.live(EVENTS, Fault("told commit *", 9, dead=True))
    damage(staged(world, sinks[1], 5)[0], how)
    assert goes_on(world) is Outcome.CATCHES_UP


@pytest.mark.parametrize("how", quick_every(3, HOW))
@pytest.mark.parametrize("sinks", [LOCAL["SQLite"], LOCAL["log"], LOCAL["SQLite + log"]], ids=" + ".join)
def test_a_staged_output_goes_bad_under_the_eyes_of_the_driver(folder: Path, sinks: tuple[str, ...], how: str) -> None:
    world = World(folder, sinks)

    def on_line(line: str) -> None:
        if line == "told prepare 5":
            damage(staged(world, sinks[0], 5)[0], how)

    world.on_line = on_line
    assert world.live(EVENTS).code == "SW-OUTPUT-DAMAGED"
    world.on_line = None
    assert goes_on(world, spent=5) is Outcome.COMPUTES_AGAIN


@not_both
@every_sink
def test_a_plan_goes_bad_after_a_crash_in_compute(folder: Path, sinks: tuple[str, ...]) -> None:
    whole = World(folder / "whole", sinks)
    whole.live(EVENTS, Fault("told compute *", 5, dead=True))
    for how in HOW:
        world = whole.fork(folder / how)
        plan = sorted(world.home.glob("checkpoints/*.plan.json"))[-1]
        damage(plan, how)
        assert goes_on(world, spent=5) is OTHER["plan damaged after a crash in compute"]


def test_as_many_checkpoints_are_kept_as_the_matrix_says(resting: World) -> None:
    assert len(resting.checkpoints) == RETAIN + 1
