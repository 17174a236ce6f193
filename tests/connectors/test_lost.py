"""A target that was lost, or whose ledger row was, is refused; it is filled again only where that is asked for."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from connectors.kits import DURABLE, KafkaKit, Kit, LogKit, ParquetKit, RedisKit, SqliteKit, SqlKit, as_rows, cases
from sample import Seen
from streamwork import Job, JsonLines, Refused, WrongUse
from streamwork.cli.run_here import run_here
from streamwork.epoch.recovery.sink_paths import SinkPaths

durable = pytest.mark.parametrize("kit", cases(DURABLE), indirect=True)
ROWLESS = ["sqlite", "sqlite-upsert", "postgres", "postgres-upsert", "redis"]


def lose(kit: Kit, how: str) -> None:
    """The whole target is gone, or only the ledger row."""
    if isinstance(kit, SqliteKit) and how == "target":
        kit.path.unlink()
    elif isinstance(kit, SqlKit):
        if how == "target":
            for table in ("seen", "streamwork_ledger", "streamwork_owners"):
                kit.execute(f"DROP TABLE {table}")
        elif how == "table":
            kit.execute("DROP TABLE seen")
        else:
            kit.execute("DELETE FROM streamwork_ledger")
    elif isinstance(kit, RedisKit):
        if how == "target":
            kit.client.flushall()
        else:
            kit.client.delete(*kit.client.keys("streamwork_ledger:*"))
    elif isinstance(kit, KafkaKit):
        kit.delete()
    else:
        shutil.rmtree(kit.folder / "out")


def is_there(kit: Kit) -> bool:
    if isinstance(kit, SqliteKit):
        return kit.path.exists()
    if isinstance(kit, SqlKit):
        return bool(
            kit.query(
                "SELECT 1 FROM information_schema.tables WHERE table_name = 'seen' AND table_schema = current_schema"
            )
        )
    if isinstance(kit, RedisKit):
        return kit.client.dbsize() > 0
    if isinstance(kit, KafkaKit):
        return kit.exists()
    assert isinstance(kit, ParquetKit | LogKit)
    return (kit.folder / "out").exists()


class World:
    """A job over a file that grows, into a kit's target."""

    def __init__(self, kit: Kit, **options: Any) -> None:
        self.kit, self.options = kit, options
        self.file = kit.folder / "in.jsonl"
        self.events: list[Seen] = []
        self.max_events = 2

    def add(self, *numbers: int) -> None:
        more = [Seen(f"c{n % 3}", n, n * 10) for n in numbers]
        self.events += more
        with self.file.open("a") as file:
            file.writelines(f'{{"card": "{e.card}", "number": {e.number}, "total": {e.total}}}\n' for e in more)

    def run(self, **more: Any) -> Any:
        job = Job("lost", checkpoint_every=0, **self.options)
        job.source(JsonLines(self.file, Seen, max_events=self.max_events), id="in").sink(self.kit._new(), id="out")
        return run_here(job, mode="local", root=self.kit.folder / "root", until_caught_up=True, restart=False, **more)


def lost_is_refused(kit: Kit, how: str, checkpoints: int, **options: Any) -> World:
    world = World(kit, **options)
    for number in range(checkpoints):
        world.add(2 * number + 1, 2 * number + 2)
        world.run()
    lose(kit, how)
    world.add(100)
    for _ in range(2):  # a start that is refused must not change the answer of the next
        with pytest.raises(Refused, match="SW-SINK-LOST"):
            world.run()
    if how == "target":
        assert not is_there(kit), "a start that is refused makes nothing"
    return world


@durable
@pytest.mark.slow(checkpoints=1)
@pytest.mark.parametrize("checkpoints", [1, 6], ids=["the first checkpoint is kept", "it is gone"])
@pytest.mark.proves("a sink's target, table or ledger row is missing")
def test_a_lost_target_is_refused(kit: Kit, checkpoints: int) -> None:
    lost_is_refused(kit, "target", checkpoints)


@pytest.mark.parametrize("kit", ROWLESS, indirect=True)
@pytest.mark.slow(checkpoints=1)
@pytest.mark.parametrize("checkpoints", [1, 6], ids=["the first checkpoint is kept", "it is gone"])
@pytest.mark.proves("a missing ledger row, with existing rows")
def test_a_lost_ledger_row_is_refused(kit: Kit, checkpoints: int) -> None:
    world = lost_is_refused(kit, "row", checkpoints)
    assert kit.rows() == kit.expected(world.events[:-1]), "not a row more"


@pytest.mark.parametrize("kit", ["sqlite", "sqlite-upsert", "postgres", "postgres-upsert"], indirect=True)
def test_a_dropped_table_is_refused_although_its_ledger_row_is_there(kit: Kit) -> None:
    world = lost_is_refused(kit, "table", 1)
    world.run(refill=["out"])
    assert kit.rows() == kit.expected(world.events)


@pytest.mark.parametrize("kit", ["sqlite", "postgres", "redis", "parquet", "log"], indirect=True)
def test_a_lost_target_is_refused_under_other_semantics(kit: Kit) -> None:
    lost_is_refused(kit, "target", 2, semantics="at-least-once")


@durable
def test_a_sink_that_is_new_in_the_job_is_not_taken_for_lost(kit: Kit) -> None:
    world = World(kit)
    world.add(1, 2)
    job = Job("lost", checkpoint_every=0)
    job.source(JsonLines(world.file, Seen), id="in").print()
    job.run(mode="local", root=kit.folder / "root", until_caught_up=True)
    world.add(3, 4)
    world.run()
    assert kit.rows() == kit.expected(world.events[2:])


@durable
def test_asked_to_it_is_filled_with_what_is_kept(kit: Kit) -> None:
    world = lost_is_refused(kit, "target", 1)
    story = world.run(refill=["out"])
    assert kit.rows() == kit.expected(world.events), "everything since the first checkpoint was kept"
    assert story.checkpoint == 2
    world.add(5)
    world.run()
    assert kit.rows() == kit.expected(world.events)


@durable
def test_asked_to_what_is_not_kept_is_missing_and_said_to_be(kit: Kit) -> None:
    world = lost_is_refused(kit, "target", 8)
    told: list[str] = []

    class Watching:
        def __getattr__(self, name: str) -> Any:
            return lambda *args: told.extend(args[1].story) if name == "on_started" else None

    world.run(refill=["out"], watcher=Watching())
    kept = world.events[2 * 5 :]  # three checkpoints of two events, and the new one
    assert kit.rows() == kit.expected(kept)
    assert any("checkpoint 6" in line and "rows of earlier checkpoints" in line for line in told), told


def test_a_sink_that_the_job_does_not_have(tmp_path: Path) -> None:
    world = World(SqliteKit(tmp_path, None))
    world.add(1)
    with pytest.raises(WrongUse, match=r"SW-USAGE.*'nowhere'"):
        world.run(refill=["nowhere"])


@pytest.mark.parametrize("kit", ["sqlite", "redis"], indirect=True)
@pytest.mark.proves("the check of the ledger row before a start")
def test_without_the_rule_rows_come_twice(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: the row is gone, the rows are there."""
    monkeypatch.setattr(SinkPaths, "has_lost", lambda self, sink, row: False)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        lost_is_refused(kit, "row", 1)
    if not kit.keyed:
        assert len(kit.rows()) > 2 and kit.rows()[:2] == as_rows([Seen("c1", 1, 10)] * 2)
