"""What readers see, at any moment: whole epochs and no other (read committed), or previews too, in a view (read uncommitted)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from matrix.cells import Cell, cells, each
from matrix.faults import Fault
from matrix.oracles import check, check_previews, check_readers
from matrix.stories import crash_and_go_on, failure, two_drivers
from matrix.targets import PREVIEWED
from matrix.world import EVENTS, MORE, SLICE, World
from streamwork.connectors.sql_sink import SqlSink
from tiers import quick_every

pytestmark = pytest.mark.usefixtures("short_chains")


def dirty_world(folder: Path, sinks: tuple[str, ...]) -> World:
    return World(folder, sinks, isolation="read-uncommitted")


def looking(world: World) -> Callable[[str], None]:
    """Looks as readers do whenever a step is told."""

    def on_line(line: str) -> None:
        step, _, epoch = line.removeprefix("told ").partition(" ")
        if not line.startswith("told ") or step in ("register", "read", "rebase"):
            return
        check_readers(world, MORE)
        if world.isolation == "read-uncommitted":
            plan = world.plans.get(int(epoch), {"from": {}, "to": {}})
            shown = step in ("compute", "report", "prepare")
            check_previews(
                world, MORE, MORE[plan["from"].get("payments/0", 0) : plan["to"]["payments/0"]] if shown else ()
            )

    return on_line


COMMITTED, UNCOMMITTED = [(name, name) for name in ("read-committed", "read-uncommitted")]


@pytest.mark.parametrize(("isolation", "sinks"), quick_every(3, [*each([COMMITTED]), *each([UNCOMMITTED], PREVIEWED)]))
@pytest.mark.proves("readers check at every step")
def test_readers_look_at_every_step(folder: Path, isolation: str, sinks: tuple[str, ...]) -> None:
    """While it runs, and while a start rolls forward what was prepared, or computes again what was not."""
    for number, at in enumerate(["told compute *", "told prepare *", "told commit *"]):
        world = World(folder / str(number), sinks, isolation=isolation)
        world.on_line = looking(world)
        world.live(EVENTS[: 4 * SLICE], Fault(at, 3, dead=True))
        check_readers(world, MORE)
        world.live(EVENTS[: 5 * SLICE]).survived()
        check(world, EVENTS[: 5 * SLICE])


@pytest.mark.parametrize("cell", cells("read-uncommitted"))
@pytest.mark.proves("a preview half written")
def test_of_an_epoch_that_came_to_nothing_nothing_is_shown(folder: Path, cell: Cell) -> None:
    """Exactly-once as ever; and when a start is ready, before the first source is read, no preview is left."""
    point, world = cell.point, dirty_world(folder, cell.sinks)

    def on_line(line: str) -> None:
        if line.startswith("told ready"):
            check_previews(world, MORE, ())

    world.on_line = on_line
    assert crash_and_go_on(world, list(point.faults())[-1], epochs=5) is point.outcome
    check_previews(world, MORE[: 6 * SLICE + 2], ())


STILL = [
    (at, at) for at in ("told plan 3", "after create state/*", "told compute 3", "told prepare 3", "told commit 3")
]


@pytest.mark.parametrize(("at", "sinks"), each(STILL, PREVIEWED))
def test_a_driver_that_was_taken_over_shows_nothing(folder: Path, at: str, sinks: tuple[str, ...]) -> None:
    world = dirty_world(folder, sinks)
    if "*" in at:
        whole = dirty_world(folder / "whole", sinks)
        whole.live(EVENTS[: 3 * SLICE])
        at = next(line for line in whole.trace if line.startswith("after create state/sums/0/000000000003"))
    world, life = two_drivers(world, at)
    assert life.code in ("SW-SINK-FENCED", "SW-DRIVER-FENCED")
    check_previews(world, MORE, ())
    world.live(MORE).survived()
    check(world, MORE)


# ---- negative controls ----------------------------------------------------------------------------------------------


def broken_off(folder: Path) -> str:
    world = dirty_world(folder, ("journal",))
    world.live(EVENTS, Fault("told compute *", 3, dead=True))

    def attempt() -> None:
        world.on_line = lambda line: check_previews(world, MORE, ()) if line.startswith("told ready") else None
        world.live(EVENTS).survived()

    return failure(attempt)


@pytest.mark.proves("removal of previews")
def test_without_the_removal_previews_are_left(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert broken_off(folder / "guarded") == ""
    monkeypatch.setattr(SqlSink, "_remove_previews", lambda *_: None)
    assert broken_off(folder / "a").startswith("READ UNCOMMITTED journal")


@pytest.mark.proves("staging of rows")
def test_with_rows_that_are_written_at_once_readers_see_what_is_not_committed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def attempt(name: str) -> None:
        world = dirty_world(folder / name, ("journal",))
        world.on_line = looking(world)
        world.live(EVENTS).survived()

    assert failure(lambda: attempt("guarded")) == ""
    monkeypatch.setattr(SqlSink, "preview", lambda self, label, batch: self.write(batch))
    assert failure(lambda: attempt("a")).startswith("READ COMMITTED journal: too many")
