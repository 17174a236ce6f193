"""The look-up of verdicts in the store of fraud detection: what it finds, how long it waits, and what is an outage."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from usage_example import Decisions, Scene, StoreUnavailable


@pytest.fixture
def store(tmp_path: Path) -> Path:
    scene = Scene(tmp_path)
    scene.judge(range(10))
    return scene.decisions


def test_a_verdict_is_fraud_or_no_fraud_and_no_verdict_is_neither(store: Path) -> None:
    with closing(sqlite3.connect(store)) as db, db:
        db.execute("INSERT INTO decisions VALUES ('undecided', NULL)")
    found = Decisions(store).find(["t0", "t1", "t7", "undecided", "never seen", "t1"])
    assert found == {"t0": True, "t1": False, "t7": True}


def test_any_number_of_transactions_is_looked_up(store: Path) -> None:
    Scene(store.parent).judge(range(5_000))
    found = Decisions(store).find(f"t{number}" for number in range(5_000))
    assert (len(found), sum(found.values())) == (4_900, sum(n % 7 == 0 and n % 50 != 49 for n in range(5_000)))
    assert Decisions(store).find([]) == {}


def test_a_verdict_that_arrives_while_it_waits_is_found(store: Path) -> None:
    later = threading.Timer(0.05, lambda: Scene(store.parent).judge([14]))
    later.start()
    assert Decisions(store, patience=60).find(["t1", "t14"]) == {"t1": False, "t14": True}
    later.join()


def test_all_transactions_of_a_look_up_wait_together(store: Path) -> None:
    began = time.monotonic()
    assert Decisions(store, patience=0.2).find([f"missing {number}" for number in range(1_000)]) == {}
    assert 0.2 <= time.monotonic() - began < 20, "1,000 waits would take 200 s"


@contextmanager
def missing(store: Path) -> Iterator[None]:
    elsewhere = store.rename(store.with_suffix(".elsewhere"))
    yield
    assert not store.exists(), "a look-up creates nothing"
    elsewhere.rename(store)


@contextmanager
def locked(store: Path) -> Iterator[None]:
    with closing(sqlite3.connect(store, isolation_level=None)) as db:
        db.execute("BEGIN EXCLUSIVE")
        yield


@contextmanager
def damaged(store: Path) -> Iterator[None]:
    elsewhere = store.rename(store.with_suffix(".elsewhere"))
    store.write_bytes(b"this is not a database" * 1_000)
    yield
    elsewhere.rename(store)


@contextmanager
def without_table(store: Path) -> Iterator[None]:
    elsewhere = store.rename(store.with_suffix(".elsewhere"))
    store.touch()
    yield
    elsewhere.rename(store)


@pytest.mark.parametrize("outage", [missing, locked, damaged, without_table])
def test_an_outage_is_an_error_that_ends(store: Path, outage: Callable[[Path], Iterator[None]]) -> None:
    with outage(store), pytest.raises(StoreUnavailable, match="decisions.db: "):
        Decisions(store).find(["t1"])
    assert Decisions(store).find(["t1"]) == {"t1": False}


def test_a_query_that_takes_too_long_is_interrupted(store: Path) -> None:
    Scene(store.parent).judge(range(1_000))
    with pytest.raises(StoreUnavailable, match="interrupted"):
        Decisions(store, stalled=-1).find(f"t{number}" for number in range(1_000))


def test_a_store_with_a_write_ahead_log_is_read_while_it_is_written(store: Path) -> None:
    """As fraud detection writes it: the look-up blocks no writer, and no writer blocks it."""
    with closing(sqlite3.connect(store, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("INSERT INTO decisions VALUES ('t14', 1)")
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO decisions VALUES ('uncommitted', 1)")
        assert Decisions(store).find(["t14", "uncommitted"]) == {"t14": True}
        db.execute("COMMIT")
    assert Decisions(store).find(["uncommitted"]) == {"uncommitted": True}, "also without a writer"


def test_the_store_of_fraud_detection_is_read(tmp_path: Path) -> None:
    theirs = pytest.importorskip("fraud.result_table", reason="there is no fraud detection yet")
    with closing(theirs.connect(tmp_path / "decisions.db")) as db:
        with db:
            values = [("a", "c1", 1, 3.0, "{}", "now"), ("b", "c1", 0, 0.0, "{}", "now")]
            db.executemany(theirs.INSERT, values)
        assert Decisions(tmp_path / "decisions.db").find(["a", "b", "c"]) == {"a": True, "b": False}
