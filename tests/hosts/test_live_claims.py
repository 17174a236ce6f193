"""At-most-once in live mode: what is in doubt after a stop, a loss or a timeout, and what is not."""

from __future__ import annotations

import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from hosts.test_live import Live, counting, expected, started
from live_jobs import Counting, Order
from streamwork import EventLog, Job, LogSource, SqliteSink
from streamwork.engine.claiming import Claiming
from streamwork.epoch.claims import Claims
from waiting import wait_for


def numbers(live: Live) -> list[int]:
    return [number for _, number, _ in live.rows()]


@pytest.fixture
def claims_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a busy machine takes, a task does not take back what it has claimed, until it leaves."""
    monkeypatch.setattr("streamwork.engine.claiming.REST_SECONDS", float("inf"))


@pytest.mark.usefixtures("claims_last")
def test_what_comes_after_a_clean_stop_is_not_in_doubt(tmp_path: Path) -> None:
    live = counting(tmp_path, semantics="at-most-once")
    live.start()
    for _ in range(3):
        live.send(30)
        live.until(lambda: len(live.rows()) == live.sent, "all rows")
        live.stop()
        live.send(30)
        live.start()
        assert not live.driver.in_doubt
        live.until(lambda: len(live.rows()) == live.sent, "what came meanwhile")
    live.stop()
    assert live.rows() == expected(live.sent)


@pytest.mark.usefixtures("claims_last")
def test_without_the_release_the_same_test_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Claiming, "release", lambda self: None)
    with pytest.raises(AssertionError):
        test_what_comes_after_a_clean_stop_is_not_in_doubt(tmp_path)


@pytest.mark.usefixtures("claims_last")
def test_input_that_was_not_there_at_a_start_is_not_in_doubt_later(tmp_path: Path) -> None:
    """The claim of a gang that was lost is beyond the input. The next start reads on where the input ends, and so does the one
    after it.
    """
    live = counting(tmp_path, semantics="at-most-once")
    live.start()
    live.send(30)
    live.until(lambda: len(live.rows()) == 30, "the first rows")
    live.lose()
    for _ in range(2):
        live.start()
        live.end()
    live.send(30)
    live.start()
    live.until(lambda: len(live.rows()) == 60, "what came meanwhile")
    live.stop()
    assert numbers(live) == list(range(60)), "state may be lost with an epoch that broke off, rows are not"


@pytest.mark.usefixtures("claims_last")
def test_without_settled_claims_the_same_test_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from streamwork.epoch.claims import within_input

    monkeypatch.setattr(Claims, "settle", lambda self, graph, fence: within_input(graph, self.furthest()))
    monkeypatch.setattr("gangs.PATIENCE", 1.0)
    with pytest.raises(AssertionError):
        test_input_that_was_not_there_at_a_start_is_not_in_doubt_later(tmp_path)


def test_two_sources_of_a_task_keep_both_claims(tmp_path: Path) -> None:
    job = Job("live", semantics="at-most-once", checkpoint_every="50ms")
    for name in ("log", "other"):
        orders = job.source(LogSource(tmp_path / name, Order), id=name)
        orders.apply(Counting(), key="shop", id=f"{name}-count").sink(
            SqliteSink(tmp_path / f"{name}.db", "out"), id=f"{name}-out"
        )
    other = EventLog.create(tmp_path / "other", Order, key="shop", partitions=2)

    def rows(name: str) -> Counter[int]:
        with sqlite3.connect(tmp_path / f"{name}.db") as db:
            try:
                return Counter(number for (number,) in db.execute("SELECT number FROM out"))
            except sqlite3.OperationalError:
                return Counter()

    live = Live(tmp_path, job)
    live.start()
    live.until(lambda: live.driver.at.epoch > 0 or not live.host.moved(), "the first checkpoint")
    live.driver.run_epoch()
    for number in range(0, 60, 10):  # alternately, so that each is the last to claim
        live.send(10)
        other.append([Order(number + i, "shop") for i in range(10)])
        wait_for(lambda number=number: (rows("log").total(), rows("other").total()) == (live.sent, number + 10))  # type: ignore[misc]
    live.lose()
    live.start()
    assert {one.source.partition("/")[0] for one in live.driver.in_doubt} == {"log", "other"}
    live.send(10)
    other.append([Order(60 + i, "shop") for i in range(10)])
    live.until(lambda: rows("log")[69] == 1 and rows("other")[69] == 1, "new rows")
    live.stop()
    for name in ("log", "other"):
        assert max(rows(name).values()) == 1, name


def test_what_is_not_used_is_taken_back_after_a_while() -> None:
    now, written = [0.0], list[dict[str, int]]()
    claiming = Claiming(written.append, _at_once, lambda: now[0])
    claiming.reach("a/0", 10)
    claiming.rest()
    assert written == [{"a/0": 110}]
    now[0] = 2.0
    claiming.rest()
    claiming.rest()
    assert written == [{"a/0": 110}, {"a/0": 10}]
    claiming.reach("a/0", 11)
    assert written[-1]["a/0"] > 11
    claiming.release()
    assert written[-1] == {"a/0": 11}


def _at_once(act):  # type: ignore[no-untyped-def]
    from concurrent.futures import Future

    done: Future[None] = Future()
    done.set_result(act())
    return done


@pytest.mark.usefixtures("claims_last")
def test_after_a_timeout_input_that_comes_later_is_read(tmp_path: Path) -> None:
    """The claim of the gang that took too long is beyond the input."""
    live = counting(tmp_path, semantics="at-most-once")
    with started(live):
        live.send(20)
        live.until(lambda: len(live.rows()) == 20, "the first rows")
        live.host.abandon()
        live.driver._in_flight.abandon()
        live.send(20)
        live.until(lambda: len(numbers(live)) == 40, "what came later")
        live.stop()
    assert numbers(live) == list(range(40)), "state may be lost with an epoch that broke off, rows are not"
