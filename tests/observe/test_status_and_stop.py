"""A job as its operator meets it: real processes that run, are asked, are pushed out, and are killed."""

from __future__ import annotations

import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import msgspec
import pytest

from commands import call_in
from sample import payments, run_job, summing_job
from streamwork.__main__ import main
from streamwork.cli.demo import write_transactions
from streamwork.epoch import Store
from streamwork.world import RealDisk
from waiting import wait_for

REPO = Path(__file__).parents[2]
PROGRAM = str(Path(sys.executable).parent / "streamwork")
JOB = (REPO / "examples" / "card_usage.py").read_text()
RUN = ("run", "card_usage.py", "--mode", "local", "--until-caught-up")  # it ends also where it should be refused
LEASE = "6s"  # long enough for a busy machine: who is alive is found out at the first beat, after a quarter of it


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "card_usage.py").write_text(JOB)
    write_transactions(tmp_path / "transactions.jsonl", 500, cards=10)
    return tmp_path


def call(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """In this process."""
    return subprocess.CompletedProcess([], *call_in(folder, *arguments))


def ask(folder: Path, command: str, *arguments: str, job: str = "card-usage") -> subprocess.CompletedProcess[str]:
    """A command about the job, in this process: starting one for each would take most of the time."""
    given = [command, "--root", str(folder / ".streamwork"), job, *arguments]
    out, errors, code = io.StringIO(), io.StringIO(), 0
    with redirect_stdout(out), redirect_stderr(errors):
        try:
            main(given)
        except SystemExit as end:
            code = int(end.code or 0)
    return subprocess.CompletedProcess(given, code, out.getvalue(), errors.getvalue())


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [PROGRAM, "run", "card_usage.py", "--mode", "local", "--checkpoint-every", "20ms", "--lease", LEASE]
    return subprocess.Popen(
        [*command, *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A job that runs and has completed a checkpoint, or starts again after having done so."""
    before = completed(folder)
    with start(folder, *arguments) as process:
        try:
            wait_for(lambda: completed(folder) > before, process)
            yield process
        finally:
            process.kill()


def completed(folder: Path) -> int:
    files = (folder / ".streamwork" / "card-usage" / "checkpoints").glob("????????????.json")
    return max((int(path.stem) for path in files), default=0)


def status(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ask(folder, "status", "--json").stdout)
    return found


def counted(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "usage.db")) as db:
        return int(db.execute("SELECT sum(transactions) FROM usage").fetchone()[0])


def test_a_job_is_seen_running_and_is_stopped_after_its_checkpoint(folder: Path) -> None:
    with running(folder) as process:
        seen = status(folder)
        assert (seen["running"], seen["holder"]["process"]["pid"], seen["checkpoint"]) == (True, process.pid, 1)
        assert seen["position"] == {"transactions/0": (folder / "transactions.jsonl").stat().st_size}
        plain = call(folder, "status", "card_usage.py").stdout
        assert f"\nrunning: process {process.pid} on " in plain and "\ncheckpoint 1, completed " in plain
        assert "\nlast steps: plan " in plain
        write_transactions(folder / "transactions.jsonl", 100, first=500)
        stopped = call(folder, "stop", "--root", ".streamwork", "card-usage")
        assert stopped.returncode == 0
        assert stopped.stdout == f"stopped; the last checkpoint is {completed(folder)}\n"
        assert f"asked process {process.pid} on " in stopped.stderr
        out, errors = process.communicate(timeout=120)
        assert (process.returncode, errors) == (0, ""), "it ends as after a signal"
        assert out.splitlines()[-1].startswith(f"stopped at checkpoint {completed(folder)}: ")
    assert os.listdir(folder / ".streamwork" / "card-usage" / "control") == []  # noqa: PTH208
    assert status(folder)["holder"]["life"] == "ended"
    assert ask(folder, "stop").stdout == f"not running; the last checkpoint is {completed(folder)}\n"
    told = json.loads(ask(folder, "stop", "--json").stdout)
    assert (told["was_running"], told["text"]) == (False, "not running")


def test_a_second_driver_is_refused_while_the_first_lives_unless_it_takes_over(folder: Path) -> None:
    with running(folder) as first:
        refused = call(folder, *RUN, "--lease", LEASE, "--json")
        assert refused.returncode == 3
        error = json.loads(refused.stdout)["error"]
        assert error["code"] == "SW-DRIVER-ALIVE"
        assert f"process {first.pid} on " in error["cause"]
        assert "streamwork stop" in error["action"] and "--take-over" in error["action"]
        assert first.poll() is None, "the first one goes on"
        assert status(folder)["holder"]["fence"] == 1, "nothing was written"

        second = start(folder, "--take-over")
        try:
            _, errors = first.communicate(timeout=120)
            assert first.returncode == 3
            assert errors.startswith(("SW-DRIVER-FENCED ", "SW-SINK-FENCED "))
            write_transactions(folder / "transactions.jsonl", 100, first=500)
            wait_for(lambda: counted(folder) == 600, second)
            seen = status(folder)
            assert (seen["running"], seen["holder"]["process"]["pid"]) == (True, second.pid)
        finally:
            second.send_signal(signal.SIGTERM)
            second.communicate(timeout=120)
    assert second.returncode == 0
    assert counted(folder) == 600


def test_after_kill_9_the_next_start_waits_for_nobody(folder: Path) -> None:
    with running(folder, "--lease", "1h") as process:
        process.kill()
        process.wait()
    assert ask(folder, "status").stdout.splitlines()[1].startswith(f"not running: process {process.pid} on ")
    began = time.monotonic()
    again = call(folder, *RUN, "--lease", "1h")
    assert (again.returncode, again.stdout.splitlines()[1]) == (0, "resumed at checkpoint 1")
    assert time.monotonic() - began < 600, "it waits for a lease of an hour"


def test_a_driver_elsewhere_that_gives_no_sign_is_waited_for_as_long_as_the_lease(folder: Path) -> None:
    """The same as after kill -9, but for the host in the fence's file: so the process cannot be looked for."""
    with running(folder, "--lease", "1s") as process:
        process.kill()
        process.wait()
    fence = folder / ".streamwork" / "card-usage" / "fences" / "1.json"
    fence.write_text(fence.read_text().replace('"host": "', '"host": "elsewhere-'))
    seen = status(folder)
    assert (seen["running"], seen["holder"]["life"]) == (None, "unknown")
    began = time.monotonic()
    again = call(folder, *RUN, "--lease", "1s")
    assert again.returncode == 0, again.stderr
    assert time.monotonic() - began > 1.0
    assert "holds this job; watching for 1 s" in again.stdout


def test_a_driver_that_hangs_does_not_stop_in_time_and_that_is_said(folder: Path) -> None:
    """The heartbeat has a thread of its own, so a driver that is busy is alive; the request stands until it has time."""
    slow = JOB.replace(
        "        state.transactions += 1\n", "        busy(event.amount)\n        state.transactions += 1\n"
    )
    wait = "def busy(amount):\n    while amount == 0 and not os.path.exists('go'):\n        time.sleep(0.01)\n\n\n"
    slow = "import os\nimport time\n" + slow.replace("class PerCard", f"{wait}class PerCard")
    assert slow.count("busy(") == 2
    (folder / "card_usage.py").write_text(slow)
    with running(folder) as process:
        with (folder / "transactions.jsonl").open("a") as file:
            file.write('{"id": "slow", "card": "card-1", "amount": 0}\n')
        plans = folder / ".streamwork" / "card-usage" / "checkpoints" / "000000000002.plan.json"
        wait_for(plans.exists, process)
        late = ask(folder, "stop", "--timeout", "200ms", "--json")
        assert late.returncode == 1
        error = json.loads(late.stdout)["error"]
        assert error["code"] == "SW-STOP-TIMEOUT" and "kill -9" in error["action"]
        alive = call(folder, *RUN, "--lease", "1s")
        assert alive.stderr.startswith("SW-DRIVER-ALIVE"), "it computes, and beats all the same"
        (folder / "go").touch()
        process.communicate(timeout=120)
        assert process.returncode == 0, "the request stood"
    assert counted(folder) == 501


def test_a_job_that_waits_for_its_restart_is_seen_and_can_be_stopped(folder: Path) -> None:
    job = JOB.replace('Job("card-usage")', 'Job("card-usage", restart=Backoff(first="1min", most="1min"))')
    (folder / "card_usage.py").write_text(job.replace("import Event", "import Backoff, Event"))
    with running(folder) as process:
        with (folder / "transactions.jsonl").open("a") as file:
            file.write('{"id": "bad", "card": "card-1", "amount": "much"}\n')
        wait_for(lambda: status(folder)["restarting"], process)
        assert "\nrestarting after a failure: process " in ask(folder, "status").stdout
        refused = call(folder, *RUN, "--lease", LEASE)
        assert refused.stderr.startswith("SW-DRIVER-ALIVE"), "the job is still held"
        stopped = ask(folder, "stop")
        assert stopped.stdout.startswith("the job has failed: SW-SOURCE-BAD-EVENT"), stopped
        out, errors = process.communicate(timeout=120)
        assert process.returncode == 1 and errors.startswith("SW-SOURCE-BAD-EVENT")
        assert "\nrestart 1 of 5 in 60.0 s\n" in out
    assert status(folder)["running"] is False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_waiting_for_a_restart_is_interrupted_by_a_signal(folder: Path, number: signal.Signals) -> None:
    job = JOB.replace('Job("card-usage")', 'Job("card-usage", restart=Backoff(first="1min", most="1min"))')
    (folder / "card_usage.py").write_text(job.replace("import Event", "import Backoff, Event"))
    (folder / "transactions.jsonl").write_text('{"id": "bad", "card": "card-1", "amount": "much"}\n')
    with start(folder) as process:
        assert process.stdout is not None
        while not process.stdout.readline().startswith("restart 1 of 5"):
            assert process.poll() is None
        time.sleep(0.1)
        process.send_signal(number)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    assert errors.startswith("SW-SOURCE-BAD-EVENT")


# ---- checkpoints --------------------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The folder of a job with checkpoints 1 to 3, each by a start of its own."""
    for count in (10, 20, 30):
        run_job(summing_job(payments(count), tmp_path / "out.db"), tmp_path / ".streamwork")
    return tmp_path / ".streamwork" / "summing"


def checkpoints(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return ask(place.parents[1], "checkpoints", *arguments, job="summing")


def test_checkpoints_are_listed_with_their_steps_and_verified(place: Path) -> None:
    listed = checkpoints(place, "--verify")
    assert listed.returncode == 0, listed.stdout
    assert "every file of every checkpoint is intact" in listed.stdout
    heading, newest, *_ = listed.stdout.splitlines()[1:]
    for word in ("checkpoint", "state", "age", "events", "keys", "bytes", "plan", "compute", "commit", "fence"):
        assert word in heading
    assert newest.split()[:2] == ["3", "completed"] and newest.count(" ms") == 6 and newest.split()[-1] == "3"
    rows = json.loads(checkpoints(place, "--json").stdout)["checkpoints"]
    assert [(row["checkpoint"], row["fence"], row["events"]) for row in rows[:3]] == [
        (3, 3, 10),
        (2, 2, 10),
        (1, 1, 10),
    ]
    assert all(row["seconds"]["compute"] > 0 for row in rows[:3])


@pytest.mark.parametrize("what", ["state", "outputs", "checkpoints", "checkpoints-prepared", "checkpoints-plan"])
def test_verify_finds_every_kind_of_damage(place: Path, what: str) -> None:
    folder, _, copy = what.partition("-")
    names = (
        f"000000000003.{copy}.json" if copy else "000000000003.json" if folder == "checkpoints" else "000000000003-*"
    )
    file = next((place / folder).rglob(names))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    found = checkpoints(place, "--verify", "--json")
    assert found.returncode == 1
    answer = json.loads(found.stdout)
    assert answer["ok"] is False
    (row,) = (row for row in answer["checkpoints"] if row["checkpoint"] == 3)
    assert row["state"] == "damaged" and any(file.name in problem for problem in row["problems"])
    assert all(row["state"] == "completed" for row in answer["checkpoints"][1:])
    plain = checkpoints(place, "--verify")
    assert plain.returncode == 1 and file.name in plain.stdout and "what to do" in plain.stdout
    assert checkpoints(place).returncode == 0, "only --verify judges"


def test_what_was_completed_and_is_no_longer_kept_is_not_called_abandoned(tmp_path: Path) -> None:
    run_job(summing_job(payments(100), tmp_path / "out.db", max_events=10), tmp_path / ".streamwork")
    place = tmp_path / ".streamwork" / "summing"

    def states() -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for row in json.loads(checkpoints(place, "--json").stdout)["checkpoints"]:
            found.setdefault(row["state"], []).append(row["checkpoint"])
        return found

    seen = states()
    assert seen["completed"][:3] == [10, 9, 8] and set(seen) == {"completed", "pruned"}, seen
    (place / "history.sqlite").unlink()
    assert states() == seen, "later plans name their parents"


def leave_plan(place: Path) -> None:
    """Of epoch 4, as a driver leaves it that is killed."""
    store = Store(RealDisk(), place.parent, place.name)
    store.write_plan(msgspec.structs.replace(store.plan(3), epoch=4, parent=3))


def test_an_epoch_that_no_other_builds_on_was_interrupted_whatever_the_history_knows(place: Path) -> None:
    leave_plan(place)
    run_job(summing_job(payments(40), place.parents[1] / "out.db"), place.parent)
    (place / "history.sqlite").unlink()
    rows = json.loads(checkpoints(place, "--json").stdout)["checkpoints"]
    assert [(row["checkpoint"], row["state"]) for row in rows[:3]] == [
        (5, "completed"),
        (4, "interrupted"),
        (3, "completed"),
    ]


def test_what_was_abandoned_or_set_aside_is_listed(place: Path) -> None:
    leave_plan(place)
    aside = place / "quarantine" / "7" / "checkpoints"
    aside.mkdir(parents=True)
    (aside / "000000000005.json").write_text("{")

    def states() -> list[tuple[int, str]]:
        rows = json.loads(checkpoints(place, "--json").stdout)["checkpoints"]
        return [(row["checkpoint"], row["state"]) for row in rows][:3]

    assert states() == [(5, "quarantined"), (4, "interrupted"), (3, "completed")]
    record = "INSERT INTO epochs (epoch, fence, outcome, started, events, note) VALUES (4, 1, 'abandoned', 0, 0, '')"
    with closing(sqlite3.connect(place / "history.sqlite")) as db, db:
        db.execute(record)
    assert states() == [(5, "quarantined"), (4, "abandoned"), (3, "completed")]
    seen = ask(place.parents[1], "status", job="summing").stdout
    assert "\nabandoned: 1 of the last 100 epochs\n" in seen
    assert "\nquarantined: checkpoint 5, by the start of fence 7 (see quarantine/7)\n" in seen
