"""Mistakes and damage that would once have given wrong numbers without a word. Each must be refused, or come out right."""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crashes import Crash, CrashAt
from sample import Payment, Seen, Summing, expected_journal, payments, run_job, summing_job
from streamwork import (
    Event,
    Job,
    JobFailed,
    JsonLines,
    KeyedOperator,
    ListSource,
    Operator,
    Record,
    Refused,
    SqliteSink,
    WrongUse,
)
from streamwork.components.position import from_plain
from streamwork.epoch import Manifest, Phase
from streamwork.epoch.sealed import to_bytes


def journal(folder: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder / "out.db")) as db:
        return db.execute("SELECT card, number, total FROM journal ORDER BY rowid").fetchall()


def lines(*cards: str) -> str:
    return "".join(json.dumps({"card": card, "amount": 1}) + "\n" for card in cards)


def file_job(folder: Path, name: str = "in.jsonl", source_id: str = "payments", **options: Any) -> Job:
    job = Job("filed")
    stream = job.source(JsonLines(folder / name, Payment, **options), id=source_id)
    stream.apply(Summing(), key="card", id="sums").sink(SqliteSink(folder / "out.db", "journal"), id="journal")
    return job


# ---- the job was changed ------------------------------------------------------------------------------------------


def test_a_source_under_another_id_is_not_read_again_into_old_state(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(lines("a", "b"))
    run_job(file_job(tmp_path), tmp_path / "root")
    with pytest.raises(Refused, match="SW-SOURCE-ORPHAN.*'payments'"):
        run_job(file_job(tmp_path, source_id="renamed"), tmp_path / "root")


def test_another_file_under_the_same_id_is_not_continued_in_the_middle(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(lines("a", "b"))
    (tmp_path / "other.jsonl").write_text(lines("x", "y", "z"))
    run_job(file_job(tmp_path), tmp_path / "root")
    with pytest.raises(Refused, match="SW-SOURCE-CHANGED"):
        run_job(file_job(tmp_path, "other.jsonl"), tmp_path / "root")
    shutil.move(tmp_path / "in.jsonl", tmp_path / "moved.jsonl")
    with (tmp_path / "moved.jsonl").open("a") as file:
        file.write(lines("a"))
    run_job(file_job(tmp_path, "moved.jsonl"), tmp_path / "root")
    assert [row[:2] for row in journal(tmp_path)] == [("a", 1), ("b", 1), ("a", 2)]


# ---- what operators do --------------------------------------------------------------------------------------------


class Listed(Record):
    recent: list[int] = []


class Listing(Event):
    recent: list[int]


class Keeping(KeyedOperator[Payment, Listed, Listing]):
    def apply(self, event: Payment, state: Listed, collector: Any) -> None:
        state.recent.append(event.amount)
        collector.emit(Listing(state.recent))


@pytest.mark.parametrize("cut", [1, 2, 100])
def test_what_was_emitted_does_not_change_with_the_state(tmp_path: Path, cut: int) -> None:
    job = Job("listing")
    events = [Payment("a", i) for i in range(4)]
    stream = job.source(ListSource(events, max_events=cut), id="in").apply(Keeping(), key="card", id="keeping")
    stream.sink(SqliteSink(tmp_path / "out.db", "lists"), id="lists")
    run_job(job, tmp_path / "root")
    with closing(sqlite3.connect(tmp_path / "out.db")) as db:
        rows = [json.loads(row[0]) for row in db.execute("SELECT recent FROM lists")]
    assert rows == [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3]]


class Yielding(Operator[Payment, Payment]):
    def apply(self, event: Payment, collector: Any) -> Any:
        yield event


class Returning(Operator[Payment, Payment]):
    def apply(self, event: Payment, collector: Any) -> Any:
        return event


class Leaving(Operator[Payment, Payment]):
    def apply(self, event: Payment, collector: Any) -> None:
        sys.exit(0)


class Nothing(Operator[Payment, Payment]):
    def apply(self, event: Payment, collector: Any) -> None:
        collector.emit(None)


def test_yield_is_not_emit() -> None:
    with pytest.raises(WrongUse, match="SW-OPERATOR-YIELD"):
        Job("j").source(ListSource(payments(1)), id="in").apply(Yielding())


@pytest.mark.slow(mode="microbatch")
@pytest.mark.parametrize(
    ("operator", "message"),
    [
        (Returning(), "apply returned a value"),
        (Leaving(), "SystemExit"),
        (Nothing(), "SW-TYPE-EVENT: in-nothing: expected Payment but got NoneType"),
    ],
)
def test_an_operator_that_only_looks_as_if_it_worked(tmp_path: Path, mode: str, operator: Any, message: str) -> None:
    job = Job("odd")
    job.source(ListSource(payments(3)), id="in").apply(operator).apply(Summing(), key="card", id="sums")
    with pytest.raises(JobFailed, match=message):
        run_job(job, tmp_path / "root", mode)


class Worded(Record, kw_only=True):
    number: int = 0
    total: int = 0


class Wordy(KeyedOperator[Payment, Worded, Seen]):
    def apply(self, event: Payment, state: Worded, collector: Any) -> None:
        state.number += 1
        state.total += event.amount
        collector.emit(Seen(event.card, state.number, state.total))


def test_records_with_keyword_only_fields_come_back(tmp_path: Path) -> None:
    for count in (10, 20):
        job = Job("worded")
        stream = job.source(ListSource(payments(count)), id="in").apply(Wordy(), key="card", id="wordy")
        stream.sink(SqliteSink(tmp_path / "out.db", "journal"), id="journal")
        run_job(job, tmp_path / "root")
    assert journal(tmp_path) == expected_journal(payments(20))


@pytest.mark.parametrize("key", [("card", "card"), {"card", "amount"}, ()])
def test_keys_without_an_order_or_with_a_field_twice(key: Any) -> None:
    with pytest.raises(WrongUse, match="SW-KEY-FIELD"):
        Job("j").source(ListSource(payments(1)), id="in").apply(Summing(), key=key, id="sums")


@pytest.mark.parametrize("count", [0, -1, "5", 1.5])
def test_epochs_of_no_size(count: Any) -> None:
    with pytest.raises(WrongUse, match="SW-JOB-SETTING.*max_events"):
        Job("j").source(ListSource(payments(1), max_events=count), id="in")


class Unkeyed(Event):
    name: str | None
    tags: dict[str, int]
    deep: list[dict[str, int]]


def test_a_sink_key_that_may_be_none_is_refused(tmp_path: Path) -> None:
    job = Job("none")
    job.source(ListSource([Unkeyed(None, {}, [])]), id="in").sink(
        SqliteSink(tmp_path / "out.db", "t", key="name"), id="t"
    )
    with pytest.raises(WrongUse, match="SW-KEY-TYPE"):
        run_job(job, tmp_path / "root")


def test_empty_and_nested_values_are_the_json_that_they_look_like(tmp_path: Path) -> None:
    job = Job("values")
    job.source(ListSource([Unkeyed(None, {}, [{"a": 1}])]), id="in").sink(SqliteSink(tmp_path / "out.db", "t"), id="t")
    run_job(job, tmp_path / "root")
    with closing(sqlite3.connect(tmp_path / "out.db")) as db:
        assert db.execute("SELECT * FROM t").fetchall() == [(None, "{}", '[{"a":1}]')]


def test_two_sinks_on_one_table_in_another_spelling(tmp_path: Path) -> None:
    job = Job("twice")
    stream = job.source(ListSource(payments(3)), id="in")
    for name in ("usage", "USAGE"):
        stream.sink(SqliteSink(tmp_path / "out.db", name), id=name)
    with pytest.raises(Refused, match="SW-SINK-OWNED.*of this job"):
        run_job(job, tmp_path / "root")


# ---- lines that are none ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("garbage", ["", "garbage\n"])
def test_an_event_is_a_line_whatever_else_is_in_the_block(tmp_path: Path, garbage: str) -> None:
    good = '{"card": "a",\r "amount": 1}\n'
    two = '{"card": "b", "amount": 1} {"card": "b", "amount": 1}\n'
    torn = '{"card": "c",\n"amount": 1}\n'
    (tmp_path / "in.jsonl").write_text(good + two + torn + garbage)
    outcome = run_job(file_job(tmp_path, on_error="drop"), tmp_path / "root")
    assert [row[0] for row in journal(tmp_path)] == ["a"]
    assert outcome.dropped == 3 + bool(garbage)


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(b"\xef\xbb\xbf" + lines("a").encode())
    run_job(file_job(tmp_path), tmp_path / "root")
    assert [row[0] for row in journal(tmp_path)] == ["a"]


# ---- damage -------------------------------------------------------------------------------------------------------


def test_a_sink_that_was_removed_is_missed_at_once(tmp_path: Path) -> None:
    run_job(summing_job(payments(20), tmp_path / "out.db", 2), tmp_path / "root")
    (tmp_path / "out.db").rename(tmp_path / "kept.db")
    with pytest.raises(Refused, match="SW-SINK-LOST"):
        run_job(summing_job(payments(20), tmp_path / "out.db"), tmp_path / "root")
    (tmp_path / "kept.db").rename(tmp_path / "out.db")
    run_job(summing_job(payments(40), tmp_path / "out.db"), tmp_path / "root")
    assert journal(tmp_path) == expected_journal(payments(40))


@pytest.mark.slow(stage="prepared")
@pytest.mark.parametrize("stage", ["completed", "prepared"])
def test_a_manifest_with_any_byte_changed_never_gives_wrong_numbers(tmp_path: Path, stage: str) -> None:
    """Also where it is still JSON: another position, another instance, another hash."""
    made = tmp_path / "made"
    made.mkdir()
    watcher = CrashAt(1, Phase.PREPARE) if stage == "prepared" else None
    with suppress(Crash):
        run_job(summing_job(payments(20), made / "out.db"), made / "root", watcher=watcher)
    name = "000000000002.json" if stage == "completed" else "000000000002.prepared.json"
    checkpoints = Path("root") / "summing" / "checkpoints"
    data = (made / checkpoints / name).read_bytes()
    for place in range(3, len(data), max(1, len(data) // 60)):
        folder = tmp_path / f"flip-{place}"
        shutil.copytree(made, folder)
        (folder / checkpoints / name).write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with closing(sqlite3.connect(folder / "out.db")) as db:
            db.execute("PRAGMA user_version")
        run_job(summing_job(payments(30), folder / "out.db"), folder / "root")
        assert journal(folder) == expected_journal(payments(30))
        assert list((folder / "root" / "summing" / "quarantine").rglob(name)), "it was noticed"
        shutil.rmtree(folder)


def test_what_a_driver_left_that_had_lost_its_job_is_passed_over(tmp_path: Path) -> None:
    """The old driver prepares an epoch on the same parent as the newer one, which completes its own: higher fence, lower number."""
    run_job(summing_job(payments(10), tmp_path / "out.db"), tmp_path / "root")
    run_job(summing_job(payments(20), tmp_path / "out.db"), tmp_path / "root")
    folder = tmp_path / "root" / "summing" / "checkpoints"
    left = json.loads((folder / "000000000002.prepared.json").read_text())
    left["epoch"], left["fence"] = 3, 1
    (folder / "000000000003.prepared.json").write_bytes(to_bytes(msgspec.convert(left, Manifest, dec_hook=from_plain)))
    run_job(summing_job(payments(40), tmp_path / "out.db"), tmp_path / "root")
    assert journal(tmp_path) == expected_journal(payments(40))


def test_fences_that_were_emptied_do_not_lock_the_job_out(tmp_path: Path) -> None:
    for count in (10, 20, 30):
        run_job(summing_job(payments(count), tmp_path / "out.db"), tmp_path / "root")
    shutil.rmtree(tmp_path / "root" / "summing" / "fences")
    run_job(summing_job(payments(40), tmp_path / "out.db"), tmp_path / "root")
    assert journal(tmp_path) == expected_journal(payments(40))


def test_files_of_epochs_that_came_to_nothing_are_cleaned_up(tmp_path: Path) -> None:
    """So that whoever reads the state folder as it is reads what counts."""
    with pytest.raises(Crash):
        run_job(summing_job(payments(20), tmp_path / "out.db"), tmp_path / "root", watcher=CrashAt(0, Phase.COMPUTE))
    state = tmp_path / "root" / "summing" / "state" / "sums" / "0"
    assert [path.name[:12] for path in state.iterdir()] == ["000000000001"]
    run_job(summing_job([], tmp_path / "out.db"), tmp_path / "root")
    assert list(state.iterdir()) == []


def test_a_root_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JobFailed, match="SW-IO-FAILED"):
        run_job(summing_job(payments(1), tmp_path / "out.db"), tmp_path / "file" / "root")
