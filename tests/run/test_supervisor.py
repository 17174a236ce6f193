"""Starting again after a failure: the rules alone, and then a whole run with failures in its data."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sample import Payment, Summing, expected_journal, payments
from streamwork import (
    Backoff,
    Job,
    JobFailed,
    JsonLines,
    ListSource,
    LogSink,
    Operator,
    Refused,
    SqliteSink,
    WrongUse,
)
from streamwork.connectors.line_file import missing
from streamwork.epoch import Phase
from streamwork.errors import WorkerLost, is_retryable
from streamwork.log import FileLocks, locked
from streamwork.run.mode import Mode
from streamwork.run.options import RunOptions
from streamwork.run.outcome import Outcome
from streamwork.run.runner import run
from streamwork.run.supervisor import supervise
from streamwork.testing.clock import VirtualClock

BAD = JobFailed(
    "SW-OPERATOR-FAILED", "sums raised ValueError while applying Payment('a') (epoch 3)", "fix it", retryable=False
)
WEATHER = JobFailed("SW-SINK-FAILED", "the database is away", "bring it back")


class Patient:
    """Something that fails as it is told to; None: it ends well. A number: it completes so many checkpoints first, each with an
    event unless it is `idle`.
    """

    def __init__(self, *fates: Exception | int | None) -> None:
        self.fates = list(fates)
        self.progress = self.processed = 0
        self.idle = False
        self.stopping = False
        self.stop_in_pause = False
        self.paused: list[float] = []
        self.told: list[str] = []
        self.clock = VirtualClock()

    def run_driver(self) -> None:
        while isinstance(fate := self.fates.pop(0), int):
            self.progress += fate
            self.processed += 0 if self.idle else fate
        if fate is not None:
            raise fate

    def pause(self, seconds: float) -> None:
        self.paused.append(seconds)
        self.clock.sleep(seconds)
        self.stopping = self.stop_in_pause

    def note(self, line: str) -> None:
        self.told.append(line)

    def keep_trace(self, error: Exception) -> str:
        return "failures.log"

    def supervised(self, policy: Backoff | None) -> int:
        return supervise(self, policy, self.clock)


def test_a_run_that_ends_well_is_not_repeated() -> None:
    assert Patient(None).supervised(Backoff()) == 0


def test_failures_are_told_and_waited_out_ever_longer() -> None:
    patient = Patient(WEATHER, OSError(28, "No space left on device"), WEATHER, None)
    assert patient.supervised(Backoff()) == 3
    assert patient.paused == [1.0, 2.0, 4.0]
    assert patient.told[:4] == [
        "failed: SW-SINK-FAILED the database is away",
        "restart 1 of 5 in 1.0 s",
        "failed: SW-IO-FAILED [Errno 28] No space left on device",
        "restart 2 of 5 in 2.0 s",
    ]


LOST = WorkerLost("SW-GANG-LOST", "a task of the gang was lost", "nothing to do")


def test_a_lost_worker_is_replaced_at_once_as_long_as_checkpoints_are_completed() -> None:
    patient = Patient(1, LOST, *[3, LOST] * 20, None)
    assert supervise(patient, Backoff(max_restarts=2), patient.clock) == 21
    assert patient.paused == []


def test_a_worker_that_is_lost_again_and_again_is_waited_for_and_given_up() -> None:
    patient = Patient(1, LOST, LOST, LOST, LOST)
    with pytest.raises(JobFailed, match="given up after 2 restarts"):
        supervise(patient, Backoff(max_restarts=2), patient.clock)
    assert patient.paused == [1.0, 2.0]


def test_it_gives_up_and_says_so() -> None:
    patient = Patient(*[WEATHER] * 10)
    with pytest.raises(JobFailed, match="SW-SINK-FAILED: the database is away; given up after 2 restarts within 10min"):
        patient.supervised(Backoff(max_restarts=2))
    assert len(patient.paused) == 2


@pytest.mark.parametrize("error", [Refused("SW-X", "c", "a"), WrongUse("SW-X", "c", "a")])
def test_what_waits_for_a_person_is_not_tried_again(error: Exception) -> None:
    patient = Patient(error, None)
    with pytest.raises(type(error)):
        patient.supervised(Backoff())
    assert patient.paused == []


def test_without_a_policy_a_failure_is_the_end() -> None:
    for error, kind in ((WEATHER, "SW-SINK-FAILED"), (OSError("gone"), "SW-IO-FAILED")):
        patient = Patient(error, None)
        with pytest.raises(JobFailed, match=kind):
            patient.supervised(None)
        assert patient.paused == []


def again(epoch: int) -> JobFailed:
    return BAD.with_cause(BAD.cause.replace("epoch 3", f"epoch {epoch}"))


def test_an_event_that_fails_again_right_away_is_not_tried_for_ever() -> None:
    """Each try has an epoch number of its own: the causes differ in it, and are the same all the same."""
    patient = Patient(BAD, again(4), None)
    with pytest.raises(JobFailed, match="SW-OPERATOR-FAILED.*epoch 4.*right after a restart, so restarts do not help"):
        patient.supervised(Backoff())
    assert len(patient.paused) == 1


def test_empty_checkpoints_do_not_make_an_event_that_fails_worth_another_try() -> None:
    patient = Patient(3, BAD, 2, again(7), None)
    assert patient.supervised(QUICK) == 2, "the control: they are not empty"
    patient = Patient(3, BAD, 2, again(7), None)
    patient.idle = True
    with pytest.raises(JobFailed, match="restarts do not help"):
        patient.supervised(QUICK)


def test_the_same_event_again_is_tried_again_as_long_as_its_error_is_retryable() -> None:
    """A look-up that is down raises the same error for the same event, until it is back."""
    away = [again(epoch) for epoch in range(3, 8)]
    for error in away:
        error.retryable = True
    assert Patient(*away, None).supervised(Backoff()) == 5


class Busy(Exception):
    retryable = True


class Wrong(ConnectionError):
    retryable = False


def raised_from(cause: Exception) -> Exception:
    try:
        raise LookupError("no answer") from cause
    except LookupError as error:
        return error


def test_which_errors_are_retryable() -> None:
    retryable = [OSError(), TimeoutError(), ConnectionError(), Busy(), raised_from(TimeoutError()), WEATHER]
    lasting = [ValueError(), KeyError(), Wrong(), raised_from(ValueError()), BAD, Refused("SW-X", "", "")]
    assert [is_retryable(error) for error in retryable] == [True] * len(retryable)
    assert [is_retryable(error) for error in lasting] == [False] * len(lasting)


REFUSED = "sink out refuses row {'id': 7} of checkpoint 3 for good: IntegrityError: CHECK constraint failed"


@pytest.mark.parametrize(
    ("code", "cause"), [("SW-SINK-REJECTED", REFUSED), ("SW-INBOX-EVENT", "is no Payment any more")]
)
def test_what_is_refused_for_good_is_tried_once_more_and_not_five_times(code: str, cause: str) -> None:
    first = JobFailed(code, cause, "", retryable=False)
    patient = Patient(first, first.with_cause(cause.replace("checkpoint 3", "checkpoint 4")))
    with pytest.raises(JobFailed, match=f"{code}.*right after a restart, so restarts do not help"):
        patient.supervised(Backoff())
    assert len(patient.paused) == 1


MISSING = missing(Path("in.jsonl"))


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (MISSING, "SW-SOURCE-MISSING"),
        (JobFailed("SW-JAVA-MISSING", "none was found", "install one", about_setup=True), "SW-JAVA-MISSING"),
        (NotADirectoryError(20, "Not a directory"), "SW-IO-FAILED"),
        (FileNotFoundError(2, "No such file or directory"), "SW-IO-FAILED"),
    ],
)
def test_a_start_that_cannot_succeed_is_not_tried_again(fault: Exception, code: str) -> None:
    patient = Patient(fault, None)
    with pytest.raises(JobFailed, match=code):
        patient.supervised(Backoff())
    assert patient.paused == []
    later = Patient(3, fault, None)
    assert later.supervised(Backoff()) == 1, "what was there before may come back"


@pytest.mark.parametrize(
    "fates",
    [
        pytest.param((BAD, 1, again(5), None), id="a checkpoint was completed in between"),
        pytest.param((BAD, BAD.with_cause("another event (epoch 4)"), None), id="another event"),
        pytest.param((BAD, WEATHER, again(5), None), id="something else came in between"),
        pytest.param((WEATHER, WEATHER, None), id="what may pass by itself"),
    ],
)
def test_what_is_not_the_same_event_again_is_tried_again(fates: tuple[Any, ...]) -> None:
    assert Patient(*fates).supervised(Backoff()) == len([fate for fate in fates if isinstance(fate, Exception)])


def test_who_asks_for_the_end_while_it_waits_gets_the_failure() -> None:
    patient = Patient(WEATHER, None)
    patient.stop_in_pause = True
    with pytest.raises(JobFailed, match="SW-SINK-FAILED"):
        patient.supervised(Backoff())
    assert patient.fates == [None], "it was not started again"


def test_a_failure_after_somebody_asked_for_the_end_is_the_end() -> None:
    patient = Patient(WEATHER, None)
    patient.stopping = True
    with pytest.raises(JobFailed, match="SW-SINK-FAILED"):
        patient.supervised(Backoff())
    assert patient.told == []


# ---- whole runs ---------------------------------------------------------------------------------------------------

QUICK = Backoff(first="10ms", most="20ms")


class Notes:
    """A watcher that keeps what people are told, and does something at steps."""

    def __init__(self, at_step: Callable[[Phase, int], None] = lambda step, epoch: None) -> None:
        self.lines: list[str] = []
        self.starts: list[int] = []
        self._at_step = at_step

    def on_phase(self, step: Phase, epoch: int, manifest: Any) -> None:
        self._at_step(step, epoch)

    def on_started(self, job: str, started: Any) -> None:
        self.starts.append(started.resumed_at)

    def on_note(self, line: str) -> None:
        self.lines.append(line)

    def on_starting(self, *_: Any) -> None: ...
    def on_end(self, *_: Any) -> None: ...
    def close(self) -> None: ...


class Moody(Operator[Payment, Payment]):
    """Raises at amount 13 while there is a certain file, and removes a letter of it each time: it passes by itself."""

    def __init__(self, file: Path, error: type[Exception] = ConnectionError) -> None:
        self.file = file
        self.error = error

    def apply(self, event: Payment, collector: Any) -> None:
        if event.amount == 13 and self.file.exists():
            left = self.file.read_text()[1:]
            if left:
                self.file.write_text(left)
            else:
                self.file.unlink()
            raise self.error("nobody there")
        collector.emit(event)


def go(
    events: list[Payment],
    folder: Path,
    mode: str,
    notes: Notes,
    restart: Backoff | None = QUICK,
    error: type[Exception] = ConnectionError,
) -> Outcome:
    job = Job("moody", checkpoint_every=0, restart=restart)
    stream = job.source(ListSource(events, Payment, max_events=10), id="payments").apply(Moody(folder / "mood", error))
    stream.apply(Summing(), key="card", id="sums").sink(SqliteSink(folder / "out.db", "journal"), id="journal")
    return run(job, RunOptions(mode=Mode(mode), root=folder / "root", until_caught_up=True), notes)


def journal(folder: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder / "out.db")) as db:
        return db.execute("SELECT card, number, total FROM journal ORDER BY rowid").fetchall()


@pytest.mark.slow(mode="microbatch")
def test_a_run_goes_on_by_itself_from_the_last_checkpoint(tmp_path: Path, mode: str) -> None:
    (tmp_path / "mood").touch()
    notes = Notes()
    outcome = go(payments(40), tmp_path, mode, notes)
    assert journal(tmp_path) == expected_journal(payments(40))
    assert (outcome.restarts, outcome.started, outcome.fence, outcome.events) == (1, "new", 2, 40)
    assert len(notes.starts) == 2 and (mode == "live" or notes.starts == [0, 1]), (
        "in live mode all events are one piece"
    )
    assert "SW-OPERATOR-FAILED" in notes.lines[0] and "nobody there" in notes.lines[0]
    assert notes.lines[1] == "restart 1 of 5 in 0.0 s"


@pytest.mark.slow(mode="microbatch")
def test_an_outage_that_lasts_for_several_restarts_does_not_end_the_run(tmp_path: Path, mode: str) -> None:
    """The same event fails with the same error three times in a row."""
    (tmp_path / "mood").write_text("xxx")
    outcome = go(payments(40), tmp_path, mode, Notes())
    assert outcome.restarts == 3
    assert journal(tmp_path) == expected_journal(payments(40))


def test_an_error_that_is_not_retryable_ends_the_same_run(tmp_path: Path) -> None:
    """The negative control."""
    (tmp_path / "mood").write_text("xxx")
    with pytest.raises(JobFailed, match="restarts do not help"):
        go(payments(40), tmp_path, "local", Notes(), error=ValueError)


@pytest.mark.slow(mode="microbatch")
def test_a_poison_event_ends_the_run_after_one_try_more(tmp_path: Path, mode: str) -> None:
    bad = Payment("card-5", -1)
    notes = Notes()
    with pytest.raises(JobFailed, match="SW-OPERATOR-FAILED.*restarts do not help") as caught:
        go([*payments(25), bad], tmp_path, mode, notes)
    for words in ("sums", repr(bad), "epoch"):
        assert words in caught.value.cause
    if mode == "live":  # mostly all events are one piece; on a busy machine checkpoints may come between two pieces
        before = journal(tmp_path)
        assert before == expected_journal(payments(25))[: len(before)]
        assert 2 <= len(notes.starts) <= 2 + len(before)
    else:
        assert notes.starts == [0, 2]
        assert journal(tmp_path) == expected_journal(payments(20))


def test_without_restarts_the_same_run_fails(tmp_path: Path) -> None:
    """The negative control."""
    (tmp_path / "mood").touch()
    notes = Notes()
    with pytest.raises(JobFailed, match="nobody there"):
        go(payments(40), tmp_path, "local", notes, restart=None)
    assert notes.starts == [0]


def test_a_disk_that_fails_in_the_middle_is_tried_again(tmp_path: Path) -> None:
    left = [True]

    def fail(step: Phase, epoch: int) -> None:
        if step is Phase.PREPARE and epoch == 2 and left:
            left.pop()
            raise OSError(5, "Input/output error")

    notes = Notes(fail)
    outcome = go(payments(40), tmp_path, "local", notes)
    assert outcome.restarts == 1
    assert notes.lines[0] == "failed: SW-IO-FAILED [Errno 5] Input/output error"
    assert journal(tmp_path) == expected_journal(payments(40)), "checkpoint 2 was prepared: it was rolled forward"


def test_a_missing_file_and_an_impossible_root_end_a_run_at_once(tmp_path: Path) -> None:
    def typo(table: str) -> Job:
        job = Job("typo", restart=Backoff(first="1min", most="1min"))
        source = job.source(JsonLines(tmp_path / "in.jsonl", Payment), id="in")
        source.sink(SqliteSink(tmp_path / "out.db", table), id="out")
        return job

    with pytest.raises(JobFailed, match=r"^SW-SOURCE-MISSING: .*in.jsonl does not exist"):
        run(typo("a"), RunOptions(mode=Mode.LOCAL, root=tmp_path / "root", until_caught_up=True), Notes())
    (tmp_path / "in.jsonl").write_text('{"card": "a", "amount": 1}\n')
    (tmp_path / "file").touch()
    for root in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/nowhere")):
        notes = Notes()
        with pytest.raises(JobFailed, match="^SW-IO-FAILED"):
            run(typo("b"), RunOptions(mode=Mode.LOCAL, root=root, until_caught_up=True), notes)
        assert notes.lines == []


def test_a_refusal_is_not_tried_again(tmp_path: Path) -> None:
    go(payments(10), tmp_path, "local", Notes())
    job = Job("moody", restart=QUICK)
    job.source(ListSource(payments(10)), id="renamed")
    notes = Notes()
    with pytest.raises(Refused, match="SW-SOURCE-ORPHAN"):
        run(job, RunOptions(mode=Mode.LOCAL, root=tmp_path / "root", until_caught_up=True), notes)
    assert notes.lines == []


def test_who_came_while_it_waited_is_not_pushed_out(tmp_path: Path) -> None:
    """Between two lives the job is still ours: a newcomer is refused. One that takes over wins, and ours ends."""
    (tmp_path / "mood").touch()

    class Overtaken(Notes):
        def on_note(self, line: str) -> None:
            super().on_note(line)
            if line.startswith("restart"):
                from streamwork.epoch.fences import Fences
                from streamwork.world import ProcessId, RealClock, RealDisk, RealProcesses

                class Other(RealProcesses):
                    def me(self) -> ProcessId:
                        return ProcessId("elsewhere", 7, 0.0)

                Fences(RealDisk(), tmp_path / "root" / "moody", RealClock(), Other()).claim()

    notes = Overtaken()
    with pytest.raises(Refused, match="SW-DRIVER-FENCED: process 7 on elsewhere"):
        go(payments(40), tmp_path, "local", notes, restart=Backoff(first="1s"))
    assert notes.starts == [0]


UNFORESEEN = [
    KeyError("x"),
    OverflowError("too large"),
    pa.ArrowInvalid("offset overflow"),
    AssertionError(),
    RecursionError(),
]


@pytest.mark.parametrize("error", UNFORESEEN, ids=lambda error: type(error).__name__)
def test_an_exception_without_a_code_is_named_and_the_job_is_started_again(error: Exception) -> None:
    patient = Patient(error, 1, None)
    assert patient.supervised(Backoff()) == 1
    assert patient.told[0].startswith(f"failed: SW-INTERNAL {type(error).__name__}")
    patient = Patient(error, error, None)
    with pytest.raises(JobFailed, match=f"SW-INTERNAL: {type(error).__name__}.*restarts do not help") as raised:
        patient.supervised(Backoff())
    assert "report it with the traceback in failures.log" in raised.value.action
    with pytest.raises(JobFailed, match="SW-INTERNAL"):
        Patient(error).supervised(None)


def test_a_person_who_interrupts_is_not_taken_for_a_failure() -> None:
    """The negative control."""
    with pytest.raises(KeyboardInterrupt):
        Patient(KeyboardInterrupt(), None).supervised(Backoff())  # type: ignore[arg-type]


class Raw(ListSource[Payment]):
    """Raises an exception without a code, once, while the driver plans."""

    calls = 0

    def ends(self, starts: Mapping[str, int], limit: int) -> Mapping[str, int]:
        Raw.calls += 1
        if Raw.calls == 4:
            raise OverflowError("a raw one")
        return super().ends(starts, limit)


def test_a_whole_run_survives_an_exception_without_a_code_and_keeps_its_traceback(tmp_path: Path) -> None:
    events, Raw.calls = payments(30), 0
    job = Job("raw", checkpoint_every=0, restart=Backoff(first="10ms"))
    stream = job.source(Raw(events, Payment, max_events=10), id="payments")
    stream.apply(Summing(), key="card", id="sums").sink(SqliteSink(tmp_path / "out.db", "journal"), id="journal")
    outcome = run(job, RunOptions(mode=Mode.LOCAL, root=tmp_path / "root"))
    assert outcome.restarts == 1
    with closing(sqlite3.connect(tmp_path / "out.db")) as db:
        rows = db.execute("SELECT card, number, total FROM journal ORDER BY rowid").fetchall()
    assert rows == expected_journal(events)
    kept = (tmp_path / "root" / "raw" / "failures.log").read_text()
    assert "Traceback (most recent call last)" in kept and "OverflowError: a raw one" in kept


def test_a_log_that_another_process_writes_to_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer of another process has gone when the job is started again."""
    held = [locked(tmp_path / "log" / "0", None)]
    real = FileLocks.acquire

    def acquire(self: FileLocks, folder: Path, timeout: float) -> Any:
        if held and Path(folder).name == "0":
            raise held.pop()
        return real(self, folder, timeout)

    monkeypatch.setattr(FileLocks, "acquire", acquire)
    job = Job("to-log", checkpoint_every=0, restart=Backoff(first="10ms"))
    job.source(ListSource(payments(10), Payment), id="payments").sink(LogSink(tmp_path / "log"), id="log")
    assert run(job, RunOptions(mode=Mode.LOCAL, root=tmp_path / "root")).restarts == 1
    assert not held
