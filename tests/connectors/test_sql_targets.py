"""Tables of a person's own: other unique indexes, and tables or views that have the names of previews."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.kits import SQL, SqliteKit, SqlKit, batch, entry, seen, staged
from connectors.test_sink_controls import failure
from sample import Seen
from streamwork import Refused
from streamwork.components import PreviewLabel, RowsRejected
from streamwork.connectors import sql_sink, sql_views
from streamwork.connectors.sql_sink import SqlSink

sql = pytest.mark.parametrize("kit", SQL, indirect=True)
upsert = pytest.mark.parametrize("kit", ["sqlite-upsert", "postgres-upsert"], indirect=True)


def other_unique_index(kit: Any) -> None:
    """A row of one key never removes the row of another, whatever else is unique in the table."""
    number = "INTEGER" if isinstance(kit, SqliteKit) else "bigint"
    kit.execute(f"CREATE TABLE seen (card TEXT PRIMARY KEY, number {number}, total {number} UNIQUE)")
    sink = kit.driver()
    sink.commit(entry(1, 0, 2), staged([Seen("a", 1, 10), Seen("b", 1, 20)]))
    commit = lambda: sink.commit(entry(2, 2, 3), staged([Seen("c", 1, 10)]))  # noqa: E731
    for write in (commit, lambda: sink.write(batch([Seen("b", 2, 10)]))):
        try:
            write()
        except RowsRejected:
            assert kit.rows() == [("a", 1, 10), ("b", 1, 20)], "nothing of it is kept"
        else:
            raise AssertionError(f"a row of another key was removed: {kit.rows()}")
    sink.commit(entry(2, 2, 3), staged([Seen("a", 2, 10), Seen("b", 2, 30)]))
    assert kit.rows() == [("a", 2, 10), ("b", 2, 30)]


@upsert
@pytest.mark.proves("a table with another unique index")
def test_a_row_never_removes_that_of_another_key(kit: SqlKit) -> None:
    other_unique_index(kit)


@pytest.mark.parametrize("kit", ["sqlite-upsert"], indirect=True)
@pytest.mark.proves("an upsert on the key")
def test_with_insert_or_replace_it_would(kit: SqlKit, monkeypatch: pytest.MonkeyPatch) -> None:
    from streamwork.connectors.sqlite import SqliteSink

    def replacing(db: Any, table: str, names: Any, rows: Any, more: str = "") -> None:
        marks = ", ".join("?" * len(names))
        db.executemany(f"INSERT OR REPLACE INTO {table} ({', '.join(names)}) VALUES ({marks})", rows)

    monkeypatch.setattr(SqliteSink, "_insert", staticmethod(replacing))
    assert "a row of another key was removed: [('b', 1, 20), ('c', 1, 10)]" in failure(lambda: other_unique_index(kit))


@pytest.mark.parametrize("kit", ["sqlite-upsert"], indirect=True)
def test_a_replaced_row_keeps_the_rows_that_refer_to_it(kit: Any) -> None:
    kit.execute("CREATE TABLE seen (card TEXT PRIMARY KEY, number INTEGER, total INTEGER)")
    kit.execute("CREATE TABLE notes (card TEXT REFERENCES seen(card) ON DELETE CASCADE)")
    sink = kit.driver()
    sink._connection.execute("PRAGMA foreign_keys = ON")
    sink.commit(entry(1, 0, 1), staged([Seen("a", 1, 1)]))
    kit.execute("INSERT INTO notes VALUES ('a')")
    sink.commit(entry(2, 1, 2), staged([Seen("a", 2, 2)]))
    assert kit.query("SELECT * FROM notes") == [("a",)]


# ---- names that are taken ------------------------------------------------------------------------------------------------

THEIRS = {
    "table as preview": ("seen__preview", "CREATE TABLE seen__preview AS SELECT 1 AS __epoch, 'mine' AS what"),
    "view as preview": ("seen__preview", "CREATE VIEW seen__preview AS SELECT 1 AS __epoch, 'mine' AS what"),
    "table as dirty": ("seen__dirty", "CREATE TABLE seen__dirty AS SELECT 1 AS __epoch, 'mine' AS what"),
    "view as dirty": ("seen__dirty", "CREATE VIEW seen__dirty AS SELECT 1 AS __epoch, 'mine' AS what"),
}


def theirs_stays(kit: Any, name: str) -> None:
    """What is not the sink's stays as it is, with previews or without."""
    sink = kit.driver()
    sink.commit(entry(1, 0, 1), staged(seen(1)))
    sink.withdraw("u", "s", 5)
    assert kit.query(f"SELECT what FROM {name}") == [("mine",)]
    with pytest.raises(Refused, match=f"SW-SINK-PREVIEW.*{name}"):
        sink.open_previews("u", "s")
    with pytest.raises(Refused, match=f"SW-SINK-PREVIEW.*{name}"):
        sink.preview(PreviewLabel("u", "s", 1, 2), batch(seen(2)))
    kit.driver(2)
    assert kit.query(f"SELECT what FROM {name}") == [("mine",)]


