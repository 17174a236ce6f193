"""Another input in the place of the old one is refused by name, whenever it was put there; nothing is read past, or twice."""

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sample import Payment, run_job
from source_ends import end_of
from streamwork import Csv, Job, JobFailed, JsonLines, ListSource, LogSource, Parquet, Refused, SqliteSink
from streamwork.components import OffsetSource
from streamwork.epoch import identities as identities_module
from streamwork.epoch.driver import Phase
from streamwork.log import EventLog
from streamwork.log import settings as settings_module
from streamwork.log.settings import Settings
from streamwork.world import RealDisk

OLD = [Payment("same", 0), *(Payment(f"old-{n}", n) for n in range(1, 5))]
NEW = [Payment("same", 0), *(Payment(f"new-{n}", n) for n in range(1, 9))]


def to_json(path: Path, events: list[Payment]) -> None:
    path.write_text("".join(json.dumps({"card": e.card, "amount": e.amount}) + "\n" for e in events))


def to_csv(path: Path, events: list[Payment]) -> None:
    path.write_text("card,amount\n" + "".join(f"{e.card},{e.amount}\n" for e in events))


def to_parquet(path: Path, events: list[Payment]) -> None:
    path.mkdir(exist_ok=True)
    table = pa.table({"card": [e.card for e in events], "amount": [e.amount for e in events]})
    pq.write_table(table, path / "a.parquet")


def to_log(path: Path, events: list[Payment]) -> None:
    with EventLog.create(path, Payment) as log:
        log.append(events)


LISTS: dict[Path, list[Payment]] = {}


def to_list(path: Path, events: list[Payment]) -> None:
    LISTS[path] = events


WRITERS: dict[str, tuple[Callable[[Path, list[Payment]], None], Callable[[Path], OffsetSource[Any]]]] = {
    "json": (to_json, lambda path: JsonLines(path, Payment)),
    "csv": (to_csv, lambda path: Csv(path, Payment)),
    "parquet": (to_parquet, lambda path: Parquet(path, Payment)),
    "log": (to_log, lambda path: LogSource(path, Payment)),
    "list": (to_list, lambda path: ListSource(LISTS[path])),
}
HOW = {"in place": False, "by another": True}


def job(kind: str, folder: Path, semantics: str = "exactly-once") -> Job:
    made = Job("reading", checkpoint_every=0, semantics=semantics)
    made.source(WRITERS[kind][1](folder / "in"), id="in").sink(SqliteSink(folder / "out.db", "out"), id="out")
    return made


def replace(kind: str, folder: Path, by_another: bool = True) -> None:
    """Put other events in the place of those that are there."""
    path = folder / "in"
    if kind == "list":
        LISTS[path] = NEW
    elif by_another or kind == "log":
        WRITERS[kind][0](folder / "other", NEW)
        shutil.move(path, folder / "gone")
        shutil.move(folder / "other", path)
    else:
        WRITERS[kind][0](path, NEW)


def rows(folder: Path) -> list[str]:
    with sqlite3.connect(folder / "out.db") as database:
        return [card for (card,) in database.execute("SELECT card FROM out ORDER BY rowid")]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.proves("an input replaced between two runs")
def test_between_two_runs(kind: str, how: str, tmp_path: Path) -> None:
    WRITERS[kind][0](tmp_path / "in", OLD)
    run_job(job(kind, tmp_path), tmp_path / "root")
    replace(kind, tmp_path, HOW[how])
    with pytest.raises(Refused, match=r"SW-SOURCE-(CHANGED|GONE)"):
        run_job(job(kind, tmp_path), tmp_path / "root")
    assert rows(tmp_path) == [event.card for event in OLD]


