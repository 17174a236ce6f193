"""What must hold on every host: the same job, the same results, the same state files, the same errors."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from sample import Doubling, Payment, Summing, Sums, expected_journal, payments, run_job, summing_job
from streamwork import Job, JobFailed, KeyedOperator, ListSource, Record, Refused, SqliteSink


def journal(database: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(database)) as db:
        return db.execute("SELECT card, number, total FROM journal ORDER BY rowid").fetchall()


def state_rows(root: Path, job: str = "summing", component: str = "sums") -> dict[str, dict[str, Any]]:
    """The state as anybody could read it: all files of the instance, later ones win."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted((root / job / "state" / component / "0").glob("*.parquet")):
        found.update((row["card"], row) for row in pq.read_table(path).to_pylist())
    return found


def test_results_are_those_of_a_fold_over_the_input(tmp_path: Path, mode: str) -> None:
    events = payments(95)
    outcome = run_job(summing_job(events, tmp_path / "out.db"), tmp_path / "root", mode)
    assert journal(tmp_path / "out.db") == expected_journal(events)
    assert (outcome.started, outcome.events) == ("new", 95)
    assert mode == "live" or outcome.checkpoints == 10, "in live mode epochs are cut by time"


def test_a_restart_goes_on_where_the_last_run_ended(tmp_path: Path, mode: str) -> None:
    events = payments(60)
    newest = 0
    for count in (25, 25, 60):
        before = newest
        outcome = run_job(summing_job(events[:count], tmp_path / "out.db"), tmp_path / "root", mode)
        newest = outcome.checkpoint
    assert outcome.started == f"resumed at checkpoint {before}"
    assert mode == "live" or before == 3, "in live mode epochs are cut by time"
    assert journal(tmp_path / "out.db") == expected_journal(events)


def test_hosts_take_over_from_each_other(tmp_path: Path, spark: Any) -> None:
    events = payments(60)
    for count, mode in ((20, "local"), (40, "microbatch"), (60, "local")):
        run_job(summing_job(events[:count], tmp_path / "out.db"), tmp_path / "root", mode)
    assert journal(tmp_path / "out.db") == expected_journal(events)


def test_state_rows_are_as_designed(tmp_path: Path, mode: str) -> None:
    events = payments(30)
    run_job(summing_job(events, tmp_path / "out.db"), tmp_path / "root", mode)
    rows = state_rows(tmp_path / "root")
    assert {card: row["total"] for card, row in rows.items()} == {c: t for c, _, t in expected_journal(events)}
    row = rows["card-0"]
    assert list(row) == ["card", "number", "total", "__group", "__epoch", "__deleted", "__timers"]
    assert (row["__deleted"], row["__timers"]) == (False, [])


@pytest.mark.usefixtures("prompt_snapshots")
def test_a_long_chain_of_deltas_is_replaced_by_a_snapshot(tmp_path: Path) -> None:
    events = payments(500)
    run_job(summing_job(events, tmp_path / "out.db"), tmp_path / "root")
    folder = tmp_path / "root" / "summing" / "state" / "sums" / "0"
    assert list(folder.glob("*.snapshot.parquet"))
    run_job(summing_job([*events, Payment("card-0", 1)], tmp_path / "out.db"), tmp_path / "root")
    assert journal(tmp_path / "out.db") == expected_journal([*events, Payment("card-0", 1)])


