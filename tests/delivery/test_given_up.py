"""What is given up, and counted the same by everyone; letters that are tried anew; sources that are asked in vain."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from commands import ask
from crashes import Crash, CrashAt
from delivery.failing_jobs import Calls, Fountain, Item, Result, Tries
from delivery.test_acknowledging import letters_in, written
from sample import run_job
from streamwork import Job, KeyedOperator, ListSource, Operator, SqliteSink
from streamwork.cli.progress import end_lines
from streamwork.delivery import Acknowledger, DeadLetters, Inbox, Outcome
from streamwork.epoch import Phase
from streamwork.epoch.history.reading import totals
from streamwork.run.mode import Mode
from streamwork.run.options import RunOptions
from streamwork.run.runner import run as run_until_stopped
from streamwork.world import RealDisk

ITEMS = [Item(f"{i:03d}") for i in range(40)]


class Stubborn(Operator[Item, Result]):
    """Never acknowledges a 7, fails a 5, and does the rest."""

    manual_ack = True

    def apply(self, event: Item, collector: Any) -> None:
        if event.name.endswith("5"):
            collector.fail("a five")
        if not event.name.endswith("7"):
            collector.ack()
        collector.emit(Result(event.name))


def job_of(folder: Path, operator: Any, source: Any, **chosen: Any) -> Job:
    settings = {"retry_after": 0, "ack_timeout": "20ms", "max_attempts": 2, "checkpoint_every": 0, **chosen}
    made = Job("items", semantics="at-least-once", tracking="acknowledge", **settings)
    made.source(source, id="items").apply(operator, id="work").sink(SqliteSink(folder / "out.db", "out"), id="out")
    return made


# ---- counts ---------------------------------------------------------------------------------------------------------


def test_everyone_counts_the_same_letters(tmp_path: Path) -> None:
    job = job_of(tmp_path, Stubborn(), ListSource(ITEMS, Item, max_events=10))
    outcome = run_job(job, tmp_path / "root")
    root = tmp_path / "root"
    assert letters_in(root / "items") == {"005", "007", "015", "017", "025", "027", "035", "037"}
    listed = ask("dead-letters", "list", "--root", root, "items")["count"]
    status = ask("status", "--root", root, "items")
    committed = status["counts"]["work"]["committed"]
    history = sum(one.counts.dead_letters for one in totals(root / "items" / "history.sqlite"))
    assert (
        listed == status["dead_letters"]["count"] == committed["dead_letters"] == history == outcome.dead_letters == 8
    )
    assert "8 dead letters" in "\n".join(end_lines(outcome))
    # Each 5 fails twice. Each 7 is applied twice, and its time is over twice: that counts, too, as what it is then.
    assert committed["failed"] == 4 + 4
    assert committed["processed"] == len(ITEMS) + 8 + 8
    assert committed["delivered"] == len(ITEMS) - 4 + 4


def test_who_does_not_count_the_late_ones_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle = Acknowledger.resolve

    def uncounted(self: Acknowledger, *told: Any) -> Outcome:
        found = settle(self, *told)
        return Outcome(found.waiting, found.letters, {})

    monkeypatch.setattr(Acknowledger, "resolve", uncounted)
    with pytest.raises(AssertionError):
        test_everyone_counts_the_same_letters(tmp_path)


def test_where_it_is_pending(tmp_path: Path) -> None:
    job = job_of(tmp_path, Stubborn(), ListSource([Item("7"), Item("1")], Item), ack_timeout="60s")
    with pytest.raises(Crash):
        run_job(job, tmp_path / "root", watcher=CrashAt(1, Phase.PRUNE))
    waiting = ask("status", "--root", tmp_path / "root", "items")["waiting"]
    assert (waiting["count"], waiting["pending"]) == (1, 1)
    assert waiting["first"][0]["owed"] == {"work": 1}


# ---- replayed letters -----------------------------------------------------------------------------------------------


def replay_all(folder: Path) -> None:
    Inbox(RealDisk(), folder).put(DeadLetters(RealDisk(), folder).all())


@pytest.mark.parametrize("steps", [None, *range(4 + 2 * 6)])
def test_a_replayed_letter_has_all_its_attempts_anew(tmp_path: Path, steps: int | None) -> None:
    """It fails twice and is a letter; replayed, it fails once more, and is done."""
    job = job_of(tmp_path, Calls(failing={"A": 3}), ListSource([Item("A"), Item("B")], Item))
    run_job(job, tmp_path / "root")
    assert letters_in(tmp_path / "root" / "items") == {"A"}
    replay_all(tmp_path / "root" / "items")
    if steps is not None:
        with pytest.raises(Crash):
            run_job(job, tmp_path / "root", watcher=CrashAt(steps))
    run_job(job, tmp_path / "root")
    assert Counter(written(tmp_path / "out.db")).keys() == {"A", "B"}
    assert len(DeadLetters(RealDisk(), tmp_path / "root" / "items").all()) == 1


def test_a_replayed_letter_can_be_pending(tmp_path: Path) -> None:
    job = job_of(tmp_path, Stubborn(), ListSource([Item("7")], Item))
    for life in (1, 2):
        run_job(job, tmp_path / "root")
        found = DeadLetters(RealDisk(), tmp_path / "root" / "items").all()
        assert [(one.attempts, one.to) for one in found] == [(2, "items")] * life
        if life == 1:
            replay_all(tmp_path / "root" / "items")
    assert written(tmp_path / "out.db") == ["7"] * 4


# ---- sources that can only be asked ---------------------------------------------------------------------------------


class Timed(KeyedOperator[Item, Tries, Result]):
    def apply(self, event: Item, state: Tries, collector: Any) -> None:
        collector.emit(Result(event.name))

    def on_timer(self, key: Any, at: Any, state: Tries, collector: Any) -> None: ...


@pytest.mark.parametrize("timed", [False, True])
def test_to_ask_in_vain_makes_no_checkpoint_and_no_plan(tmp_path: Path, timed: bool) -> None:
    Fountain.left[:] = ITEMS[:3]
    made = Job("items", semantics="at-least-once", tracking="acknowledge", checkpoint_every="1ms")
    items = made.source(Fountain(), id="items")
    done = items.apply(Timed(), key="name", id="work") if timed else items.apply(Calls(), id="work")
    done.sink(SqliteSink(tmp_path / "out.db", "out"), id="out")
    asked = CrashAt(15, Phase.PLAN)
    with pytest.raises(Crash):
        run_until_stopped(made, RunOptions(mode=Mode("local"), root=tmp_path / "root", restart=False), asked)
    plans = sorted((tmp_path / "root" / "items" / "checkpoints").glob("*.plan.json"))
    assert len(plans) <= 3
    assert not timed or int(plans[-1].name[:12]) <= 3
    Fountain.left[:] = ITEMS[3:6]
    run_job(made, tmp_path / "root")
    assert written(tmp_path / "out.db") == [item.name for item in ITEMS[:6]]
    with closing(sqlite3.connect(tmp_path / "root" / "items" / "history.sqlite")) as db:
        assert db.execute("SELECT sum(events) FROM epochs").fetchone() == (6,)


def test_between_two_questions_lies_the_time_between_two_checkpoints(tmp_path: Path) -> None:
    Fountain.left[:] = []
    made = job_of(tmp_path, Calls(), Fountain(), checkpoint_every="300ms")
    began = time.monotonic()
    with pytest.raises(Crash):
        run_until_stopped(
            made, RunOptions(mode=Mode("local"), root=tmp_path / "root", restart=False), CrashAt(3, Phase.PLAN)
        )
    assert time.monotonic() - began >= 0.6
