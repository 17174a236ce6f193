"""Dead letters as a person meets them: listed, looked at, mended, replayed; each goes in exactly once."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from commands import ask, call, error
from crashes import Crash, CrashAt
from letter_jobs import CARDS, POISON, check, squeamish_job
from sample import run_job
from streamwork.components import Position
from streamwork.delivery import DeadLetters, Inbox, Letter, inbox
from streamwork.delivery.letters import letter_id
from streamwork.epoch import Manifest, Phase, draft
from streamwork.world import RealDisk

JOB = """
from pathlib import Path
from letter_jobs import squeamish_job

job = squeamish_job(Path(__file__).parent, parallelism=2)
"""
LINES = """
from pathlib import Path
from sample import Doubling, Payment
from streamwork import Job, JsonLines, SqliteSink

here = Path(__file__).parent
job = Job("lines", checkpoint_every=0)
source = job.source(JsonLines(here / "lines.jsonl", Payment, on_error="dead-letter"), id="payments")
source.sink(SqliteSink(here / "out.db", "out"), id="out")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    jobfile(tmp_path).write_text(JOB)
    return tmp_path


def jobfile(folder: Path) -> Path:
    """A job file is a module, so each has a name of its own."""
    return folder / f"{folder.name}.py"


def run(folder: Path, mode: str = "local", watcher: Any = None, **settings: Any) -> None:
    job = squeamish_job(folder, **{"parallelism": 2, **settings})
    run_job(job, folder / ".streamwork", mode, watcher=watcher)


@pytest.mark.slow(mode="microbatch")
def test_from_the_poison_to_a_run_without_trouble(folder: Path, mode: str) -> None:
    run(folder, mode)
    check(folder, without=POISON)
    listed = ask("dead-letters", "list", jobfile(folder))
    assert (listed["job"], listed["count"]) == ("squeamish", 3)
    letters = listed["dead_letters"]
    assert [(letter["component"], letter["attempts"]) for letter in letters] == [("squeamish", 1)] * 3
    if mode == "live":  # where epochs are cut is a matter of time
        letters.sort(key=lambda letter: int(letter["error"].rpartition(" ")[2]))
    else:
        assert [letter["epoch"] for letter in letters] == [1, 2, 3]
    assert [letter["error"] for letter in letters] == [f"ValueError: cannot do {n}" for n in sorted(POISON)]
    shown = ask("dead-letters", "show", "--root", folder / ".streamwork", "squeamish", letters[1]["id"])
    assert shown["event"] == {"card": "card-2", "amount": 17} and shown["replayed"] is False
    files = str(folder / ".streamwork" / "squeamish" / "dead-letters" / "*" / "*.parquet")
    assert duckdb.sql(f"SELECT id, epoch, event FROM '{files}' ORDER BY id").fetchall() == sorted(
        (letter["id"], letter["epoch"], json.dumps({"card": f"card-{n % CARDS}", "amount": n}, separators=(",", ":")))
        for letter, n in zip(letters, sorted(POISON), strict=True)
    )
    (folder / "mended").touch()
    code, told, _ = call("dead-letters", "replay", jobfile(folder), letters[0]["id"])
    assert (code, told) == (
        0,
        "1 letter will be processed with the next checkpoint of squeamish\n",
    )
    replayed = ask("dead-letters", "replay", jobfile(folder), "--all")["letters"]
    assert replayed == sorted(letter["id"] for letter in letters[1:])
    run(folder, mode)
    check(folder)
    assert all(letter["replayed"] for letter in ask("dead-letters", "list", jobfile(folder))["dead_letters"])
    again = error("dead-letters", "replay", jobfile(folder), letters[0]["id"])
    assert again["code"] == "SW-LETTERS-REPLAYED" and letters[0]["id"] in again["cause"]
    assert ask("dead-letters", "replay", jobfile(folder), "--all")["letters"] == []
    run(folder, mode)
    check(folder)


