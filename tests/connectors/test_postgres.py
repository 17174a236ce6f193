"""PostgresSink beyond the contract: lost answers, a server that goes away, tables that people made, secrets."""

from __future__ import annotations

import pickle
import threading
import time
import traceback
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import psycopg
import pytest

from connectors.kits import PostgresKit, Wide, batch, entry, seen, staged
from real_servers import PostgresServer
from sample import Seen
from streamwork import Digits, Event, JobFailed, PostgresSink, Refused, RowsRejected, WrongUse
from streamwork.components import PreviewLabel
from streamwork.connectors import postgres as connector
from streamwork.connectors.address import SecretsFile
from tiers import quick_every

append = pytest.mark.parametrize("kit", ["postgres"], indirect=True)
both = pytest.mark.parametrize("kit", ["postgres", "postgres-upsert"], indirect=True)


class LosesAnswers:
    """Breaks the connection at COMMIT: before it reaches the server, or after it was carried out."""

    def __init__(self, real: Any, done: bool) -> None:
        self._real, self._done = real, done

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def execute(self, statement: Any, *rest: Any) -> Any:
        if statement != "COMMIT":
            return self._real.execute(statement, *rest)
        if self._done:
            self._real.execute(statement)
        self._real.close()
        raise psycopg.OperationalError("server closed the connection unexpectedly")


def lose_answer(kit: PostgresKit, done: bool) -> Any:
    sink = kit.driver()
    sink.commit(entry(1, 0, 2), staged(seen(1, 2)))
    sink._connection = LosesAnswers(sink._connection, done)
    return sink


@both
def test_a_commit_whose_answer_was_lost_is_found_in_the_ledger(kit: PostgresKit) -> None:
    sink = lose_answer(kit, done=True)
    sink.commit(entry(2, 2, 5), staged(seen(3, 4, 5)))
    assert kit.rows() == kit.expected(seen(1, 2, 3, 4, 5))


@both
def test_a_commit_that_did_not_come_through_fails_and_can_be_offered_again(kit: PostgresKit) -> None:
    sink = lose_answer(kit, done=False)
    with pytest.raises(JobFailed, match="SW-SINK-FAILED"):
        sink.commit(entry(2, 2, 5), staged(seen(3, 4, 5)))
    assert kit.rows() == kit.expected(seen(1, 2))
    sink.commit(entry(2, 2, 5), staged(seen(3, 4, 5)))
    assert kit.rows() == kit.expected(seen(1, 2, 3, 4, 5))