def test_an_operator_that_raises_is_named_with_its_event_and_the_last_checkpoint_is_good(
    tmp_path: Path, mode: str
) -> None:
    good, bad = payments(25), Payment("card-5", -1)
    with pytest.raises(JobFailed) as caught:
        run_job(summing_job([*good, bad], tmp_path / "out.db"), tmp_path / "root", mode)
    error = caught.value
    assert error.code == "SW-OPERATOR-FAILED"
    in_turn = mode != "live"  # there all events are one piece, and where epochs are cut is a matter of time
    for words in ("sums (instance 0)", "ValueError: an amount below zero", "sample.py:", repr(bad), "epoch 3"):
        assert words in error.cause or (words == "epoch 3" and not in_turn)
    assert journal(tmp_path / "out.db") == expected_journal(good[:20] if in_turn else [])
    outcome = run_job(summing_job([*good, Payment("card-5", 1)], tmp_path / "out.db"), tmp_path / "root", mode)
    assert outcome.started == "resumed at checkpoint 2" or not in_turn
    assert journal(tmp_path / "out.db") == expected_journal([*good, Payment("card-5", 1)])


def test_operators_in_a_row_and_a_fork(tmp_path: Path, mode: str) -> None:
    job = Job("forked")
    stream = job.source(ListSource(payments(50)), id="payments")
    doubled = stream.apply(Doubling()).apply(Doubling())
    doubled.apply(Summing(), key="card", id="sums").sink(SqliteSink(tmp_path / "out.db", "journal"), id="journal")
    stream.sink(SqliteSink(tmp_path / "out.db", "raw"), id="raw")
    run_job(job, tmp_path / "root", mode)
    expected = expected_journal([Payment(p.card, 4 * p.amount) for p in payments(50) if p.amount])
    assert journal(tmp_path / "out.db") == expected
    with closing(sqlite3.connect(tmp_path / "out.db")) as db:
        assert db.execute("SELECT count(*) FROM raw").fetchone() == (50,)