@sql
@pytest.mark.parametrize("what", THEIRS)
@pytest.mark.proves("a user's table with the name of a preview")
def test_a_table_or_view_of_a_preview_s_name_is_left_alone(kit: Any, what: str) -> None:
    name, statement = THEIRS[what]
    kit.execute(statement)
    theirs_stays(kit, name)


@sql
def test_also_one_that_has_taken_the_place_of_ours(kit: Any) -> None:
    sink = kit.driver()
    sink.preview(PreviewLabel("u", "s", 1, 1), batch(seen(1)))
    sink.close()
    kit.execute("DROP VIEW seen__dirty")
    kit.execute("DROP TABLE seen__preview")
    kit.execute(THEIRS["table as preview"][1])
    theirs_stays(kit, "seen__preview")


@sql
@pytest.mark.proves("the record of the sink's own previews")
def test_without_the_record_a_person_s_table_is_emptied(kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SqlSink, "_is_ours", lambda self, db, name, uid, sink_id: True)
    kit.execute(THEIRS["table as preview"][1])
    assert "[('mine',)]" in failure(lambda: theirs_stays(kit, "seen__preview"))


@sql
def test_another_sink_of_the_job_may_not_have_the_name_either(kit: Any) -> None:
    sink = kit.driver()
    sink.open_previews("u", "s")
    other = type(sink)(kit.path if isinstance(kit, SqliteKit) else kit.dsn, "seen__preview")
    kit._made.append(other)
    with pytest.raises(Refused, match="SW-SINK-OWNED|SW-SINK-SCHEMA"):
        other.open(Seen)
        other.register("u", "other", 1)
    sink.preview(PreviewLabel("u", "s", 1, 1), batch(seen(1)))


# ---- previews that come late ---------------------------------------------------------------------------------------------


def late_previews(kit: Any) -> None:
    """A task shows rows of a checkpoint that is committed, or was abandoned: no reader sees them."""
    sink, worker = kit.driver(), kit.make()
    sink.open_previews("u", "s")
    sink.commit(entry(1, 0, 2), staged(seen(1, 2)))
    committed = [(card, number, None) for card, number, _ in kit.rows()]
    worker.preview(PreviewLabel("u", "s", 1, 1), batch(seen(1, 2)))
    # one that had read the ledger row just before the commit
    insert = "INSERT INTO seen__preview (__uid, __sink, __fence, __epoch, card, number, total) VALUES "
    kit.execute(insert + "('u', 's', 1, 1, 'c1', 1, 10)")
    shown = sorted(kit.query("SELECT card, number, __epoch FROM seen__dirty"), key=str)
    assert shown == committed, "rows of a committed checkpoint are shown twice"
    worker.preview(PreviewLabel("u", "s", 1, 2), batch([Seen("p", 9, 0)]))
    assert len(kit.query("SELECT * FROM seen__dirty")) == len(committed) + 1, "an open one is shown"
    sink.withdraw("u", "s", 2)
    worker.preview(PreviewLabel("u", "s", 1, 2), batch([Seen("p", 9, 0)]))
    kit.execute(insert + "('u', 's', 1, 2, 'q', 1, 10)")
    assert sorted(kit.query("SELECT card, number, __epoch FROM seen__dirty"), key=str) == committed
    worker.preview(PreviewLabel("u", "s", 1, 3), batch([Seen("p", 9, 0)]))
    assert len(kit.query("SELECT * FROM seen__dirty")) == len(committed) + 1
    kit.driver(2).preview(PreviewLabel("u", "s", 2, 1), batch([Seen("p", 9, 0)]))
    assert len(kit.query("SELECT * FROM seen__dirty")) == len(committed) + 1, (
        "a new driver's numbers count by themselves"
    )


@sql
@pytest.mark.proves("a preview of a committed or abandoned checkpoint")
def test_previews_of_a_checkpoint_that_is_over_are_not_shown(kit: Any) -> None:
    late_previews(kit)


@sql
def test_a_driver_that_was_taken_over_withdraws_nothing(kit: Any) -> None:
    old, new = kit.driver(1), kit.driver(2)
    new.preview(PreviewLabel("u", "s", 2, 1), batch(seen(1)))
    old.withdraw("u", "s", 7)
    new.preview(PreviewLabel("u", "s", 2, 2), batch(seen(2)))
    assert len(kit.query("SELECT * FROM seen__dirty")) == 2


@pytest.mark.parametrize("kit", ["sqlite", "postgres"], indirect=True)
@pytest.mark.proves("the mark that the view of previews uses")
def test_a_view_that_does_not_look_at_the_mark_shows_late_ones(kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    careless = sql_views._COUNTED.partition(" WHERE ")[0]
    monkeypatch.setattr(sql_views, "_COUNTED", careless)
    monkeypatch.setattr(sql_sink, "dirty_view", sql_views.dirty_view)
    assert "shown twice" in failure(lambda: late_previews(kit))
