from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pytest

from sample import Seen, run_job
from streamwork import Digits, Event, Job, ListSource, Refused, SqliteSink, WrongUse
from streamwork.components import LedgerEntry, Position
from streamwork.components.columns import to_batch


class Inner(Event):
    x: int


class Wide(Event):
    flag: bool
    raw: bytes
    when: datetime
    day: date
    price: Annotated[Decimal, Digits(10, 2)]
    tags: list[str]
    sizes: dict[str, int]
    inner: Inner
    nothing: int | None


def entry(epoch: int, start: int, end: int, fence: int = 1, deterministic: bool = True) -> LedgerEntry:
    return LedgerEntry(
        uid="u", sink="s", fence=fence, epoch=epoch, start=Position({"a/0": start}), end=Position({"a/0": end}),
        parent_sha256=f"m{epoch - 1}", manifest_sha256=f"m{epoch}", deterministic=deterministic, first=start == 0,
    )  # fmt: skip


def rows(*numbers: int) -> Any:
    return iter([to_batch(Seen, [Seen(f"c{n % 2}", n, n) for n in numbers], "test")])


def content(sink: SqliteSink[Any]) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(sink.path)) as db:
        return db.execute(f"SELECT * FROM {sink.table} ORDER BY number").fetchall()


@pytest.fixture(autouse=True)
def closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close every sink that a test makes."""
    made: list[SqliteSink[Any]] = []
    make = SqliteSink.__init__
    monkeypatch.setattr(SqliteSink, "__init__", lambda self, *a, **k: (made.append(self), make(self, *a, **k))[1])
    yield
    for sink in made:
        sink.close()


def opened(path: Path, key: str | None = None, fence: int = 1, uid: str = "u") -> SqliteSink[Seen]:
    sink: SqliteSink[Seen] = SqliteSink(path / "out.db", "seen", key=key)
    sink.open(Seen)
    sink.register(uid, "s", fence)
    return sink


def test_rows_and_ledger_advance_together(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    sink.commit(entry(1, 0, 2), rows(1, 2))
    sink.commit(entry(2, 2, 3), rows(3))
    assert [row[1] for row in content(sink)] == [1, 2, 3]
    row = sink.ledger("u", "s")
    assert row is not None
    assert (row.position, row.manifest_sha256, row.fence) == ({"a/0": 3}, "m2", 1)


def test_an_epoch_that_is_there_is_not_applied_again(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    for _ in range(3):
        sink.commit(entry(1, 0, 2), rows(1, 2))
    assert [row[1] for row in content(sink)] == [1, 2]


def test_with_a_key_the_last_row_of_a_key_wins(tmp_path: Path) -> None:
    sink = opened(tmp_path, key="card")
    sink.commit(entry(1, 0, 3), rows(1, 2, 3))
    sink.commit(entry(2, 3, 4), rows(4))
    assert content(sink) == [("c1", 3, 3), ("c0", 4, 4)]


def test_a_failure_in_mid_commit_changes_nothing(tmp_path: Path) -> None:
    sink = opened(tmp_path)

    def breaks() -> Any:
        yield from rows(1, 2)
        raise RuntimeError("the staged file is gone")

    with pytest.raises(RuntimeError):
        sink.commit(entry(1, 0, 2), breaks())
    assert content(sink) == []
    sink.commit(entry(1, 0, 2), rows(1, 2))
    assert [row[1] for row in content(sink)] == [1, 2]


def test_a_lower_fence_is_turned_away(tmp_path: Path) -> None:
    old, new = opened(tmp_path, fence=1), opened(tmp_path, fence=2)
    with pytest.raises(Refused, match="SW-SINK-FENCED"):
        old.commit(entry(1, 0, 2, fence=1), rows(1, 2))
    with pytest.raises(Refused, match="SW-SINK-FENCED"):
        old.register("u", "s", 1)
    new.commit(entry(1, 0, 2, fence=2), rows(1, 2))
    assert len(content(new)) == 2


def test_a_target_has_one_owner(tmp_path: Path) -> None:
    opened(tmp_path)
    with pytest.raises(Refused, match="SW-SINK-OWNED"):
        opened(tmp_path, uid="another life")


def test_a_ledger_that_fits_neither_end_is_refused(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    sink.commit(entry(1, 0, 2), rows(1, 2))
    with pytest.raises(Refused, match="SW-SINK-LEDGER"):
        sink.commit(entry(3, 5, 6), rows(6))
    with pytest.raises(Refused, match="SW-SINK-LEDGER"):
        opened(tmp_path / "..", fence=1).commit(entry(2, 2, 3), rows(3))


def test_a_table_that_does_not_fit(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "out.db")) as db:
        db.execute("CREATE TABLE seen (card, number)")
    with pytest.raises(Refused, match="SW-SINK-SCHEMA"):
        opened(tmp_path)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="SW-SINK-PATH"):
        opened(tmp_path / "nowhere")


def test_names_are_quoted(tmp_path: Path) -> None:
    sink: SqliteSink[Seen] = SqliteSink(tmp_path / "out.db", 'a"b; DROP TABLE x')
    sink.open(Seen)
    sink.register("u", "s", 1)
    sink.commit(entry(1, 0, 2), rows(1, 2))
    with closing(sqlite3.connect(sink.path)) as db:
        assert db.execute('SELECT count(*) FROM "a""b; DROP TABLE x"').fetchone() == (2,)


def test_every_type_has_a_place(tmp_path: Path) -> None:
    wide = Wide(
        True,
        b"\x00",
        datetime(2026, 1, 2, tzinfo=UTC),
        date(2026, 1, 2),
        Decimal("1.5"),
        ["a"],
        {"b": 1},
        Inner(3),
        None,
    )
    sink: SqliteSink[Wide] = SqliteSink(tmp_path / "out.db", "wide")
    sink.open(Wide)
    sink.register("u", "s", 1)
    sink.commit(entry(1, 0, 1), iter([to_batch(Wide, [wide], "test")]))
    with closing(sqlite3.connect(sink.path)) as db:
        assert db.execute("SELECT * FROM wide").fetchone() == (
            1, b"\x00", "2026-01-02T00:00:00+00:00", "2026-01-02", "1.50", '["a"]', '{"b":1}', '{"x":3}', None,
        )  # fmt: skip


def test_a_sink_that_is_given_another_table(tmp_path: Path) -> None:
    """It would go on where the old one is, and the new one would lack what is there."""
    old: Any = SqliteSink(tmp_path / "x.db", "old")
    old.open(Seen)
    old.register("u", "s", 1)
    new: Any = SqliteSink(tmp_path / "x.db", "new")
    new.open(Seen)
    with pytest.raises(Refused, match="(?s)SW-SINK-MOVED.*old"):
        new.register("u", "s", 2)
    new.register("u", "another", 2)
    old.register("u", "s", 2)


def test_a_start_that_is_refused_leaves_the_database_as_it_was(tmp_path: Path) -> None:
    """The table that a sink has moved to is not made, nor are ours where a table does not fit."""

    def made(table: str, **settings: Any) -> Job:
        job = Job("made", checkpoint_every=0, **settings)
        job.source(ListSource([Seen("a", 1, 1)]), id="seen").sink(SqliteSink(tmp_path / "x.db", table), id="out")
        return job

    def tables() -> set[str]:
        with closing(sqlite3.connect(tmp_path / "x.db")) as db:
            return {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}

    with closing(sqlite3.connect(tmp_path / "x.db")) as db, db:
        db.execute("CREATE TABLE mine (a TEXT)")
    with pytest.raises(Refused, match="SW-SINK-SCHEMA"):
        run_job(made("mine"), tmp_path / "root")
    assert tables() == {"mine"}
    run_job(made("t"), tmp_path / "root")
    before = tables()
    assert "t" in before
    with pytest.raises(Refused, match="SW-SINK-MOVED"):
        run_job(made("u"), tmp_path / "root")
    assert tables() == before
    with pytest.raises(Refused, match="SW-SINK-OWNED"):
        run_job(made("t"), tmp_path / "another")
    assert not (tmp_path / "another" / "made").exists()
    run_job(made("t"), tmp_path / "root")