def test_printing_shows_committed_events(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = Job("shown")
    job.source(ListSource(payments(2)), id="payments").print()
    run_job(job, tmp_path)
    assert capsys.readouterr().out == "payments: card='card-0', amount=0\npayments: card='card-3', amount=1\n"


class Wider(Record):
    number: int = 0
    total: float = 0.0
    most: int = 0


class Widened(KeyedOperator[Payment, Wider, Payment]):
    def apply(self, event: Payment, state: Wider, collector: Any) -> None:
        raise AssertionError("never reached")


def changed_job(operator: Any, name: str) -> Job:
    job = Job("summing")
    job.source(ListSource(payments(60)), id="payments").apply(operator, key="card", id=name)
    return job


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_a_record_that_no_longer_fits_is_refused_before_the_first_write(tmp_path: Path) -> None:
    run_job(summing_job(payments(20), tmp_path / "out.db"), tmp_path / "root")
    before = files_below(tmp_path)
    with pytest.raises(Refused) as caught:
        run_job(changed_job(Widened(), "sums"), tmp_path / "root")
    assert caught.value.code == "SW-STATE-SCHEMA"
    assert "most" not in caught.value.cause, "it has a default"
    assert "total was int64 and is now double" in caught.value.cause
    assert files_below(tmp_path) == before


def test_state_whose_component_is_gone_is_refused_before_the_first_write(tmp_path: Path) -> None:
    run_job(summing_job(payments(20), tmp_path / "out.db"), tmp_path / "root")
    before = files_below(tmp_path)
    with pytest.raises(Refused, match="SW-STATE-ORPHAN.*'sums'"):
        run_job(changed_job(Summing(), "renamed"), tmp_path / "root")
    assert files_below(tmp_path) == before


def test_a_sink_that_is_added_later_gets_what_comes_from_then_on(tmp_path: Path) -> None:
    run_job(changed_job(Summing(), "sums"), tmp_path / "root")
    run_job(summing_job(payments(70), tmp_path / "out.db"), tmp_path / "root")
    assert journal(tmp_path / "out.db") == expected_journal(payments(70))[60:]


@pytest.mark.slow(mode="microbatch", damage=["missing", "truncated", "empty"])
@pytest.mark.parametrize("damage", ["missing", "truncated", "flipped", "empty"])
def test_damaged_state_is_passed_over_and_never_served(tmp_path: Path, mode: str, damage: str) -> None:
    run_job(summing_job(payments(20), tmp_path / "out.db"), tmp_path / "root")
    first = min((tmp_path / "root" / "summing" / "state" / "sums" / "0").iterdir())
    data = first.read_bytes()
    if damage == "missing":
        first.unlink()
    else:
        flipped = data[:50] + bytes([data[50] ^ 1]) + data[51:]
        first.write_bytes({"truncated": data[:-7], "flipped": flipped, "empty": b""}[damage])
    run_job(summing_job(payments(40), tmp_path / "out.db"), tmp_path / "root", mode)
    assert journal(tmp_path / "out.db") == expected_journal(payments(40))


@pytest.mark.parametrize("damage", [b"", b"{", b'{"epoch": 2}', "spaces"])
def test_a_damaged_manifest_is_passed_over(tmp_path: Path, damage: bytes | str) -> None:
    run_job(summing_job(payments(20), tmp_path / "out.db"), tmp_path / "root")
    newest = tmp_path / "root" / "summing" / "checkpoints" / "000000000002.json"
    newest.write_bytes(damage if isinstance(damage, bytes) else newest.read_bytes().replace(b"\n", b"\n "))
    run_job(summing_job(payments(40), tmp_path / "out.db"), tmp_path / "root")
    assert journal(tmp_path / "out.db") == expected_journal(payments(40))


def test_a_root_without_checkpoints_never_starts_empty(tmp_path: Path) -> None:
    run_job(summing_job(payments(20), tmp_path / "out.db"), tmp_path / "root")
    folder = tmp_path / "root" / "summing"
    for path in (folder / "checkpoints").iterdir():
        path.unlink()
    with pytest.raises(Refused, match="SW-CHECKPOINT-NONE"):
        run_job(summing_job(payments(40), tmp_path / "out.db"), tmp_path / "root")


def test_a_creation_that_was_cut_short_begins_again(tmp_path: Path) -> None:
    run_job(summing_job(payments(0), tmp_path / "out.db"), tmp_path / "root")
    (tmp_path / "root" / "summing" / "job.json").unlink()
    (tmp_path / "out.db").unlink()
    run_job(summing_job(payments(20), tmp_path / "out.db"), tmp_path / "root")
    assert journal(tmp_path / "out.db") == expected_journal(payments(20))


def test_records_are_checked_before_they_are_stored(tmp_path: Path, mode: str) -> None:
    with pytest.raises(JobFailed) as caught:
        run_job(changed_job(Spoiling(), "sums"), tmp_path / "root", mode)
    assert caught.value.code == "SW-TYPE-VALUE"
    assert "sums: Sums.total" in caught.value.cause


class Spoiling(KeyedOperator[Payment, Sums, Payment]):
    def apply(self, event: Payment, state: Sums, collector: Any) -> None:
        state.total = 0.5  # type: ignore[assignment]


def test_the_wrong_event_is_not_let_out(tmp_path: Path, mode: str) -> None:
    job = Job("wrong")
    job.source(ListSource(payments(5)), id="payments").apply(Mistaken(), key="card", id="sums").sink(
        SqliteSink(tmp_path / "out.db", "journal"), id="journal"
    )
    with pytest.raises(JobFailed, match="SW-TYPE-EVENT.*sums: expected Payment but got Sums"):
        run_job(job, tmp_path / "root", mode)


class Mistaken(KeyedOperator[Payment, Sums, Payment]):
    def apply(self, event: Payment, state: Sums, collector: Any) -> None:
        collector.emit(state)


def test_a_set_up_that_fails_is_named(tmp_path: Path, mode: str) -> None:
    with pytest.raises(JobFailed, match="SW-OPERATOR-SETUP.*sums.*ConnectionError: nobody there"):
        run_job(changed_job(Unconnected(), "sums"), tmp_path / "root", mode)


class Unconnected(Summing):
    def setup_instance(self, instance: int) -> None:
        raise ConnectionError("nobody there")