class Replacing:
    """Puts another input there when a step of the first epoch is done."""

    def __init__(self, step: Phase, act: Callable[[], None]) -> None:
        self.step = step
        self.act = act
        self.done = False

    def on_phase(self, step: Phase, epoch: int, manifest: Any = None) -> None:
        if step is self.step and not self.done:
            self.done = True
            self.act()

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("step", [Phase.PLAN, Phase.REPORT, Phase.COMPLETE])
@pytest.mark.parametrize("kind", [kind for kind in WRITERS if kind != "list"])
@pytest.mark.proves("an input replaced while the job runs")
def test_while_the_job_runs(kind: str, step: Phase, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    WRITERS[kind][0](tmp_path / "in", OLD)
    watch = Replacing(step, lambda: replace(kind, tmp_path, HOW[how]))
    made = job(kind, tmp_path)
    monkeypatch.setattr(
        "streamwork.epoch.driver.Driver._tell", lambda self, at, epoch, m=None: watch.on_phase(at, epoch)
    )
    with pytest.raises(Refused, match="SW-SOURCE-"):
        run_job(made, tmp_path / "root")
    found = rows(tmp_path)
    assert found == [event.card for event in OLD] if step is Phase.COMPLETE else not found
    monkeypatch.undo()
    if (
        step is Phase.COMPLETE or how == "by another"
    ):  # the old one comes back: the job goes on as if nothing had happened
        if kind == "log" or HOW[how]:
            shutil.move(tmp_path / "in", tmp_path / "wrong")
            shutil.move(tmp_path / "gone", tmp_path / "in")
        else:
            WRITERS[kind][0](tmp_path / "in", OLD)
        run_job(job(kind, tmp_path), tmp_path / "root")
        assert rows(tmp_path) == [event.card for event in OLD]


def replaced_after_the_plan(kind: str, how: str, semantics: str, folder: Path, patch: pytest.MonkeyPatch) -> list[str]:
    """The rows that the sink has when another input stood there by the time that instances read it."""
    WRITERS[kind][0](folder / "in", OLD)
    watch = Replacing(Phase.PLAN, lambda: replace(kind, folder, HOW[how]))
    made = job(kind, folder, semantics)
    patch.setattr("streamwork.epoch.driver.Driver._tell", lambda self, at, epoch, m=None: watch.on_phase(at, epoch))
    with pytest.raises(Refused, match="SW-SOURCE-"):
        run_job(made, folder / "root")
    assert watch.done
    return rows(folder)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("semantics", ["at-most-once", "at-least-once"])
@pytest.mark.parametrize("kind", [kind for kind in WRITERS if kind != "list"])
def test_where_instances_write_at_once_they_ask_themselves(
    kind: str, semantics: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check before the manifest would come too late: the rows would be there."""
    assert replaced_after_the_plan(kind, how, semantics, tmp_path, monkeypatch) == []


def test_without_asking_in_the_instance_rows_of_another_input_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control."""
    monkeypatch.setattr(identities_module.Identities, "marks", lambda self, ranges: {})
    found = replaced_after_the_plan("json", "by another", "at-most-once", tmp_path, monkeypatch)
    assert any(card.startswith("new") for card in found)


class Killed(BaseException):
    pass


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.proves("a crash after the first checkpoint, then a replaced input")
def test_a_crash_right_after_the_first_checkpoint(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The identity used to be written ten seconds later: whoever was killed before knew nothing of the input it had read."""
    WRITERS[kind][0](tmp_path / "in", OLD)

    def die(self: Any, step: Phase, epoch: int, manifest: Any = None) -> None:
        if step is Phase.COMPLETE:
            raise Killed

    monkeypatch.setattr("streamwork.epoch.driver.Driver._tell", die)
    monkeypatch.setattr("streamwork.epoch.driver.Driver.close", lambda self: None)
    with pytest.raises(Killed):
        run_job(job(kind, tmp_path), tmp_path / "root")
    monkeypatch.undo()
    replace(kind, tmp_path)
    with pytest.raises(Refused, match="SW-SOURCE-CHANGED"):
        run_job(job(kind, tmp_path), tmp_path / "root", take_over=True)


@pytest.mark.parametrize(
    ("semantics", "before"), [("exactly-once", "prepared"), ("at-least-once", "prepared"), ("at-most-once", "plan")]
)
def test_the_mark_is_durable_before_the_first_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, semantics: str, before: str
) -> None:
    to_json(tmp_path / "in", OLD)
    writes: list[str] = []
    replaced, created = RealDisk.replace, RealDisk.create
    monkeypatch.setattr(RealDisk, "replace", lambda s, p, d: (writes.append(p.name), replaced(s, p, d))[1])
    monkeypatch.setattr(RealDisk, "create", lambda s, p, d: (writes.append(p.name), created(s, p, d))[1])
    run_job(job("json", tmp_path, semantics), tmp_path / "root")
    assert writes.index("sources.json") < writes.index(f"000000000001.{before}.json")
    assert writes.count("sources.json") == 1, "once, not for every plan"


@pytest.mark.parametrize("kind", WRITERS)
def test_input_that_grows_is_the_same(kind: str, tmp_path: Path) -> None:
    """Also after a move, which gives a file another inode."""
    WRITERS[kind][0](tmp_path / "in", OLD)
    run_job(job(kind, tmp_path), tmp_path / "root")
    more = [Payment("more", 9)]
    if kind == "list":
        LISTS[tmp_path / "in"] = OLD + more
    elif kind == "log":
        with EventLog(tmp_path / "in", Payment) as log:
            log.append(more)
    elif kind == "parquet":
        pq.write_table(pa.table({"card": ["more"], "amount": [9]}), tmp_path / "in" / "b.parquet")
    else:
        whole = (tmp_path / "in").read_bytes()
        (tmp_path / "in").rename(tmp_path / "aside")
        (tmp_path / "in").write_bytes(whole + (b'{"card":"more","amount":9}\n' if kind == "json" else b"more,9\n"))
    run_job(job(kind, tmp_path), tmp_path / "root")
    assert rows(tmp_path) == [event.card for event in [*OLD, *more]]


def test_a_log_of_an_older_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an id: it opens, is read and added to, and is recognised by what an older job has recorded of it."""
    to_log(tmp_path / "in", OLD)
    settings = Settings.read(RealDisk(), tmp_path / "in")
    assert len(settings.id) == 32
    old = msgspec.structs.replace(settings, id="")
    content = msgspec.to_builtins(msgspec.structs.replace(old, crc32=old._sum()))
    del content["id"]
    (tmp_path / "in" / settings_module.FILE).write_bytes(msgspec.json.encode(content))
    run_job(job("log", tmp_path), tmp_path / "root")
    known = tmp_path / "root" / "reading" / "sources.json"
    assert json.loads(known.read_text())["marks"] == {"in/0": old._sum()}
    known.write_text(json.dumps({"in": old._sum()}))
    with EventLog(tmp_path / "in", Payment) as log:
        log.append([Payment("more", 1)])
    run_job(job("log", tmp_path), tmp_path / "root")
    assert rows(tmp_path) == [event.card for event in [*OLD, Payment("more", 1)]]
    replace("log", tmp_path)
    with pytest.raises(Refused, match="SW-SOURCE-CHANGED"):
        run_job(job("log", tmp_path), tmp_path / "root")


def test_two_logs_are_never_the_same(tmp_path: Path) -> None:
    for name in ("a", "b"):
        to_log(tmp_path / name, OLD)
    assert LogSource(tmp_path / "a", Payment).mark("0", 1) != LogSource(tmp_path / "b", Payment).mark("0", 1)


@pytest.mark.proves("the check of the input before each plan")
def test_without_the_check_another_file_is_read_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control."""
    to_json(tmp_path / "in", OLD)
    run_job(job("json", tmp_path), tmp_path / "root")
    replace("json", tmp_path)
    monkeypatch.setattr(identities_module, "check_sources", lambda graph, known: None)
    monkeypatch.setattr("streamwork.epoch.recovery.recovery.changed_inputs", lambda graph, known: ())
    run_job(job("json", tmp_path), tmp_path / "root")
    assert set(rows(tmp_path)) > {event.card for event in OLD}, "of the new one all but what the old one had is there"


@pytest.mark.parametrize("kind", ["json", "csv", "list"])
def test_what_is_recorded_grows_with_what_was_read(kind: str, tmp_path: Path) -> None:
    """The first checkpoint saw one event, which another input begins with as well."""
    WRITERS[kind][0](tmp_path / "in", OLD[:1])
    run_job(job(kind, tmp_path), tmp_path / "root")
    WRITERS[kind][0](tmp_path / "in", OLD)
    run_job(job(kind, tmp_path), tmp_path / "root")
    replace(kind, tmp_path)
    with pytest.raises(Refused, match="SW-SOURCE-CHANGED"):
        run_job(job(kind, tmp_path), tmp_path / "root")
    assert rows(tmp_path) == [event.card for event in OLD]


def test_a_line_that_no_checkpoint_has_read_may_be_corrected(tmp_path: Path) -> None:
    """As the error about it advises, also where it is the first one."""
    for good in ([], OLD):
        to_json(tmp_path / "in", good)
        with (tmp_path / "in").open("a") as file:
            file.write('{"card": "last", "amount": "x"}\n')
        with pytest.raises(JobFailed, match="SW-SOURCE-BAD-EVENT"):
            run_job(job("json", tmp_path), tmp_path / "root")
    to_json(tmp_path / "in", [*OLD, Payment("last", 7)])
    run_job(job("json", tmp_path), tmp_path / "root")
    assert rows(tmp_path) == [*(event.card for event in OLD), "last"]


@pytest.mark.parametrize("kind", ["json", "csv", "list"])
def test_a_mark_is_extended_a_few_times_only_and_of_the_same_input_only(kind: str, tmp_path: Path) -> None:
    events = [Payment(f"card-{n:05}", n) for n in range(5_000)]
    WRITERS[kind][0](tmp_path / "in", events)
    source = WRITERS[kind][1](tmp_path / "in")
    first = mark = source.mark("0", end_of(source, "0", 0, 1))
    assert mark is not None
    different, at = {mark}, 0
    while (end := end_of(source, "0", at, 1)) > at:
        at = end
        mark = source.extended("0", mark, at)
        assert source.recognises("0", mark)
        different.add(mark)
    assert len(different) <= 16, "each is a durable write"
    WRITERS[kind][0](tmp_path / "in", [Payment("other", 1), *events])
    assert WRITERS[kind][1](tmp_path / "in").extended("0", first, at) == first, (
        "which is not recognised by the next look"
    )