def test_what_people_read(folder: Path) -> None:
    run(folder)
    _, told, _ = call("dead-letters", "list", jobfile(folder))
    heading, first = told.splitlines()[1:3]
    assert heading.split() == ["id", "component", "epoch", "attempts", "replayed", "error"]
    assert first.split(maxsplit=5) == ["squeamish/1/0-0", "squeamish", "1", "1", "no", "ValueError: cannot do 4"] or (
        first.startswith("squeamish/1/1-0")
    )
    assert told.endswith("\n3 dead letters, 0 of them replayed\n")
    _, told, _ = call("dead-letters", "show", jobfile(folder), first.split()[0])
    assert "error:      ValueError: cannot do 4\n" in told
    assert told.endswith('event:\n{\n  "card": "card-1",\n  "amount": 4\n}\n')
    assert ask("dead-letters", "list", jobfile(folder), "--component", "out")["count"] == 0


def test_a_component_that_nobody_knows_is_wrong_use(folder: Path) -> None:
    run(folder)
    for command in (["list"], ["replay", "--all"]):
        wrong = error("dead-letters", command[0], jobfile(folder), *command[1:], "--component", "nosuch")
        assert wrong["code"] == "SW-USAGE" and "'nosuch'" in wrong["cause"]
        assert wrong["action"] == "with dead letters: squeamish; without: out, payments"
    assert ask("dead-letters", "replay", jobfile(folder), "--all", "--component", "out")["letters"] == []
    (folder / ".streamwork" / "squeamish" / "history.sqlite").unlink()
    assert ask("dead-letters", "list", jobfile(folder), "--component", "out")["count"] == 0, "checkpoints know it, too"


def test_a_replay_by_the_name_of_the_job_is_told_that_it_needs_the_file(folder: Path) -> None:
    run(folder)
    root = folder / ".streamwork"
    _, told, _ = call("dead-letters", "replay", "--help")
    assert "JOBFILE[:NAME] [ID]..." in told and "| JOB" not in told
    wrong = error("dead-letters", "replay", "--root", root, "squeamish", "--all")
    assert wrong["code"] == "SW-USAGE" and "needs the job file" in wrong["cause"]
    line = re.findall("`(.+)`", wrong["action"])[0].replace("JOBFILE", str(jobfile(folder)))
    code, told, _ = call(*shlex.split(line)[1:])
    assert (code, told.split()[0]) == (0, "3")


def test_status_tells_how_many_were_replayed(folder: Path) -> None:
    run(folder)
    assert "\ndead letters: 3 (squeamish 3); see " in call("status", jobfile(folder))[1]
    ids = [letter["id"] for letter in ask("dead-letters", "list", jobfile(folder))["dead_letters"]]
    ask("dead-letters", "replay", jobfile(folder), *ids[:2])
    assert "\ndead letters: 3, 2 of them replayed (squeamish 3); see " in call("status", jobfile(folder))[1]
    assert ask("status", jobfile(folder))["dead_letters"]["replayed"] == 2


@pytest.mark.parametrize("semantics", ["at-most-once", "at-least-once", "acknowledging", "exactly-once"])
def test_a_refusal_reads_the_same_under_all_semantics(folder: Path, semantics: str) -> None:
    (folder / "mended").touch()
    with closing(sqlite3.connect(folder / "out.db")) as db, db:
        db.execute("CREATE TABLE out (card TEXT, number INTEGER, total INTEGER, CHECK (number <> 11))")
    chosen = {"semantics": semantics}
    if semantics == "acknowledging":
        chosen = {"semantics": "at-least-once", "tracking": "acknowledge"}
    run(folder, **chosen, max_attempts=1)
    (letter,) = ask("dead-letters", "list", jobfile(folder))["dead_letters"]
    assert letter["error"] == "IntegrityError: CHECK constraint failed: number <> 11"