@append
def test_without_looking_into_the_ledger_a_lost_answer_is_a_failure(
    kit: PostgresKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    def give_up(self: Any, offered: Any, lost: JobFailed) -> None:
        raise lost

    monkeypatch.setattr(PostgresSink, "_find_out", give_up)
    with pytest.raises(JobFailed, match="SW-SINK-FAILED"):
        lose_answer(kit, done=True).commit(entry(2, 2, 5), staged(seen(3, 4, 5)))
    assert len(kit.rows()) == 5


@append
def test_an_answer_lost_by_a_driver_that_was_taken_over(kit: PostgresKit) -> None:
    sink = lose_answer(kit, done=False)
    find_out = sink._find_out

    def after_a_take_over(*given: Any) -> None:
        kit.driver(2)
        find_out(*given)

    sink._find_out = after_a_take_over
    with pytest.raises(Refused, match="SW-SINK-FENCED"):
        sink.commit(entry(2, 2, 5), staged(seen(3, 4, 5)))


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    with PostgresServer.started() as server:
        yield server


def opened(server: PostgresServer, table: str = "seen", fence: int = 1, **options: Any) -> Any:
    sink: Any = PostgresSink(server.dsn, table, **options)
    sink.open(Seen)
    sink.register("u", "s", fence)
    return sink


def count(server: PostgresServer) -> Any:
    with psycopg.connect(server.dsn) as db:
        return db.execute("SELECT count(*) FROM seen").fetchone()


@pytest.mark.parametrize("kill", quick_every(2, [True, False]))
def test_a_server_restarted_in_mid_commit(own_server: PostgresServer, kill: bool) -> None:
    sink = opened(own_server)
    sink.commit(entry(1, 0, 2), staged(seen(1, 2)))

    def restarting() -> Iterator[Any]:
        yield batch(seen(*range(3, 9000)))
        own_server.restart(kill=kill)
        yield batch(seen(*range(9000, 20000)))

    with pytest.raises(JobFailed, match="SW-SINK-FAILED"):
        sink.commit(entry(2, 2, 20000), restarting())
    assert count(own_server) == (2,)
    sink.commit(entry(2, 2, 20000), staged(seen(*range(3, 20000)), 5000))  # the same object: it connects anew
    assert count(own_server) == (19999,)
    sink.close()


@pytest.mark.slow
def test_a_server_restarted_between_two_commits_is_not_noticed(own_server: PostgresServer) -> None:
    sink = opened(own_server)
    sink.commit(entry(1, 0, 2), staged(seen(1, 2)))
    own_server.restart(kill=True)
    sink.commit(entry(2, 2, 3), staged(seen(3)))
    assert count(own_server) == (3,)
    sink.close()


def test_a_server_that_goes_away_at_commit_and_comes_back(own_server: PostgresServer) -> None:
    sink = opened(own_server)

    class Kills(LosesAnswers):
        def execute(self, statement: Any, *rest: Any) -> Any:
            if statement == "COMMIT":
                self._real.execute("COMMIT")
                own_server.kill()
                threading.Timer(0.5, own_server.start).start()
                raise psycopg.OperationalError("gone")
            return self._real.execute(statement, *rest)

    sink._connection = Kills(sink._connection, done=True)
    sink.commit(entry(1, 0, 2), staged(seen(1, 2)))  # waits for the server, then reads the ledger
    assert count(own_server) == (2,)
    sink.close()


def test_a_server_that_stays_away(own_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connector, "RECONNECT_SECONDS", 0.3)
    sink = opened(own_server)
    own_server.kill()
    with pytest.raises(JobFailed, match="SW-SINK-FAILED"):
        sink.commit(entry(1, 0, 2), staged(seen(1, 2)))


@append
def test_a_driver_that_hangs_between_statements_does_not_keep_its_successor_out(
    kit: PostgresKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connector, "_BEGIN", connector._BEGIN.replace("'20.0s'", "'300ms'"))
    old = kit.driver(1)
    hung = old._transaction()
    db = hung.__enter__()
    old._row(db, "u", "s")  # it has the row, and hangs
    started = time.monotonic()
    kit.driver(2)
    assert 0.1 < time.monotonic() - started < 15
    with pytest.raises(JobFailed, match="SW-SINK-FAILED"):
        try:
            db.execute("SELECT 1")
        except BaseException as error:
            hung.__exit__(type(error), error, error.__traceback__)


# ---- tables --------------------------------------------------------------------------------------------------------------


@both
def test_types_of_a_table_that_it_made(kit: PostgresKit) -> None:
    kit.make(Wide)
    found = kit.query(
        "SELECT column_name, data_type, numeric_precision, numeric_scale FROM information_schema.columns "
        f"WHERE table_name = 'seen' AND table_schema = '{kit.schema}' ORDER BY ordinal_position"
    )
    assert [row[1] for row in found] == [
        "text", "boolean", "bigint", "double precision", "bytea", "timestamp with time zone", "date", "numeric",
        "jsonb", "jsonb", "jsonb", "bigint",
    ]  # fmt: skip
    assert found[7][2:] == (10, 2)


@both
def test_a_table_may_have_columns_of_its_own(kit: PostgresKit) -> None:
    key = ", UNIQUE (card)" if kit.keyed else ""
    kit.execute(f"CREATE TABLE seen (id serial PRIMARY KEY, total int, number smallint, card varchar(9){key})")
    sink = kit.driver()
    sink.commit(entry(1, 0, 2), staged(seen(1, 2)))
    assert kit.rows() == kit.expected(seen(1, 2))
    with pytest.raises(RowsRejected, match="out of range|NumericValueOutOfRange"):
        sink.commit(entry(2, 2, 3), staged(seen(100_000)))


@pytest.mark.parametrize("kit", ["postgres-upsert"], indirect=True)
def test_a_table_without_the_key_is_refused(kit: PostgresKit) -> None:
    kit.execute("CREATE TABLE seen (card text, number bigint PRIMARY KEY, total bigint)")
    with pytest.raises(Refused, match=r"SW-SINK-SCHEMA.*unique: number"):
        kit.make()


@append
def test_a_table_without_a_column_is_refused(kit: PostgresKit) -> None:
    kit.execute("CREATE TABLE seen (card text, number bigint)")
    with pytest.raises(Refused, match="SW-SINK-SCHEMA"):
        kit.make()


@append
def test_constraints_that_are_deferred_and_triggers_reject_rows_too(kit: PostgresKit) -> None:
    kit.execute("CREATE TABLE known (card text PRIMARY KEY)")
    reference = "REFERENCES known DEFERRABLE INITIALLY DEFERRED"
    kit.execute(f"CREATE TABLE seen (card text {reference}, number bigint, total bigint)")
    kit.execute("INSERT INTO known VALUES ('c1'), ('c2')")
    sink = kit.driver()
    with pytest.raises(RowsRejected, match="ForeignKeyViolation"):
        sink.commit(entry(1, 0, 2), staged(seen(1, 3)))
    kit.execute(
        "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.number = 2 THEN RAISE EXCEPTION 'not 2'; "
        "END IF; RETURN NEW; END $$"
    )
    kit.execute("CREATE TRIGGER no BEFORE INSERT ON seen FOR EACH ROW EXECUTE FUNCTION no()")
    with pytest.raises(RowsRejected, match="not 2"):
        sink.commit(entry(1, 0, 2), staged(seen(1, 2)))
    assert "not 2" in sink.rejects([batch(seen(2))]) and sink.rejects([batch(seen(1))]) == ""
    sink.commit(entry(1, 0, 2), staged(seen(1)))


class Priced(Event):
    name: str
    price: Annotated[Decimal, Digits(10, 2)]


@append
def test_values_that_postgres_cannot_hold(kit: PostgresKit) -> None:
    kit.execute("CREATE TABLE seen (name text, price numeric(4, 2))")
    sink = kit.driver(event=Priced)
    with pytest.raises(RowsRejected, match="numeric field overflow"):
        sink.commit(entry(1, 0, 1), staged([Priced("a", Decimal("123.00"))]))
    with pytest.raises(RowsRejected, match="0x00"):
        sink.commit(entry(1, 0, 1), staged([Priced("a\x00", Decimal("1.00"))]))
    given = [Priced("a\x00", Decimal("1.00")), Priced("b", Decimal("2.00")), Priced("c", Decimal("3.00"))]
    sink.preview(PreviewLabel("u", "s", 1, 1), batch(given))
    assert sorted(kit.query("SELECT name FROM seen__dirty")) == [("b",), ("c",)]


@pytest.mark.parametrize("key", [None, "card"])
def test_names_are_quoted(postgres: PostgresServer, key: str | None) -> None:
    table = f'a"b%s ?{{}}; DROP TABLE {key}'
    sink: Any = PostgresSink(postgres.dsn, table, key=key)
    sink.open(Seen)
    sink.register("quoting", f"s{key}", 1)
    sink.commit(entry(1, 0, 2, uid="quoting", sink=f"s{key}"), staged(seen(1, 2)))
    sink.preview(PreviewLabel("quoting", f"s{key}", 1, 2), batch(seen(3)))
    sink.withdraw("quoting", f"s{key}", 2)
    with psycopg.connect(postgres.dsn) as db:
        assert db.execute(
            psycopg.sql.SQL("SELECT count(*) FROM {}").format(psycopg.sql.Identifier(table))
        ).fetchone() == (2,)
    sink.close()


def test_names_that_postgres_would_cut() -> None:
    PostgresSink("dbname=x", "t" * 54)
    with pytest.raises(WrongUse, match="SW-SINK-TABLE"):
        PostgresSink("dbname=x", "t" * 55)
    with pytest.raises(WrongUse, match="SW-SINK-TABLE"):
        PostgresSink("dbname=x", "streamwork_ledger")


@append
def test_events_with_nothing_but_a_key(kit: PostgresKit) -> None:
    class Card(Event):
        card: str

    sink: Any = PostgresSink(kit.dsn, "cards", key="card")
    sink.open(Card)
    for _ in range(2):
        sink.write(batch([Card("a"), Card("a"), Card("b")]))
    sink.close()
    assert sorted(kit.query("SELECT * FROM cards")) == [("a",), ("b",)]


# ---- secrets -------------------------------------------------------------------------------------------------------------

SECRET = "s3cr%40t"
DSNS = [
    f"postgresql://someone:{SECRET}@127.0.0.1:1/db",
    "host=127.0.0.1 port=1 dbname=db user=someone password='s3cr@t'",
    f"postgresql://someone@127.0.0.1:1/db?password={SECRET}",
]


@pytest.mark.parametrize("dsn", DSNS)
def test_the_password_is_shown_nowhere(dsn: str) -> None:
    sink: Any = PostgresSink(dsn, "seen")
    shown = [repr(sink), str(sink), repr(vars(sink))]
    with pytest.raises(JobFailed, match="SW-SINK-FAILED") as failed:
        sink.open(Seen)
    shown += [str(failed.value), repr(failed.value), *traceback.format_exception(failed.value)]
    assert not [text for text in shown if SECRET in text or "s3cr@t" in text]
    assert "127.0.0.1" in shown[0] and "***" in shown[0]


@pytest.mark.parametrize("dsn", DSNS)
def test_what_is_sent_to_workers_names_a_file_of_the_owners(dsn: str, tmp_path: Path) -> None:
    sink: Any = PostgresSink(dsn, "seen")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "left.json").write_text("of a killed driver")
    file = SecretsFile(tmp_path / "secrets")
    with file.collecting():
        sent = pickle.dumps(sink)
    file.write()
    assert b"s3cr" not in sent
    assert [path.name for path in (tmp_path / "secrets").iterdir()] == [file.path.name]
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert pickle.loads(sent).address.whole == dsn, "workers need it"
    file.remove()
    with pytest.raises(JobFailed, match="SW-SINK-SECRET") as failed:
        pickle.loads(sent)
    assert "s3cr" not in "".join(traceback.format_exception(failed.value))
    assert b"s3cr" in pickle.dumps(sink), "without the file the check fails"


@pytest.mark.parametrize("dsn", ["postgresql://a:s3cr@t@[x/y", "no such s3cr@t", "hostt=s3cr@t", ""])
def test_an_address_that_is_not_understood_is_not_repeated(dsn: str) -> None:
    try:
        PostgresSink(dsn, "seen")
    except WrongUse as error:
        assert error.code == "SW-SINK-ADDRESS"
        assert "s3cr@t" not in "".join(traceback.format_exception(error)).replace(f"PostgresSink({dsn!r}", "")
    else:
        assert dsn == "", "an empty one means: what the surroundings say"
