"""What components count: it adds up, every attempt counts, and what nobody can know is not made up."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import closed
from crashes import Crash, CrashAt
from letter_jobs import Stumbling
from patience_jobs import Dawdling
from sample import Doubling, Payment, Summing, payments, run_job, summing_job
from streamwork import Job, JobFailed, ListSource, SqliteSink
from streamwork.delivery.counts import KINDS, TOGETHER, Counts, broken_off, final_counts, is_closed, not_closed, summed
from streamwork.engine.steps.keyed_steps import KeyedStep
from streamwork.engine.steps.step import Step
from streamwork.epoch import Phase, collecting
from streamwork.epoch.history.reading import counts, outcomes, rows, totals
from streamwork.epoch.history.values import Result

FINE = {
    "processed": 10,
    "delivered": 4,
    "ended_early": 3,
    "dropped": 1,
    "dead_letters": 1,
    "failed": 1,
    "replayed": 2,
    "retried": 4,
    "late": 2,
    "keys": 3,
}


# ---- the pure part --------------------------------------------------------------------------------------------------


def test_closed_means_that_each_event_ended_in_exactly_one_way() -> None:
    assert is_closed(FINE)
    for kind in set(KINDS) - {"replayed", "retried", "late"}:
        assert not is_closed({**FINE, kind: FINE[kind] + 1}), kind
    assert not is_closed({**FINE, "delivered": 8, "ended_early": -1}), "less than nothing"
    assert not_closed({"a": FINE, "b": {**FINE, "dropped": 0}}).keys() == {"b"}


def test_what_an_attempt_counted_that_broke_off_is_made_to_fit() -> None:
    """Three events of a list could not be done when a fourth ended it all: the list itself was not counted yet."""
    seen = {"processed": 10, "delivered": 8, "ended_early": -1, "dropped": 2, "dead_letters": 1}
    assert broken_off(seen) == {**dict.fromkeys(KINDS, 0), **seen, "processed": 11, "ended_early": 0}
    assert broken_off(FINE) == {kind: FINE[kind] for kind in KINDS}


def test_instances_are_told_apart_as_long_as_that_is_true() -> None:
    told = [Counts("sums", 0, 3, 3), Counts("sums", 1, 2, 2), Counts("out", 0, 5, 5)]
    manifest = {"sums": {"processed": 5, "delivered": 5, "keys": 4}, "out": {"processed": 5, "delivered": 5}}
    assert final_counts(manifest, told, {}) == told
    refused = final_counts(manifest, told, {"out": ("dead_letters", 2)})
    assert refused == [*told[:2], Counts("out", TOGETHER, 5, 3, 0, 0, 2)]
    assert all(is_closed(one) for one in summed(refused).values())
    given_up = {**manifest, "sums": {"processed": 5, "delivered": 4, "dead_letters": 1}}
    assert final_counts(given_up, told, {})[0] == Counts("sums", TOGETHER, 5, 4, 0, 0, 1)


# ---- in history.sqlite ----------------------------------------------------------------------------------------------


def counted(folder: Path, job: str, committed: bool | None = None) -> dict[str, dict[str, int]]:
    """The totals by component, of all attempts or of some."""
    found = totals(folder / "root" / job / "history.sqlite")
    return summed(one.counts for one in found if committed in (None, one.outcome.committed))


def parallel_job(folder: Path, events: list[Payment], operator: Any, **settings: Any) -> Job:
    job = Job("counted", checkpoint_every=0, **{"parallelism": 2, **settings})
    source = job.source(ListSource(events, Payment, max_events=20), id="payments", parallelism=1)
    doubled = source.apply(Doubling(), id="doubled", parallelism=1)
    doubled.apply(operator, key="card", id="sums").sink(SqliteSink(folder / "out.db", "out"), id="out")
    return job


def test_every_instance_is_counted_in_every_epoch(tmp_path: Path, mode: str) -> None:
    events = payments(60)
    run_job(parallel_job(tmp_path, events, Summing()), tmp_path / "root", mode)
    history = tmp_path / "root" / "counted" / "history.sqlite"
    zeros = sum(event.amount == 0 for event in events)
    [(outcome, epochs)] = [(one.outcome, one.epochs) for one in outcomes(history)]
    assert outcome is Result.COMPLETED and (mode == "live" or epochs == 3), "in live mode epochs are cut by time"
    for epoch in range(1, epochs + 1):
        found = counts(history, epoch)
        assert {one.outcome for one in found} == {Result.COMPLETED}
        assert {(one.counts.component, one.counts.instance) for one in found} == {
            ("payments", 0),
            ("doubled", 0),
            ("sums", 0),
            ("sums", 1),
            ("out", 0),
            ("out", 1),
        }
        assert not not_closed(summed(one.counts for one in found))
    total = counted(tmp_path, "counted")
    assert total["payments"]["processed"] == 60
    assert (total["doubled"]["delivered"], total["doubled"]["ended_early"]) == (60 - zeros, zeros)
    assert total["sums"]["processed"] == total["out"]["delivered"] == 60 - zeros


def test_an_attempt_that_failed_counts_too(tmp_path: Path, mode: str) -> None:
    """The second epoch fails once; then it is computed again, so its events are processed twice."""
    events = payments(60, cards=5)
    job = parallel_job(tmp_path, events, Stumbling(tmp_path / "stumbled"), parallelism=1)
    with pytest.raises(JobFailed, match="SW-OPERATOR-FAILED"):
        run_job(job, tmp_path / "root", mode)
    history = tmp_path / "root" / "counted" / "history.sqlite"
    failed = rows(history, 1)[0]
    assert (failed.outcome, failed.note) == (Result.FAILED, "SW-OPERATOR-FAILED")
    assert mode == "live" or failed.epoch == 2
    wasted = counted(tmp_path, "counted", committed=False)["payments"]["processed"]
    assert wasted == (60 if mode == "live" else 20), "in live mode all events are one piece"
    run_job(job, tmp_path / "root", mode)
    every, committed = counted(tmp_path, "counted"), counted(tmp_path, "counted", committed=True)
    assert committed["payments"]["processed"] == 60
    assert every["payments"]["processed"] == 60 + wasted
    assert every["doubled"]["processed"] == 60 + wasted and committed["doubled"]["processed"] == 60
    assert committed["sums"]["processed"] == committed["out"]["delivered"] > 50


def test_an_attempt_that_took_too_long_counts_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Dawdling, "SECONDS", 0.4)
    events = [Payment(f"card-{i % 3}", i) for i in range(60)]
    job = Job("counted", checkpoint_every=0, checkpoint_timeout=0.3)
    source = job.source(ListSource(events, Payment, max_events=20), id="payments")
    slow = source.apply(Dawdling(str(tmp_path / "sign"), events[30]), id="slow")
    slow.apply(Summing(), key="card", id="sums", parallelism=2).sink(SqliteSink(tmp_path / "out.db", "out"), id="out")
    run_job(job, tmp_path / "root")
    history = tmp_path / "root" / "counted" / "history.sqlite"
    assert [(one.epoch, one.outcome) for one in rows(history, 3)] == [
        (4, Result.COMPLETED),
        (3, Result.COMPLETED),
        (2, Result.ABANDONED),
    ]
    every, committed = counted(tmp_path, "counted"), counted(tmp_path, "counted", committed=True)
    assert (every["slow"]["processed"], committed["slow"]["processed"]) == (80, 60)
    assert every["out"]["delivered"] == 60, "it did not get that far"


def test_what_a_start_passes_over_was_in_vain(tmp_path: Path) -> None:
    """The newest checkpoint is damaged: its events are read again, and count once."""
    job = parallel_job(tmp_path, payments(60), Summing(), semantics="at-least-once")
    run_job(job, tmp_path / "root")
    for copy in (tmp_path / "root" / "counted" / "checkpoints").glob("000000000003.*json"):
        if "plan" not in copy.name:
            copy.write_text("{}")
    run_job(job, tmp_path / "root")
    history = tmp_path / "root" / "counted" / "history.sqlite"
    assert [(one.epoch, one.outcome) for one in rows(history, 2)] == [(4, Result.COMPLETED), (3, Result.ABANDONED)]
    every, committed = counted(tmp_path, "counted"), counted(tmp_path, "counted", committed=True)
    assert (every["payments"]["processed"], committed["payments"]["processed"]) == (80, 60)
    assert {one.outcome: one.epochs for one in outcomes(history)} == {Result.COMPLETED: 3, Result.ABANDONED: 1}


@pytest.mark.slow
@pytest.mark.spark
def test_what_was_computed_twice_because_attempts_did_not_agree_is_counted_twice(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = iter(["", "they do not agree", "", ""])
    monkeypatch.setattr(collecting, "disagreement", lambda *_: next(told))
    run_job(parallel_job(tmp_path, payments(60), Summing()), tmp_path / "root", "microbatch")
    history = tmp_path / "root" / "counted" / "history.sqlite"
    again = {one.outcome: one.counts for one in counts(history, 2) if one.counts.component == "payments"}
    assert {outcome: one.processed for outcome, one in again.items()} == {Result.ABANDONED: 20, Result.COMPLETED: 20}
    assert [(one.outcome, one.epochs) for one in outcomes(history)] == [(Result.COMPLETED, 3)]
    assert counted(tmp_path, "counted")["payments"]["processed"] == 80


def test_rows_that_a_sink_refuses_at_the_commit_are_counted_as_what_they_became(tmp_path: Path) -> None:
    for on_error, became in (("dead-letter", "dead_letters"), ("drop", "dropped")):
        folder = tmp_path / on_error
        folder.mkdir()
        job = Job("picky", checkpoint_every=0)
        source = job.source(ListSource(payments(30), Payment, max_events=10), id="payments")
        source.sink(SqliteSink(folder / "out.db", "out"), id="out", on_error=on_error)  # type: ignore[arg-type]
        with closing(sqlite3.connect(folder / "out.db")) as db:
            db.execute("CREATE TABLE out (card TEXT, amount INTEGER, CHECK (amount NOT IN (7, 8, 25)))")
        run_job(job, folder / "root")
        out = counted(folder, "picky")["out"]
        assert (out["processed"], out["delivered"], out[became]) == (30, 27, 3)
        assert is_closed(out)


@pytest.mark.parametrize("step", [Phase.PREPARE, Phase.COMMIT, Phase.COMPLETE, Phase.PRUNE])
def test_a_checkpoint_is_counted_once_wherever_the_driver_died(tmp_path: Path, step: Phase) -> None:
    job = summing_job(payments(40), tmp_path / "out.db")
    with pytest.raises(Crash):
        run_job(job, tmp_path / "root", watcher=CrashAt(2, step))
    for _ in range(3):
        run_job(job, tmp_path / "root")
    total = counted(tmp_path, "summing", committed=True)
    assert total["payments"]["processed"] == total["sums"]["processed"] == 40


# ---- CLOSED in the whole test run -----------------------------------------------------------------------------------


def test_the_watch_over_closed_notices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control of `closed_holds` in conftest.py: an operator that forgets one event."""
    count = Step.counters

    def forgetful(step: Step) -> dict[str, int]:
        return {**count(step), "delivered": max(0, step.delivered - 1)}

    monkeypatch.setattr(Step, "counters", forgetful)
    run_job(summing_job(payments(20), tmp_path / "out.db"), tmp_path / "root")
    found = [(epoch, sorted(wrong)) for epoch, wrong in closed.violations]
    closed.violations.clear()
    assert found == [(1, ["journal", "latest", "sums"]), (2, ["journal", "latest", "sums"])]


def test_the_watch_over_closed_notices_what_is_counted_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ended early is the rest: too much elsewhere makes it negative."""
    process = KeyedStep.process

    def drops_too(step: KeyedStep, events: list[Any]) -> Any:
        step.dropped += 1
        return process(step, events)

    monkeypatch.setattr(KeyedStep, "process", drops_too)
    run_job(summing_job(payments(10), tmp_path / "out.db"), tmp_path / "root")
    found = [sorted(wrong) for _, wrong in closed.violations]
    closed.violations.clear()
    assert found == [["sums"]]
