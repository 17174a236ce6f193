"""`state edit` and `state import`: what they write is what was asked for, or nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings

import savepoint_world
import statefiles_world as w
from commands import call_in
from fatal_disk import FAILPOINT
from savepoint_jobs import Place, expected, last
from savepoint_world import every_file
from statefiles_world import World, changes
from streamwork import Event, EventLog, Refused, StreamworkError, WrongUse
from streamwork.epoch.savepoints import Savepoint
from streamwork.state.rows import TIMERS
from streamwork.statefiles import diff as diffing
from streamwork.statefiles.component_state import ComponentState
from streamwork.statefiles.editing import Edit, Edited, Editing
from streamwork.statefiles.export import export
from streamwork.statefiles.point import At, Places
from streamwork.testing.clock import VirtualClock
from streamwork.testing.disk import DiskCrashed, Survival
from streamwork.world import RealClock, RealDisk

RANDOM = settings(
    deadline=None, max_examples=12, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck)
)
COMPONENTS = ("by-text", "by-many", "per-instance")


def lived(folder: Path, *life: Any) -> World:
    world = World(folder)
    for changed in life:
        world.checkpoint(changed)
    return world


def edit(world: World, name: str, wanted: Edit, at: str | None = None, **options: Any) -> Edited:
    point = world.point(at)
    return Editing(world.places, world.graph, point, wanted).run(name, "why", "a@b", RealClock(), **options)


def exported(world: World, at: str, components: tuple[str, ...] = COMPONENTS) -> dict[str, Path]:
    files = {}
    for component in components:
        files[component] = world.root / f"{component}-{at.replace(':', '-')}.parquet"
        export(ComponentState.of(world.point(at), component), files[component], RealDisk())
    return files


# ---- what is written ---------------------------------------------------------------------------------------------------


@given(one=changes(), two=changes())
@RANDOM
def test_a_file_of_all_keys_gives_exactly_that_state(tmp_path_factory: Any, one: Any, two: Any) -> None:
    """Every type, sub-records and timers: the state of checkpoint 2 goes into a savepoint of checkpoint 1, over an export."""
    world = lived(tmp_path_factory.mktemp("w"), one, two)
    edit(world, "made", Edit(exported(world, "checkpoint:2"), replace=True), "checkpoint:1")
    made, wanted = world.point("savepoint:made"), world.point("checkpoint:2")
    assert diffing.diff(wanted, made).same
    assert made.manifest.to_bytes() == world.store.manifest(1).to_bytes(), "ledgers recognise it as checkpoint 1"
    assert Savepoint.open(RealDisk(), world.store.folder / "savepoints" / "made").problems() == []
    for component in ("by-text", "by-many"):  # every key lies with the instance of its group
        for instance, chain in made.chains[component].items():
            groups = {group for ref in chain for group in made.files.read(ref).column("__group").to_pylist()}
            assert {group * 2 // w.GROUPS for group in groups} <= {int(instance)}


@given(one=changes(), two=changes())
@RANDOM
def test_rows_of_a_file_replace_those_of_their_keys(tmp_path_factory: Any, one: Any, two: Any) -> None:
    """Over a savepoint. The oracle: what the engine was given."""
    world = lived(tmp_path_factory.mktemp("w"), one, two)
    edit(world, "base", Edit(exported(world, "checkpoint:1"), replace=True), "checkpoint:1")
    before = every_file(RealDisk(), world.store.folder / "savepoints" / "base")
    edit(world, "made", Edit(exported(world, "checkpoint:2")), "savepoint:base")
    assert every_file(RealDisk(), world.store.folder / "savepoints" / "base") == before
    made = world.point("savepoint:made")
    for component in COMPONENTS:
        wanted = {**world.wanted(1)[component], **world.wanted(2)[component]}
        rows = ComponentState.of(made, component).table
        assert rows.num_rows == len(wanted)
        assert sum(rows.column("count").to_pylist()) == sum(record.count for record, _ in wanted.values())


@given(one=changes())
@RANDOM
def test_sql_changes_what_it_says_and_nothing_else(tmp_path_factory: Any, one: Any) -> None:
    world = lived(tmp_path_factory.mktemp("w"), one)
    sql = """UPDATE by_text SET words = 'edited' WHERE count = 1; DELETE FROM by_text WHERE count = 2;
             UPDATE by_many SET words = 'edited' WHERE flag"""
    edited = edit(world, "made", Edit(sql=sql))
    assert {one.component for one in edited.components} == {"by-text", "by-many"}
    before, made = world.point(), world.point("savepoint:made")
    old = {row["text"]: row for row in ComponentState.of(before, "by-text").shown.to_pylist()}
    new = {row["text"]: row for row in ComponentState.of(made, "by-text").shown.to_pylist()}
    assert new.keys() == {text for text, row in old.items() if row["count"] != 2}
    for text, row in new.items():
        wanted = {**old[text], "words": "edited"} if old[text]["count"] == 1 else old[text]
        assert w.by_text([row]) == w.by_text([wanted])
    many = ComponentState.of(made, "by-many").table
    assert all(
        words == "edited"
        for flag, words in zip(many["flag"].to_pylist(), many["words"].to_pylist(), strict=True)
        if flag
    )
    assert diffing.diff(before, made, only=["per-instance"]).same
    texts = ComponentState.of(made, "by-text").table
    kept = {row["text"]: row["__timers"] or [] for row in ComponentState.of(before, "by-text").table.to_pylist()}
    assert {row["text"]: row["__timers"] for row in texts.to_pylist()} == {text: kept[text] for text in new}


def test_sql_changes_timers(tmp_path: Path) -> None:
    world = lived(tmp_path, {"by-text": {f"k{n}": (w.All(count=n), frozenset()) for n in range(3)}})
    sql = "INSERT INTO by_text_timers VALUES ('k1', TIMESTAMPTZ '2030-01-01 00:00:00Z', 'event')"
    edit(world, "made", Edit(sql=sql))
    rows = ComponentState.of(world.point("savepoint:made"), "by-text").table.to_pylist()
    assert [(row["text"], len(row["__timers"])) for row in rows] == [("k0", 0), ("k1", 1), ("k2", 0)]
    edit(world, "gone", Edit(sql="DELETE FROM by_text WHERE text = 'k1'"), "savepoint:made")
    assert len(ComponentState.of(world.point("savepoint:gone"), "by-text")) == 2
    with pytest.raises(Refused, match=r"SW-STATE-EDIT.*timer of the key text=no, which has no row"):
        edit(world, "bad", Edit(sql=sql.replace("'k1'", "'no'")))


def test_a_dry_run_shows_the_difference_and_writes_nothing(tmp_path: Path) -> None:
    world = lived(tmp_path, {"by-text": {"k": (w.All(count=1), frozenset())}})
    before = every_file(RealDisk(), world.store.folder)
    (found,) = edit(world, "made", Edit(sql="UPDATE by_text SET count = 5"), dry=True).components
    assert (found.changed, found.fields, found.examples[0].after["count"]) == (1, {"count": 1}, 5)  # type: ignore[index]
    assert every_file(RealDisk(), world.store.folder) == before


# ---- what is refused ---------------------------------------------------------------------------------------------------


def column(name: str, values: Any) -> Callable[[pa.Table], pa.Table]:
    return lambda table: table.set_column(table.column_names.index(name), name, values)


NAIVE = pa.array([0, 0], pa.timestamp("us"))
FAR = pa.array([2**62, 0], pa.timestamp("us", "UTC"))
TIMER = pa.array([[{"at": 0, "clock": "sundial"}], []], TIMERS)
BAD: dict[str, tuple[str, Callable[[pa.Table], pa.Table], str]] = {
    "text for a number": ("by-text", column("count", pa.array(["1", "2"])), "has a column 'count' of type string"),
    "a fraction for an int": ("by-text", column("count", pa.array([1.5, 2.0])), "has a column 'count' of type double"),
    "too large an int": ("by-text", column("count", pa.array([2**63, 1], pa.uint64())), "int (64 bit) cannot hold"),
    "a null": ("by-text", column("count", pa.array([1, None])), "'count': expected int (64 bit), got NoneType None (key text='b')"),
    "a null in a list": ("by-text", column("numbers", pa.array([[1.0, None], []])), "'numbers'"),
    "a time without a zone": ("by-text", column("seen", NAIVE), "timestamp"),
    "a time after year 9999": ("by-text", column("seen", FAR), "'seen'"),
    "a Decimal with more digits": ("by-text", column("saved", pa.array([1, 2], pa.decimal128(20, 4))), "'saved'"),
    "a column too many": ("by-text", lambda t: t.append_column("more", pa.array([1, 2])), "a column 'more'"),
    "a column too few": ("by-text", lambda t: t.drop_columns(["words"]), "no column 'words'"),
    "no key": ("by-text", lambda t: t.drop_columns(["text"]), "no column 'text'"),
    "a null key": ("by-text", column("text", pa.array(["a", None])), "'text'"),
    "a key twice": ("by-text", column("text", pa.array(["a", "a"])), "several rows of the key text=a"),
    "a timer of no clock": ("by-text", column("__timers", TIMER), "clock is none of event, processing"),
    "no such instance": ("per-instance", column("__instance", pa.array([0, 2], pa.int32())), "has __instance 2"),
}  # fmt: skip


@pytest.fixture(scope="module")
def two(tmp_path_factory: Any) -> World:
    """Two rows of each component."""
    records = [(w.All(count=n), frozenset()) for n in range(2)]
    return lived(
        tmp_path_factory.mktemp("two"),
        {"by-text": dict(zip("ab", records, strict=True)), "per-instance": dict(enumerate(records))},
    )


@pytest.mark.parametrize("case", BAD)
def test_rows_that_do_not_fit_are_refused_and_nothing_is_written(two: World, tmp_path: Path, case: str) -> None:
    component, spoil, said = BAD[case]
    file = tmp_path / "x.parquet"
    good = ComponentState.of(two.point(), component)
    pq.write_table(spoil(good.table.select([*good.shape.columns, "__timers"])), file)
    before = every_file(RealDisk(), two.store.folder)
    with pytest.raises(Refused) as refused:
        edit(two, "made", Edit({component: file}))
    assert refused.value.code == "SW-STATE-EDIT" and said in refused.value.cause
    assert every_file(RealDisk(), two.store.folder) == before


def test_types_that_keep_every_value_are_accepted(two: World, tmp_path: Path) -> None:
    """What pandas and other writers make of the columns."""
    good = ComponentState.of(two.point(), "by-text").shown
    other = good.set_column(0, "text", good.column("text").cast(pa.large_string()))
    place = other.column_names.index("count")
    other = other.set_column(place, "count", other.column("count").cast(pa.int16()))
    place = other.column_names.index("words")
    pq.write_table(other.set_column(place, "words", pa.nulls(2)), tmp_path / "x.parquet")
    (found,) = edit(two, "made", Edit({"by-text": tmp_path / "x.parquet"}), dry=True).components
    assert found.status is diffing.Status.SAME


def test_an_edit_without_or_with_two_kinds_of_change_is_wrong_use(two: World, tmp_path: Path) -> None:
    for given_as in ({}, {"files": {"by-text": tmp_path}, "sql": "x"}, {"sql": "x", "replace": True}):
        with pytest.raises(WrongUse, match="SW-USAGE"):
            Edit(**given_as)  # type: ignore[arg-type]
    for sql in ("UPDATE nothing SET x = 1", "ALTER TABLE by_text ADD COLUMN more INT", "DROP TABLE by_text"):
        with pytest.raises(StreamworkError, match="SW-STATE-(SQL|EDIT)"):
            edit(two, "made", Edit(sql=sql))
    with pytest.raises(WrongUse, match="SW-STATE-COMPONENT"):
        edit(two, "made", Edit({"nope": tmp_path / "x.parquet"}))


@pytest.mark.parametrize("at", ["savepoint:base", None])
def test_an_edit_of_a_damaged_base_is_refused_and_leaves_nothing(tmp_path: Path, at: str | None) -> None:
    """Also if it is a component that is not edited."""
    keys = {"by-text": {"k": (w.All(count=1), frozenset())}, "per-instance": {0: (w.All(), frozenset())}}
    world = lived(tmp_path, keys)
    edit(world, "base", Edit(sql="UPDATE by_text SET count = 2"))
    folder = world.store.folder / "savepoints" / "base" if at else world.store.folder
    for path in (folder / "state" / "per-instance").rglob("*.parquet"):
        path.write_bytes(path.read_bytes()[:-1] + b"x")
    before = every_file(RealDisk(), world.store.folder)
    with pytest.raises(Refused, match="SW-(STATE|SAVEPOINT)-DAMAGED"):
        edit(world, "made", Edit(sql="UPDATE by_text SET count = 3"), at)
    assert every_file(RealDisk(), world.store.folder) == before


# ---- crashes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "stride"),
    [
        ("savepoint:base", 5),
        (None, 5),
        pytest.param("savepoint:base", 1, marks=pytest.mark.slow),
        pytest.param(None, 1, marks=pytest.mark.slow),
    ],
)
def test_a_power_cut_at_any_step_leaves_the_base_and_no_half_of_the_new_one(at: str | None, stride: int) -> None:
    step, half = 1, 0
    while True:
        world = savepoint_world.World(seed=step)
        driver = world.run(4)
        world.save(driver, "base")
        driver.close()
        world.disk.crash(Survival.EVERYTHING)  # from here on, all that there is is durable
        base, checkpoints = every_file(world.disk, world.folder / "base"), world.store.completed()
        places = Places(world.disk, savepoint_world.ROOT, savepoint_world.JOB, world.graph())
        sql = "UPDATE sums SET total = total + 1"
        world.disk.crash_at(world.disk.steps + step)
        try:
            work = Editing(places, world.graph(), places.open(At.parse(at)), Edit(sql=sql))
            work.run("new", "", "a@b", VirtualClock())
            cut = False
        except DiskCrashed:
            cut = True
        world.disk.crash(Survival.SEEDED)
        assert every_file(world.disk, world.folder / "base") == base
        assert world.store.completed() == checkpoints
        try:
            new = places.open(At(savepoint="new"))
        except StreamworkError as error:
            assert cut and error.code in ("SW-SAVEPOINT-UNKNOWN", "SW-SAVEPOINT-INCOMPLETE")
            half += 1
        else:
            assert new.savepoint is not None and new.savepoint.problems() == []
            totals = [ComponentState.of(point, "sums").table["total"] for point in (places.open(At.parse(at)), new)]
            assert pc.sum(totals[1]).as_py() == pc.sum(totals[0]).as_py() + len(totals[0])
        if not cut:
            break
        step += stride
    assert half > 10 / stride, "it was cut in many steps"


@pytest.mark.slow
def test_kill_9_during_an_edit(tmp_path: Path) -> None:
    """A half-made savepoint is dropped, and the same edit made again; the job itself goes on as if there had been none."""
    place = Place(tmp_path / "p")
    (place.folder / "failpoint.py").write_text(FAILPOINT)
    place.give(20)
    place.catch_up()
    place.save("base")
    step = 0
    while True:
        words = ["state", "edit", "usage.py", "new", "--at", "savepoint:base", "--sql", "UPDATE per_card SET total = 1"]
        command = [sys.executable, "failpoint.py", str(step), *words]
        ended = subprocess.run(command, cwd=place.folder, capture_output=True, env={**os.environ}, check=False)
        if ended.returncode == 0:
            break
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        code = place.refused("state", "show", "usage.py", "--at", "savepoint:new")["code"]
        assert code in ("SW-SAVEPOINT-UNKNOWN", "SW-SAVEPOINT-INCOMPLETE")
        if code == "SW-SAVEPOINT-INCOMPLETE":
            place.ask("savepoint", "drop", "usage.py", "new")
        step += 1
    assert step > 4
    place.give(5)
    place.catch_up()
    assert place.journal() == expected(place.given)


# ---- by the command line -----------------------------------------------------------------------------------------------


def test_a_job_goes_on_with_edited_state(tmp_path: Path) -> None:
    place = Place(tmp_path / "p")
    place.give(20)
    place.catch_up()
    place.save("base")
    sql = "UPDATE per_card SET total = 1000 WHERE card = 'card-1'"
    made = place.ask("state", "edit", "usage.py", "made", "--at", "savepoint:base", "--sql", sql, "--note", "refund")
    assert (made["components"][0]["changed"], made["written"]) == (1, True)
    shown = place.ask("savepoint", "show", "usage.py", "made", "--verify")
    assert shown["problems"] == [] and shown["info"]["note"] == "refund" and sql in shown["origin"]
    assert (
        f"made: edited from savepoint base; SQL: {sql}"
        in call_in(place.folder, "savepoint", "show", "usage.py", "made")[1]
    )
    assert place.refused("state", "edit", "usage.py", "made", "--sql", sql)["code"] == "SW-SAVEPOINT-EXISTS"
    place.give(7)
    place.catch_up("--from", "savepoint:made")
    totals = {card: total for card, _, total in last(expected(place.given))}
    edited = 1000 + sum(amount for card, amount in place.given[20:] if card == "card-1")
    assert {card: total for card, _, total in place.latest()} == {**totals, "card-1": edited}


@pytest.mark.slow
def test_a_log_keeps_what_is_behind_an_edited_savepoint_until_it_is_dropped(tmp_path: Path) -> None:
    """Also one of a job that runs, from its newest checkpoint."""
    place = Place(tmp_path / "p")
    source = 'LogSource("payments.log", Payment, max_events=5)'
    text = (place.folder / "usage.py").read_text().replace('JsonLines("payments.jsonl", Payment, max_events=5)', source)
    (place.folder / "usage.py").write_text(text.replace("JsonLines, ", "LogSource, "))
    with EventLog.create(place.folder / "payments.log", Paid) as log:
        log.append([Paid(f"card-{n % 3}", n) for n in range(20)])
    consumers, edit = place.folder / "payments.log" / "consumers", ("state", "edit", "usage.py", "made", "--sql")
    with place.running():
        place.wait_for_rows(20)
        before = {path.name for path in consumers.iterdir()}
        assert place.refused(*edit, "UPDATE per_card SET nope = 1")["code"] == "SW-STATE-SQL"
        assert {path.name for path in consumers.iterdir()} == before
        place.ask(*edit, "UPDATE per_card SET total = 0")
        (added,) = {path.name for path in consumers.iterdir()} - before
    place.ask("savepoint", "drop", "usage.py", "made")
    assert added not in {path.name for path in consumers.iterdir()}


class Paid(Event):
    card: str
    amount: int


def test_a_new_job_starts_with_imported_state(tmp_path: Path) -> None:
    place = Place(tmp_path / "p")
    rows = pa.table({"card": ["card-0", "old"], "number": [10, 3], "total": [500, 30]})
    pq.write_table(rows, place.folder / "known.parquet")
    words = ("state", "import", "usage.py", "known", "--file", "per-card=known.parquet")
    code, out, _ = call_in(place.folder, *words)
    assert code == 0 and "per-card: 2 rows" in out
    place.give(14)
    assert (
        "begins with savepoint known"
        in call_in(
            place.folder, "run", "usage.py", "--mode", "local", "--until-caught-up", "--from", "savepoint:known"
        )[1]
    )
    found = {card: (number, total) for card, number, total in place.latest()}
    plain = {card: (number, total) for card, number, total in last(expected(place.given))}
    assert found["card-0"] == (plain["card-0"][0] + 10, plain["card-0"][1] + 500)
    assert {card: row for card, row in found.items() if card != "card-0"} == {
        card: row for card, row in plain.items() if card != "card-0"
    }
    shown = place.ask("state", "show", "usage.py", "per-card", "--key", "old")
    assert shown["state"][0]["value"] == {"number": 3, "total": 30}
    assert place.refused(*words)["code"] == "SW-STATE-IMPORT", "the job has state of its own now"
    place.give(5)
    place.catch_up()
    assert len(place.journal()) == 19


def test_an_import_that_does_not_fit_writes_nothing(tmp_path: Path) -> None:
    place = Place(tmp_path / "p")
    pq.write_table(pa.table({"card": ["a"], "total": ["much"]}), place.folder / "bad.parquet")
    (place.folder / "text.parquet").write_text("no Parquet")
    for file, code in (("bad", "SW-STATE-EDIT"), ("text", "SW-STATE-FORMAT"), ("none", "SW-STATE-FORMAT")):
        given_as = ("state", "import", "usage.py", "known", "--file", f"per-card={file}.parquet")
        assert place.refused(*given_as)["code"] == code
    assert place.refused("state", "import", "usage.py", "known")["code"] == "SW-USAGE"
    assert place.refused("state", "import", "usage.py", "known", "--file", "x")["code"] == "SW-USAGE"
    assert (
        place.refused("state", "import", "usage.py", "known", "--file", "x=y.parquet")["code"] == "SW-STATE-COMPONENT"
    )
    assert not (place.folder / ".streamwork").exists()
    pq.write_table(pa.table({"card": ["a"], "total": [5]}), place.folder / "few.parquet")
    made = json.loads(
        call_in(place.folder, "state", "import", "usage.py", "known", "--file", "per-card=few.parquet", "--json")[1]
    )
    assert made["rows"] == {"per-card": 1}, "a field that is missing has its default"
