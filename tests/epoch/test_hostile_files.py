"""Every text in every file of a job's folder, replaced by a path that leads outside: nothing there is opened, listed or changed."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from epoch.test_hostile_names import sealed
from matrix.faults import Fault
from matrix.promises import EVENTS, world_of
from matrix.world import World
from sample import Payment
from streamwork import StreamworkError
from streamwork.delivery import DeadLetters, Inbox
from streamwork.delivery import inbox as inbox_module
from streamwork.delivery.retrying import Mark, Marks, Watch, marks
from streamwork.engine.report import Reports
from streamwork.epoch import manifest, store
from streamwork.epoch.control import Control, Kind
from streamwork.world import file_ref

pytestmark = pytest.mark.usefixtures("short_chains")
OUTSIDE = "../../../../victim"
ACTIONS = ("open", "os.", "shutil.", "sqlite3.connect")
_touched: list[str] | None = None


def _listen(event: str, arguments: tuple[Any, ...]) -> None:
    if _touched is not None and event.startswith(ACTIONS):
        paths = (os.path.normpath(os.fsdecode(one)) for one in arguments[:2] if isinstance(one, str | bytes | Path))
        _touched.extend(f"{event} {path}" for path in paths if Path(path).name.startswith("victim"))


sys.addaudithook(_listen)  # for good: there is no way to remove one


@contextmanager
def watching(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What is done outside while the block runs."""
    global _touched
    with monkeypatch.context() as patch:
        mapped = pa.memory_map
        patch.setattr(pa, "memory_map", lambda path: (_listen("open", (path,)), mapped(path))[1])
        _touched = found = []
        try:
            yield found
        finally:
            _touched = None


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A job with everything: checkpoints, events that wait, letters, one of them replayed, plans of epochs that broke."""
    world = world_of(tmp_path_factory.mktemp("hostile") / "a" / "b" / "c", "acknowledging")
    world.on_error = "dead-letter"
    world.queue = [*EVENTS[:8], Payment("c", -5), *EVENTS[8:12]]
    world.flaky = {EVENTS[9].amount: 10**6, EVENTS[11].amount: 2}
    world.live(()).survived()
    first, *_ = DeadLetters(world.disk, world.home).all()
    Inbox(world.disk, world.home).put([first])
    world.queue += EVENTS[12:16]
    world.flaky = {event.amount: 1 for event in EVENTS[12:16]}
    world.live((), Fault("told prune *", 2, dead=True))
    world.live((), Fault("told plan *", 1, dead=True))
    Control(world.disk, world.home, world.clock).ask(Kind.STOP, 3, {"why": "because"})
    mark = Mark("sums", 0, 9, 3, "event", "error", 1, None, None, "fail", world.clock.now(), world.clock.now())
    Marks(world.disk, world.home, 3, 9, world.clock).put(mark)
    return world


KINDS = {
    "identity": "job.json",
    "manifest": "checkpoints/" + "[0-9]" * 12 + "*.json",
    "plan": "checkpoints/*.plan.json",
    "fence": "fences/[0-9].json",
    "start": "fences/*.start.json",
    "alive": "fences/*.alive",
    "request": "control/*.request.json",
    "mark": "control/retrying/*.json",
}
ROWS = {
    "letters": "dead-letters/*/*.parquet",
    "replays": "inbox/*.parquet",
    "waiting": "inbox/@waiting/*.parquet",
}


def of_kind(world: World, kind: str) -> list[Path]:
    found = sorted(world.home.glob({**KINDS, **ROWS}[kind]))
    return [path for path in found if kind != "manifest" or not path.name.endswith(".plan.json")]


def leaves(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], bool]]:
    """(where, is it a key) of every text in a JSON value."""
    if isinstance(value, dict):
        for key, below in value.items():
            if key != "seal":
                yield (*at, key), True
                yield from leaves(below, (*at, key))
    elif isinstance(value, list):
        for place, below in enumerate(value):
            yield from leaves(below, (*at, place))
    elif isinstance(value, str):
        yield at, False


def shape(at: tuple[Any, ...], is_key: bool) -> str:
    """The same for all elements of a list and all instances: one of them is enough."""
    return "/".join("*" if str(one).isdigit() else str(one) for one in at) + f" {is_key}"


def replaced(value: Any, at: tuple[Any, ...], is_key: bool, name: str) -> Any:
    first, *rest = at
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    if rest:
        copy[first] = replaced(copy[first], tuple(rest), is_key, name)
    elif is_key:
        copy[name] = copy.pop(first)
    else:
        copy[first] = name
    return copy


def with_text(world: World, kind: str, at: tuple[Any, ...], is_key: bool, name: str) -> None:
    """In every file of a kind that has this leaf; sealed again."""
    for path in of_kind(world, kind):
        value = json.loads(path.read_bytes())
        if (at, is_key) in list(leaves(value)):
            changed = replaced(value, at, is_key, name)
            path.write_bytes(sealed(changed) if "seal" in value else json.dumps(changed).encode())


def with_column(world: World, kind: str, column: str, name: str) -> None:
    """In every file of a kind; manifests that name the file are sealed again, with its new hash."""
    for path in of_kind(world, kind):
        before, table = path.read_bytes(), pq.read_table(path)
        place = table.schema.get_field_index(column)
        texts = pa.array([name] * table.num_rows, pa.string())
        pq.write_table(table.set_column(place, table.schema.field(place), texts), path)
        hashes = [hashlib.sha256(data).hexdigest() for data in (before, path.read_bytes())]
        for one in of_kind(world, "manifest"):
            one.write_bytes(sealed(json.loads(one.read_text().replace(*hashes))))


def use(world: World) -> None:
    """Start it, look at everything, replay every letter, start it again. Any error has a code."""
    for _ in range(2):
        life = world.live(())
        assert life.error is None or isinstance(life.error, StreamworkError), repr(life.error)
        Control(world.disk, world.home, world.clock).requests(3)
        marks(world.disk, world.home)
        watch = Watch(world.disk, world.home, 3, world.clock.monotonic)
        watch.fresh(9), watch.clear()
        try:
            box, kept = Inbox(world.disk, world.home), DeadLetters(world.disk, world.home)
            kept.sizes()
            known = box.replayed()
            box.put(list({one.id: one for one in kept.all() if one.to and one.id not in known}.values()))
        except StreamworkError:
            continue


def attempts(lived: World, folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> Iterator[tuple[str, list[str]]]:
    """(what was replaced, what was touched outside) for each text of a kind of file."""
    changes: list[tuple[str, Callable[..., None]]] = []
    if kind in KINDS:
        found = [leaf for path in of_kind(lived, kind) for leaf in leaves(json.loads(path.read_bytes()))]
        for at, is_key in {shape(*leaf): leaf for leaf in found}.values():
            changes.append((f"{at} {is_key}", partial(with_text, kind=kind, at=at, is_key=is_key)))
    else:
        schema = pq.read_schema(of_kind(lived, kind)[0])
        columns = [field.name for field in schema if field.type == pa.string()]
        changes = [(column, partial(with_column, kind=kind, column=column)) for column in columns]
    assert changes, "there is no file of this kind"
    for number, ((what, change), absolute) in enumerate(product(changes, (False, True))):
        world = lived.fork(folder / str(number) / "b" / "c")
        victim = world.folder / "victim"
        world.on_error, world.queue, world.flaky = lived.on_error, list(EVENTS[16:18]), {}
        victim.write_text("not yours")
        change(world, name=str(victim) if absolute else OUTSIDE)
        with watching(monkeypatch) as touched:
            use(world)
        assert victim.exists() and victim.read_text() == "not yours", what
        yield what, touched


@pytest.mark.slow(kind=[*KINDS, *ROWS][1:-1])
@pytest.mark.parametrize("kind", [*KINDS, *ROWS])
@pytest.mark.proves("any text in a file of the job's folder replaced by a path that leads outside")
def test_no_text_in_a_file_leads_outside(
    lived: World, folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    for what, touched in attempts(lived, folder, monkeypatch, kind):
        assert touched == [], what


@pytest.mark.parametrize("field", ["state", "staged", "letters", "taken"])
@pytest.mark.parametrize("name", [OUTSIDE, "/victim"])
def test_a_report_that_names_a_path_outside_cannot_be_read(field: str, name: str) -> None:
    ref = {"path": name, "sha256": "", "rows": 0, "bytes": 0}
    report = {"component": "sums", "instance": 0, "attempt": "a", "counters": {}}

    def read(ref: dict[str, Any]) -> Reports:
        given = {**report, field: [ref] if field == "state" else ref}
        return Reports.from_json(json.dumps({"reports": [given]}))

    with pytest.raises(msgspec.ValidationError, match="inside"):
        read(ref)
    assert read({**ref, "path": "state/sums/0/1"})


@pytest.mark.proves("names resolved inside the job's folder")
def test_without_the_guard_the_victim_is_opened_or_removed(
    lived: World, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (manifest, file_ref):
        monkeypatch.setattr(module, "check_relative", lambda name: name)
    for module in (file_ref, inbox_module, store):
        monkeypatch.setattr(module, "inside", lambda folder, name: folder / name)
    with pytest.raises(AssertionError, match="path"):  # a state file that cannot be used is moved away
        for _ in attempts(lived, folder, monkeypatch, "manifest"):
            pass