@pytest.mark.parametrize("semantics", ["at-most-once", "exactly-once"])
def test_the_end_tells_what_was_dropped_from_what_is_kept(folder: Path, semantics: str) -> None:
    (folder / "mended").touch()
    with closing(sqlite3.connect(folder / "out.db")) as db, db:
        db.execute("CREATE TABLE out (card TEXT, number INTEGER, total INTEGER, CHECK (number NOT IN (11, 12)))")
    given = ["run", jobfile(folder), "--mode", "local", "--until-caught-up", "--semantics", semantics]
    _, told, _ = call(*given, "--on-error", "out=drop")
    assert "30 events, 2 dropped in" in told.splitlines()[-1]


# ---- exactly once, wherever it breaks -------------------------------------------------------------------------------


@pytest.fixture
def waiting(folder: Path) -> Callable[[object], Path]:
    """Copies of a job that has been mended and has its letters in the inbox."""
    run(folder)
    (folder / "mended").touch()
    ask("dead-letters", "replay", jobfile(folder), "--all")

    def copy(name: object) -> Path:
        return shutil.copytree(folder, folder.with_name(f"{folder.name}-{name}"))

    return copy


def test_a_crash_at_any_step_of_the_epoch_that_takes_the_inbox(waiting: Callable[[object], Path]) -> None:
    crashes = 0
    for steps in range(100):
        here = waiting(steps)
        try:
            run(here, watcher=CrashAt(steps))
        except Crash:
            crashes += 1
            run(here)
            check(here)
        else:
            check(here)
            break
    assert crashes >= 10, "four steps of a start, seven of an epoch"


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("step", [Phase.COMPUTE, Phase.PREPARE, Phase.COMMIT])
def test_the_same_on_spark(waiting: Callable[[object], Path], step: Phase, spark: Any) -> None:
    here = waiting(step.value)
    with pytest.raises(Crash):
        run(here, "microbatch", CrashAt(0, step))
    run(here, "microbatch")
    check(here)


