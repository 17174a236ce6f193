"""A log whose class gained fields with defaults: writers and readers of every age, interleaved, after crashes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from log.world import PATH, HandClock, MemoryLocks, counter
from sample import Summing, run_job
from streamwork import Event, Job, LogSource, SqliteSink
from streamwork.errors import StreamworkError
from streamwork.log import EventLog, LogReader
from streamwork.log.schemas import Schemas
from streamwork.testing.disk import SimulatedDisk, Survival


class First(Event):
    id: int
    card: str


class Second(Event):
    id: int
    card: str
    place: str = "nowhere"


class Third(Event):
    id: int
    tags: list[str] = msgspec.field(default_factory=lambda: ["untold"])  # in the middle: columns go by name
    card: str = ""
    place: str = "nowhere"
    note: str | None = None


AGES: list[Any] = [First, Second, Third]
DEFAULTS = {"place": "nowhere", "tags": ["untold"], "note": None}


def made(age: int, number: int) -> Any:
    values: dict[str, Any] = {"id": number, "card": f"card-{number % 5}"}
    if age >= 1:
        values["place"] = f"place-{number}"
    if age >= 2:
        values |= {"tags": [str(number)] * (number % 3), "note": f"note-{number}"}
    return AGES[age](**values)


def as_seen(event: Any, age: int) -> Any:
    """What a reader of another age makes of an event: written down here once more, as the oracle."""
    values = {**DEFAULTS, **msgspec.structs.asdict(event)}
    return AGES[age](**{name: values[name] for name in AGES[age].__struct_fields__})


def open_log(disk: SimulatedDisk, age: int, locks: MemoryLocks) -> EventLog[Any]:
    token = counter(f"life{disk.life}-{age}-")
    return EventLog(PATH, AGES[age], disk=disk, clock=HandClock(), locks=locks, token=token, lock_timeout=0.0)


def contents(reader: Any) -> list[Any]:
    return [one.event for one in reader.last(10**6)]


APPEND = st.tuples(st.integers(0, 2), st.integers(1, 4), st.booleans())


@settings(max_examples=150, deadline=None)
@given(appends=st.lists(APPEND, max_size=8), seed=st.integers(0, 2**16))
def test_every_reader_sees_every_event_with_the_fields_of_its_class(appends: list[Any], seed: int) -> None:
    disk, locks = SimulatedDisk(seed), MemoryLocks()
    EventLog.create(PATH, First, disk=disk, clock=HandClock(), locks=locks).close()
    early = [LogReader(PATH, kind, disk=disk, clock=HandClock()) for kind in AGES] + [
        LogReader[Any](PATH, disk=disk, clock=HandClock())
    ]
    expected: list[Any] = []
    for age, count, cut in appends:
        log = open_log(disk, age, locks)
        events = [made(age, len(expected) + place) for place in range(count)]
        log.append(events)
        expected += events
        log.close()
        if cut:
            disk.crash(Survival.NOTHING)
            locks = MemoryLocks()
        for age_of_reader, reader in enumerate(early[:3]):  # opened before anything was written
            assert contents(reader) == [as_seen(event, age_of_reader) for event in expected]
        assert [event.id for event in contents(early[3])] == list(range(len(expected)))
    for age, kind in enumerate(AGES):
        reader = LogReader(PATH, kind, disk=disk, clock=HandClock())
        assert contents(reader) == [as_seen(event, age) for event in expected]
    untyped = contents(LogReader[Any](PATH, disk=disk, clock=HandClock()))
    newest = max((age for age, _, _ in appends), default=0)  # the fields of each class contain those of the one before
    assert [msgspec.structs.asdict(e) for e in untyped] == [
        msgspec.structs.asdict(as_seen(e, newest)) for e in expected
    ]


@pytest.mark.slow
def test_the_oracle_finds_wrong_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DEFAULTS, "place", "elsewhere")
    with pytest.raises(AssertionError):
        test_every_reader_sees_every_event_with_the_fields_of_its_class()


@pytest.mark.parametrize("at", range(1, 30))
@pytest.mark.proves("a crash at any step of the first append with a new field")
def test_a_crash_at_any_step_of_the_first_append_with_a_new_field(at: int) -> None:
    disk, locks = SimulatedDisk(at), MemoryLocks()
    with EventLog.create(PATH, First, disk=disk, clock=HandClock(), locks=locks) as log:
        log.append([made(0, number) for number in range(3)])
    disk.crash_at(at)
    try:
        with open_log(disk, 1, locks) as log:
            log.append(made(1, 3))
        disk.crash_at(None)
        acknowledged = 4
    except BaseException as error:
        if "DiskCrashed" not in type(error).__name__:
            raise
        acknowledged = 3
    disk.crash(Survival.NOTHING)
    with open_log(disk, 1, MemoryLocks()) as log:
        found = contents(log)
        assert found[:acknowledged] == [as_seen(made(0, n), 1) for n in range(3)] + [made(1, 3)] * (acknowledged - 3)
        log.append(made(1, 9))
        assert contents(log) == [*found, made(1, 9)]
    assert [e.id for e in contents(LogReader(PATH, First, disk=disk, clock=HandClock()))][-1] == 9


def test_what_is_not_a_field_with_a_default_is_refused(tmp_path: Path) -> None:
    class Without(Event):
        id: int
        card: str
        place: str

    class Misfitting(Event):
        id: int
        card: str
        place: str = 7  # type: ignore[assignment]

    class Less(Event):
        id: int

    EventLog.create(tmp_path / "log", First).close()
    for kind, why in (
        (Without, "place: absent in the log, string not null without a default in Without"),
        (Misfitting, "the default of Misfitting.place does not fit"),
        (Less, "card: string not null in the log, absent in Less"),
    ):
        with pytest.raises(StreamworkError, match=f"SW-LOG-SCHEMA.*{why}"):
            EventLog(tmp_path / "log", kind)
    assert not (tmp_path / "log" / "schemas").exists(), "a refused class leaves nothing behind"
    EventLog(tmp_path / "log", Second).close()
    assert not (tmp_path / "log" / "schemas").exists(), "nor does one that only reads"


def test_two_writers_that_add_different_fields_at_a_time(tmp_path: Path) -> None:
    class Another(Event):
        id: int
        card: str
        weight: float = 0.0

    path = tmp_path / "log"
    EventLog.create(path, First).close()
    late = EventLog(path, Another)  # looks before the other one adds a field
    with EventLog(path, Second) as log:
        log.append(made(1, 0))
    late.append(Another(1, "c", 2.5))
    late.close()
    assert contents(LogReader(path, Second)) == [made(1, 0), Second(1, "c")]
    assert [msgspec.structs.astuple(e) for e in contents(LogReader[Any](path))] == [
        (0, "card-0", "place-0", 0.0),
        (1, "c", "nowhere", 2.5),
    ]
    with pytest.raises(
        StreamworkError, match="SW-LOG-SCHEMA.*weight: double not null in the log, int64 not null in Int"
    ):
        LogReader(path, type("Int", (First,), {"__annotations__": {"weight": int}, "weight": 0}))


def test_a_damaged_schema_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "log"
    EventLog.create(path, First).close()
    with EventLog(path, Second) as log:
        log.append(made(1, 0))
    file = path / "schemas" / "2.json"
    good = file.read_bytes()
    for damaged in (b"", b"{}", good.replace(b"place", b"plaza", 1), good[:-9]):
        file.write_bytes(damaged)
        with pytest.raises(StreamworkError, match="SW-LOG-DAMAGED.*2.json"):
            LogReader(path, Second)
    file.write_bytes(good)
    (path / "schemas" / ".DS_Store").write_bytes(b"")
    (path / "schemas" / "٢.json").write_bytes(b"")
    assert contents(LogReader(path, Second)) == [made(1, 0)]


def test_without_the_list_of_schemas_a_new_one_would_be_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    EventLog.create(path, First).close()
    reader = LogReader(path, First)
    with EventLog(path, Second) as log:
        log.append(made(1, 0))
    monkeypatch.setattr(Schemas, "refresh", lambda self: False)
    with pytest.raises(StreamworkError, match="SW-LOG-DAMAGED"):
        reader.end(0)


def test_a_log_opened_without_a_class_takes_the_users_own(tmp_path: Path) -> None:
    path = tmp_path / "log"
    EventLog.create(path, First).close()
    with EventLog[Any](path) as log:
        log.append(made(0, 0))
        log.append([made(0, 1), made(0, 2)])
        assert [e.id for e in log.pull()] == [0, 1, 2]
        with pytest.raises(StreamworkError, match=r"(?s)SW-LOG-SCHEMA.*EventLog\('.*log', Second\)"):
            log.append(made(1, 3))
    with EventLog(path, Second) as log:
        log.append(made(1, 3))
    with EventLog[Any](path) as log:
        log.append(made(1, 4))
    assert [e.id for e in contents(LogReader(path, Second))] == [0, 1, 2, 3, 4]


def test_two_classes_of_one_name_are_told_apart(tmp_path: Path) -> None:
    one, other = (type("First", (First,), {"__module__": name}) for name in ("one", "other"))
    with (
        EventLog.create(tmp_path / "log", one) as log,
        pytest.raises(StreamworkError, match=r"expected one\.First but got other\.First"),
    ):
        log.append(other(1, "c"))


class Paid(Event):
    card: str
    amount: int


class PaidSomewhere(Event):
    card: str
    amount: int
    place: str = "nowhere"


def job(folder: Path, kind: type[Any], database: str = "out.db") -> Job:
    summing = type("Summing", (Summing,), {"types": lambda self: (kind, *Summing.types(self)[1:])})
    job = Job("logged", checkpoint_every=0)
    seen = job.source(LogSource(folder / "in", kind), id="payments").apply(summing(), key="card", id="sums")
    seen.sink(SqliteSink(folder / database, "out", key="card"), id="out")
    return job


def test_a_job_goes_on_when_its_event_gains_a_field(tmp_path: Path) -> None:
    with EventLog.create(tmp_path / "in", Paid) as log:
        log.append([Paid("a", 1), Paid("b", 2)])
    run_job(job(tmp_path, Paid), tmp_path / "root")
    with EventLog(tmp_path / "in", PaidSomewhere) as log:
        log.append([PaidSomewhere("a", 10, "here")])
    assert run_job(job(tmp_path, PaidSomewhere), tmp_path / "root").events == 1
    assert run_job(job(tmp_path, Paid, "old.db"), tmp_path / "other").events == 3, "an older class reads on, too"


def test_a_reader_may_leave_fields_out(tmp_path: Path) -> None:
    class Less(Event):
        id: int

    class Other(Event):
        id: str

    with EventLog.create(tmp_path / "log", First) as log:
        log.append(First(7, "a"))
    reader = LogReader(tmp_path / "log", Less, subset=True)
    (batch,) = reader.read(0, 0, reader.end(0))
    assert batch.to_pylist() == [{"id": 7}]
    with pytest.raises(StreamworkError, match=r"(?s)SW-LOG-SCHEMA.*subset=True"):
        LogReader(tmp_path / "log", Less)
    with pytest.raises(StreamworkError, match="id: int64 not null in the log, string not null in Other"):
        LogReader(tmp_path / "log", Other, subset=True)
