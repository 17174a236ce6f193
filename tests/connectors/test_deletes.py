"""Rows that remove their key: the contract of every sink that takes `delete=`, and what becomes of it without a guard."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors import checks
from connectors.deleting import (
    DELETING,
    GONE,
    Epoch,
    RedisDeletingKit,
    as_in_a_dict,
    kept,
    stopped_driver_resumes,
)
from connectors.kits import Kit, PostgresUpsertKit, batch, entry, staged
from connectors.test_sink_controls import failure, without
from sample import Seen
from streamwork import Event, Job, ListSource, PostgresSink, RedisSink, SqliteSink, WrongUse, field
from streamwork.components import PreviewLabel, RowsRejected
from streamwork.connectors import sql_sink, sql_views

every = pytest.mark.parametrize("kit", list(DELETING), indirect=True)
sql = pytest.mark.parametrize("kit", ["sqlite-delete", "postgres-delete"], indirect=True)
redis = pytest.mark.parametrize("kit", ["redis-delete"], indirect=True)


class Card(Event):
    card: str
    country: str
    closed: bool | None


# ---- what is refused -----------------------------------------------------------------------------------------------------


def test_no_key_no_delete(tmp_path: Path) -> None:
    for make in (lambda d: SqliteSink(tmp_path / "x.db", "x", delete=d), lambda d: PostgresSink("", "x", delete=d)):
        with pytest.raises(WrongUse, match="SW-SINK-DELETE.*no key"):
            make(field("closed"))


@pytest.mark.parametrize("wrong", [True, "closed", lambda row: True])
def test_what_is_no_condition(tmp_path: Path, wrong: Any) -> None:
    for make in (
        lambda: SqliteSink(tmp_path / "x.db", "x", key="card", delete=wrong),
        lambda: PostgresSink("", "x", key="card", delete=wrong),
        lambda: RedisSink("redis://x", key="card", prefix="x", delete=wrong),
    ):
        with pytest.raises(WrongUse, match="SW-SINK-DELETE"):
            make()


@pytest.mark.parametrize(
    ("condition", "code"),
    [(field("ended"), "SW-EXPR-FIELD"), (field("country"), "SW-EXPR-TYPE"), (field("closed") == 1, "SW-EXPR-TYPE")],
)
def test_what_cannot_be_asked_of_the_event_is_refused_before_anything_is_opened(
    tmp_path: Path, condition: Any, code: str
) -> None:
    job = Job("cards")
    sink: Any = SqliteSink(tmp_path / "x.db", "x", key="card", delete=condition)
    job.source(ListSource([], Card), id="cards").sink(sink, id="out")
    with pytest.raises(WrongUse, match=f"{code}: sink 'out': "):
        job.graph()
    assert list(tmp_path.iterdir()) == []


# ---- the contract --------------------------------------------------------------------------------------------------------


@every
def test_the_last_row_of_a_key_counts(kit: Kit) -> None:
    sink = kit.driver()
    first = [Seen("a", 1, 10), Seen("b", 1, 10), Seen("a", 2, GONE), Seen("c", 1, GONE), Seen("c", 2, 20)]
    sink.commit(entry(1, 0, 5), staged(first, 2))
    assert kit.rows() == [("b", 1, 10), ("c", 2, 20)]
    sink.commit(entry(2, 5, 7), staged([Seen("b", 3, GONE), Seen("nobody", 3, GONE)]))
    assert kit.rows() == [("c", 2, 20)]
    sink.commit(entry(3, 7, 8), staged([Seen("b", 4, 40)]))
    assert kit.rows() == [("b", 4, 40), ("c", 2, 20)]


@every
def test_deletes_that_are_written_at_once(kit: Kit) -> None:
    sink = kit.make()
    sink.write(batch([Seen("a", 1, 10), Seen("b", 1, 10), Seen("a", 2, GONE), Seen("c", 1, GONE), Seen("c", 2, 20)]))
    assert kit.rows() == [("b", 1, 10), ("c", 2, 20)]
    sink.write(batch([Seen("b", 3, GONE), Seen("c", 3, GONE)]))
    sink.write(batch([Seen("b", 4, 40)]))
    assert kit.rows() == [("b", 4, 40)]


@every
def test_an_epoch_that_is_there_is_not_applied_again(kit: Kit) -> None:
    checks.idempotent(kit)


@every
def test_a_death_before_any_operation_of_a_commit(kit: Kit) -> None:
    assert checks.death_at_every_step(type(kit), kit, done=False) >= 3


@redis  # elsewhere it is one transaction, deletes or not
def test_a_death_after_any_operation_of_a_commit(kit: Kit) -> None:
    assert checks.death_at_every_step(type(kit), kit, done=True) >= 3


@redis
def test_a_newer_driver_goes_on_at_any_operation_of_a_commit(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks.zombie_at_every_step(type(kit), kit, monkeypatch, only_registers=False) >= 3


@every
def test_a_driver_that_was_stopped_cannot_bring_back_what_was_deleted(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stopped_driver_resumes(kit, monkeypatch) >= 3


EPOCHS = st.lists(
    st.builds(
        Epoch,
        rows=st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=8),
        taken_over=st.integers(0, 3).map(lambda n: n == 0),
        again=st.booleans(),
    ),
    max_size=8,
)


@every
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(epochs=EPOCHS)
def test_any_upserts_and_deletes_end_as_in_a_dict(kit: Kit, epochs: list[Epoch], tmp_path_factory: Any) -> None:
    as_in_a_dict(checks.fresh(type(kit), kit, tmp_path_factory.mktemp("dict")), epochs)


@every
def test_keys_of_several_fields_and_a_condition_that_is_null(kit: Kit, tmp_path: Path) -> None:
    options: dict[str, Any] = {"key": ("card", "country"), "delete": ~(field("closed") == False)}  # noqa: E712
    made: dict[str, Any] = {
        "sqlite-delete": lambda: SqliteSink(kit.path, "cards", **options),  # type: ignore[attr-defined]
        "postgres-delete": lambda: PostgresSink(kit.dsn, "cards", **options),  # type: ignore[attr-defined]
        "redis-delete": lambda: RedisSink(kit._server.url, prefix="cards", **options),  # type: ignore[attr-defined]
    }
    opened = next(make for name, make in made.items() if DELETING[name] is type(kit))()
    opened.open(Card)
    sink = pickle.loads(pickle.dumps(opened))  # as it is sent to instances
    opened.close()
    sink.open(Card)
    sink.write(batch([Card("a", "AT", False), Card("a", "CH", False), Card("b", "AT", False)]))
    sink.write(batch([Card("a", "AT", True), Card("a", "CH", None), Card("b", "CH", True)]))
    if isinstance(kit, RedisDeletingKit):
        assert sorted(kit.client.scan_iter("cards:*")) == [b"cards:a:CH", b"cards:b:AT"]
    else:
        rows = kit.query("SELECT card, country FROM cards")  # type: ignore[attr-defined]
        assert sorted(rows) == [("a", "CH"), ("b", "AT")]
    sink.close()


def test_the_last_row_counts_also_where_not_all_are_looked_at_together(
    tmp_path: Path, postgres: Any, redis_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamwork.connectors.pieces.TOGETHER", 2)
    for kind, server in zip(DELETING.values(), (None, postgres, redis_server), strict=True):
        kit = kind(tmp_path, server)
        events = [Seen("a", 1, 10), Seen("b", 1, 10), Seen("a", 2, GONE), Seen("b", 2, GONE), Seen("b", 3, 30)]
        kit.driver().commit(entry(1, 0, 5), staged(events, 1))
        assert kit.rows() == [("b", 3, 30)]
        kit.close()


# ---- databases -----------------------------------------------------------------------------------------------------------


def dirty(kit: Any) -> list[tuple[Any, ...]]:
    return sorted(kit.query("SELECT card, number, __epoch FROM seen__dirty"), key=str)


def previews_hide(kit: Any) -> None:
    sink, worker = kit.driver(), kit.make()
    sink.commit(entry(1, 0, 2), staged([Seen("a", 1, 10), Seen("b", 1, 10), Seen("c", 1, 10)]))
    worker.preview(PreviewLabel("u", "s", 1, 2), batch([Seen("a", 2, GONE), Seen("b", 2, GONE), Seen("d", 2, 20)]))
    worker.preview(PreviewLabel("u", "s", 1, 3), batch([Seen("b", 3, 30), Seen("d", 3, GONE)]))
    assert dirty(kit) == [("b", 3, 3), ("c", 1, None)], "what previews delete is not shown"
    assert [card for card, *_ in kit.rows()] == ["a", "b", "c"], "read-committed readers see none of it"
    sink.withdraw("u", "s", 3)
    assert dirty(kit) == [("a", 1, None), ("b", 1, None), ("c", 1, None)]


@sql
def test_a_preview_that_deletes_hides_the_key(kit: Kit) -> None:
    previews_hide(kit)


@sql
def test_a_view_that_does_not_look_at_deletes_shows_them(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    careless = lambda keys: without(sql_views.dirty_view(keys), f" AND NOT {sql_views.DELETED}")  # noqa: E731
    monkeypatch.setattr(sql_sink, "dirty_view", careless)
    assert "('a', 2, 2)" in failure(lambda: previews_hide(kit))


@sql
def test_previews_made_before_there_were_deletes_are_made_anew(kit: Any) -> None:
    kit.driver()
    labels = "__uid TEXT, __sink TEXT, __fence BIGINT, __epoch BIGINT, __row BIGINT"
    kit.execute(f"CREATE TABLE seen__preview ({labels}, card TEXT, number BIGINT, total BIGINT)")
    kit.execute("CREATE VIEW seen__dirty AS SELECT * FROM seen__preview")
    for name in ("seen__preview", "seen__dirty"):
        kit.execute(f"INSERT INTO streamwork_owners (target, uid, sink) VALUES ('{name}', 'u', 's (preview)')")
    previews_hide(kit)


@sql
def test_a_delete_that_the_database_refuses(kit: Any) -> None:
    sink = kit.driver()
    sink.commit(entry(1, 0, 2), staged([Seen("a", 1, 10), Seen("b", 1, 10)]))
    if isinstance(kit, PostgresUpsertKit):
        kit.execute("CREATE TABLE child (card text REFERENCES seen)")
        kit.execute("INSERT INTO child VALUES ('a')")
    else:
        kit.execute(
            "CREATE TRIGGER stays BEFORE DELETE ON seen WHEN old.card = 'a' BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
    gone = [Seen("b", 2, GONE), Seen("a", 2, GONE)]
    with pytest.raises(RowsRejected):
        sink.commit(entry(2, 2, 4), staged(gone))
    assert sink.rejects([batch(gone[:1])]) == "" and sink.rejects([batch(gone)]) != ""
    assert kit.rows() == [("a", 1, 10), ("b", 1, 10)]


class Numbered(Event):
    number: int
    gone: bool


@pytest.mark.parametrize("kit", ["postgres-delete"], indirect=True)
def test_a_table_of_your_own_with_other_types(kit: Any) -> None:
    kit.execute("CREATE TABLE numbered (number text PRIMARY KEY, gone boolean)")
    sink: Any = PostgresSink(kit.dsn, "numbered", key="number", delete=field("gone"))
    sink.open(Numbered)
    sink.write(batch([Numbered(1, False), Numbered(2, False)]))
    sink.write(batch([Numbered(1, True)]))
    assert kit.query("SELECT number FROM numbered") == [("2",)]
    sink.close()


@pytest.mark.parametrize("kit", ["postgres-delete"], indirect=True)
def test_two_writers_that_delete_do_not_wait_for_each_other_for_ever(kit: Any) -> None:
    """Each deletes what the other one writes, in the other order."""
    failed: list[BaseException] = []

    def writes(sink: Any, upserted: str, deleted: str) -> None:
        try:
            for number in range(30):
                sink.write(batch([Seen(upserted, number, 1), Seen(deleted, number, GONE)]))
        except BaseException as error:
            failed.append(error)

    writers = [threading.Thread(target=writes, args=(kit.make(), *names)) for names in (("a", "b"), ("b", "a"))]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert failed == [] and len(kit.rows()) == 1


# ---- a job ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("semantics", "isolation"),
    [
        ("at-most-once", "read-committed"),
        ("at-least-once", "read-committed"),
        ("exactly-once", "read-committed"),
        ("exactly-once", "read-uncommitted"),
    ],
)
def test_a_job_that_deletes(tmp_path: Path, semantics: str, isolation: str) -> None:
    events = [
        Seen("a", 1, 10),
        Seen("b", 1, 10),
        Seen("a", 2, GONE),
        Seen("c", 1, 10),
        Seen("a", 3, 30),
        Seen("b", 2, GONE),
    ]
    job = Job("deletes", semantics=semantics)
    sink: Any = SqliteSink(tmp_path / "out.db", "seen", key="card", delete=field("total") == GONE)
    job.source(ListSource(events, Seen, max_events=2), id="seen").sink(sink, id="out", isolation=isolation)
    job.run(mode="local", until_caught_up=True, root=tmp_path)
    reader = DELETING["sqlite-delete"](tmp_path, None)
    assert reader.rows() == kept(events) == [("a", 3, 30), ("c", 1, 10)]


# ---- a control -----------------------------------------------------------------------------------------------------------


@every
def test_a_sink_that_takes_deletes_for_rows_fails(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(kit), "options", {"delete": field("total") == GONE - 1})
    story = [Epoch([(0, False), (1, False)], False, False), Epoch([(0, True)], False, False)]
    assert "after epoch 2" in failure(lambda: as_in_a_dict(kit, story))