def test_without_the_position_of_the_inbox_the_checker_notices(
    waiting: Callable[[object], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control: nobody remembers that the inbox was taken."""

    def forgetful(*, positions: Position, **facts: Any) -> Manifest:
        return Manifest(positions=Position({name: at for name, at in positions.items() if name != "inbox"}), **facts)

    monkeypatch.setattr(draft, "Manifest", forgetful)
    here = waiting("forgetful")
    with pytest.raises(Crash):  # it would never end
        run(here, watcher=CrashAt(30))
    with pytest.raises(AssertionError, match="ECHO"):
        check(here)


def test_a_letter_that_fails_again_is_a_new_letter(folder: Path) -> None:
    run(folder)
    first = ask("dead-letters", "list", jobfile(folder))["dead_letters"]
    ask("dead-letters", "replay", jobfile(folder), "--all")
    run(folder)
    check(folder, without=POISON)
    both = ask("dead-letters", "list", jobfile(folder))["dead_letters"]
    assert [letter["replayed"] for letter in both] == [True] * 3 + [False] * 3
    assert not {letter["id"] for letter in both[3:]} & {letter["id"] for letter in first}
    (folder / "mended").touch()
    ask("dead-letters", "replay", jobfile(folder), "--all")
    run(folder)
    check(folder)


@pytest.mark.slow(mode="microbatch")
def test_rows_that_a_sink_refused_go_in_when_the_table_was_changed(folder: Path, mode: str) -> None:
    (folder / "mended").touch()
    with closing(sqlite3.connect(folder / "out.db")) as db, db:
        db.execute("CREATE TABLE out (card TEXT, number INTEGER, total INTEGER, CHECK (number NOT IN (11, 12)))")
    run(folder, mode)
    check_sink = {letter["component"] for letter in ask("dead-letters", "list", jobfile(folder))["dead_letters"]}
    assert check_sink == {"out"}
    with closing(sqlite3.connect(folder / "out.db")) as db, db:
        db.execute("ALTER TABLE out RENAME TO old")
        db.execute("CREATE TABLE out (card TEXT, number INTEGER, total INTEGER)")
        db.execute("INSERT INTO out SELECT * FROM old")
        db.execute("DROP TABLE old")
    assert len(ask("dead-letters", "replay", jobfile(folder), "--all", "--component", "out")["letters"]) == 2
    run(folder, mode)
    check(folder)


def test_what_was_given_up_under_acknowledging_comes_again_from_its_source(folder: Path) -> None:
    settings = {"semantics": "at-least-once", "tracking": "acknowledge", "max_attempts": 2, "retry_after": 0}
    run(folder, **settings)
    letters = ask("dead-letters", "list", jobfile(folder))["dead_letters"]
    assert [(letter["to"], letter["attempts"]) for letter in letters] == [("payments", 2)] * 3
    (folder / "mended").touch()
    ask("dead-letters", "replay", jobfile(folder), "--all")
    run(folder, **settings)
    check(folder)


# ---- what is refused ------------------------------------------------------------------------------------------------


def test_an_event_that_no_longer_fits_is_refused_before_anything_is_written(folder: Path) -> None:
    run(folder)
    letters = DeadLetters(RealDisk(), folder / ".streamwork" / "squeamish")
    strange = Letter(letter_id("squeamish", 9, 0, 0), "squeamish", 0, 9, "why", 1, "squeamish", '{"card": 5}')
    letters.keep("squeamish", 9, [strange])
    refused = error("dead-letters", "replay", jobfile(folder), "--all")
    assert refused["code"] == "SW-LETTERS-EVENT"
    assert strange.id in refused["cause"] and "no longer is a Payment" in refused["cause"]
    assert not (folder / ".streamwork" / "squeamish" / "inbox").exists()
    letters.keep("squeamish", 9, [Letter(strange.id, "squeamish", 0, 9, "why", 1, "gone", "{}")])
    assert "the job has no 'gone'" in error("dead-letters", "replay", jobfile(folder), strange.id)["cause"]


def test_what_is_no_event_can_be_looked_at_but_not_replayed(tmp_path: Path) -> None:
    jobfile(tmp_path).write_text(LINES)
    (tmp_path / "lines.jsonl").write_text('{"card": "a", "amount": 1}\n{"card": "a", "amount": "much"}\n')
    assert call("run", jobfile(tmp_path), "--mode", "local", "--until-caught-up")[0] == 0
    (letter,) = ask("dead-letters", "list", jobfile(tmp_path))["dead_letters"]
    assert (letter["component"], letter["to"]) == ("payments", "")
    assert '"much"' in ask("dead-letters", "show", jobfile(tmp_path), letter["id"])["event"]
    assert call("dead-letters", "show", jobfile(tmp_path), letter["id"])[1].splitlines()[-2] == "text:"
    refused = error("dead-letters", "replay", jobfile(tmp_path), letter["id"])
    assert refused["code"] == "SW-LETTERS-EVENT" and "it holds no event" in refused["cause"]
    assert ask("dead-letters", "replay", jobfile(tmp_path), "--all")["letters"] == []


def test_wrong_use(folder: Path) -> None:
    assert error("dead-letters", "list", jobfile(folder))["code"] == "SW-ROOT-EMPTY"
    run(folder)
    assert error("dead-letters", "show", jobfile(folder), "squeamish/1/7-7")["code"] == "SW-LETTERS-UNKNOWN"
    assert error("dead-letters", "show", jobfile(folder), "../../etc")["code"] == "SW-LETTERS-UNKNOWN"
    for arguments in ([], ["--all", "squeamish/1/0-0"], ["squeamish/1/0-0", "--component", "squeamish"]):
        assert error("dead-letters", "replay", jobfile(folder), *arguments)["code"] == "SW-USAGE"
    assert error("dead-letters", "replay", "--root", folder / "no", "x", "--all")["code"] == "SW-JOBFILE-MISSING"


def test_hostile_files_are_named_and_control_characters_are_written_out(folder: Path) -> None:
    run(folder)
    place = folder / ".streamwork" / "squeamish"
    strange = Letter("squeamish/9/0-0", "squeamish", 0, 9, "\x1b[2Jgone", 1, "", "a\x1b]0;b")
    DeadLetters(RealDisk(), place).keep("squeamish", 9, [strange])
    told = (
        call("dead-letters", "list", jobfile(folder))[1] + call("dead-letters", "show", jobfile(folder), strange.id)[1]
    )
    assert "\x1b" not in told and told.count("\\x1b[2Jgone") == 2
    for columns in ({"id": ["a"]}, {name: [[1]] for name in ("id", "component")}):
        pq.write_table(pa.table(columns), place / "dead-letters" / "squeamish" / "000000000009.parquet")
        assert error("dead-letters", "list", jobfile(folder))["code"] == "SW-LETTERS-DAMAGED"
    (place / "dead-letters" / "squeamish" / "000000000009.parquet").unlink()
    (place / "inbox").mkdir()
    pq.write_table(pa.table({"letter": ["a"]}), place / "inbox" / "000000000001.parquet")
    assert error("dead-letters", "list", jobfile(folder))["code"] == "SW-INBOX-DAMAGED"


def test_the_end_of_a_run_tells_of_them(folder: Path) -> None:
    _, told, _ = call("run", jobfile(folder), "--mode", "local", "--until-caught-up")
    assert "30 events, 3 dead letters in" in told.splitlines()[-1]


# ---- many -----------------------------------------------------------------------------------------------------------


def test_thousands_are_listed_and_replayed_quickly(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(folder)
    (folder / "mended").touch()
    place = folder / ".streamwork" / "squeamish"
    kept = DeadLetters(RealDisk(), place)
    for epoch in range(1000, 1200):
        many = [
            Letter(letter_id("squeamish", epoch, 0, n), "squeamish", 0, epoch, "why", 1, "squeamish", EVENTS_TEXT)
            for n in range(25)
        ]
        kept.keep("squeamish", epoch, many)
    reads: list[Path] = []
    monkeypatch.setattr(RealDisk, "read", lambda self, path: reads.append(path) or path.read_bytes())  # type: ignore[func-returns-value]
    assert ask("dead-letters", "list", jobfile(folder))["count"] == 5003
    assert call("dead-letters", "list", jobfile(folder))[1].endswith("5,003 dead letters, 0 of them replayed\n")
    assert len([path for path in reads if "dead-letters" in path.parts]) <= 2 * 203, "each file is read once a command"
    monkeypatch.undo()
    monkeypatch.setattr(inbox, "MOST_REPLAYS", 2000)
    assert ask("dead-letters", "replay", jobfile(folder), "--all")["files"] == [1, 2, 3]
    box = Inbox(RealDisk(), place)
    assert [box.end(start) for start in (0, 1, 2, 3)] == [1, 2, 3, 3], "an epoch takes as many files as fit"
    run(folder)
    with closing(sqlite3.connect(folder / "out.db")) as db:
        assert db.execute("SELECT count(*) FROM out WHERE number = 1000").fetchone() == (5000,)


EVENTS_TEXT = '{"card": "card-0", "amount": 1000}'


# ---- the page about it ----------------------------------------------------------------------------------------------

PAGE = (Path(__file__).parents[2] / "docs" / "delivery.md").read_text()
PROGRAM = str(Path(sys.executable).parent / "streamwork")


@pytest.mark.slow
def test_the_example_of_the_page_runs_and_its_commands_work_as_written(tmp_path: Path) -> None:
    code = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
    (commands,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "payments.py").write_text(code)

    def run(*command: str) -> str:
        answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    run(sys.executable, "payments.py")
    lines = [shlex.split(line, comments=True) for line in commands.splitlines()]
    assert [line[:3] for line in lines] == [["streamwork", "dead-letters", word] for word in ("list", "show", "replay")]
    listed, shown, replayed = (run(PROGRAM, *line[1:]) for line in lines)
    assert (
        "ZeroDivisionError" in listed and '"amount": 0' in shown and replayed.startswith("1 letter will be processed")
    )
    with closing(sqlite3.connect(tmp_path / "sums.db")) as db:
        assert db.execute("SELECT amount FROM sums").fetchall() == [(25,), (45,)]
