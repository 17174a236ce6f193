"""`streamwork dev` with real processes, real files and a real clock."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from streamwork.cli import dev
from streamwork.cli.dev import job_files
from waiting import wait_for

PROGRAM = str(Path(sys.executable).parent / "streamwork")

SLOW = pytest.mark.slow
JOB = """\
from pathlib import Path

from pricing import FACTOR
from streamwork import Event, Job, JsonLines, KeyedOperator, Record, SqliteSink

HERE = Path(__file__).parent


class Order(Event):
    card: str
    amount: int


class Sums(Record):
    orders: int = 0
    total: int = 0


class Seen(Event):
    card: str
    orders: int
    total: int


class Summing(KeyedOperator[Order, Sums, Seen]):
    def apply(self, event, state, collector):
        state.orders += 1
        state.total += event.amount * FACTOR
        collector.emit(Seen(event.card, state.orders, state.total))


job = Job("sums", checkpoint_every="20ms")
seen = job.source(JsonLines(HERE / "orders.jsonl", Order), id="orders").apply(Summing(), key="card", id="summing")
seen.sink(SqliteSink(HERE / "out.db", "sums", key="card"), id="sums")
"""

STUCK = """\
import signal
        listens = signal.getsignal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, lambda *given: ((HERE / "asked").touch(), listens(*given)))
        (HERE / "stuck").touch()
        while True:
            pass
"""


class Session:
    """A running `streamwork dev`, as its user sees it: files to save, lines on the terminal, Ctrl-C."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._log = folder / "terminal.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *arguments: str) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [PROGRAM, "dev", "sums.py", *arguments],
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=environment,
            )

    def save(self, file: str, text: str) -> None:
        (self.folder / file).write_text(text)

    def order(self, *amounts: int) -> None:
        with (self.folder / "orders.jsonl").open("a") as file:
            file.writelines(json.dumps({"card": "c", "amount": amount}) + "\n" for amount in amounts)

    def said(self) -> str:
        return self._log.read_text()

    def sums(self) -> list[tuple[str, int, int]]:
        with closing(sqlite3.connect(f"file:{self.folder / 'out.db'}?mode=ro", uri=True)) as db:
            return db.execute("SELECT card, orders, total FROM sums").fetchall()

    def wait_for_sums(self, orders: int, total: int) -> None:
        def there() -> bool:
            try:
                return self.sums() == [("c", orders, total)]
            except sqlite3.OperationalError:  # not made yet, or being written
                return False

        self.wait_for(there)

    def wait_for_line(self, text: str, times: int = 1) -> None:
        self.wait_for(lambda: self.said().count(text) >= times)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        assert self.process is not None
        wait_for(condition, self.process, self._log)

    def children(self) -> list[psutil.Process]:
        assert self.process is not None
        return psutil.Process(self.process.pid).children(recursive=True)

    def press_ctrl_c(self) -> None:
        """A terminal sends it to the whole process group."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGINT)

    def end(self) -> int:
        assert self.process is not None
        return self.process.wait(timeout=120)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    session = Session(tmp_path)
    session.save("sums.py", JOB)
    session.save("pricing.py", "FACTOR = 1\n")
    session.order(1, 2)
    yield session
    if session.process is not None and session.process.poll() is None:
        os.killpg(session.process.pid, signal.SIGKILL)
        session.process.wait()


def test_after_a_save_the_new_code_goes_on_from_the_last_checkpoint(session: Session) -> None:
    session.start()
    session.wait_for_sums(orders=2, total=3)
    session.save("sums.py", JOB.replace("event.amount * FACTOR", "event.amount * 100"))
    session.wait_for_line("resumed at checkpoint 1")
    session.order(1)
    session.wait_for_sums(orders=3, total=103)
    session.press_ctrl_c()
    assert session.end() == 0
    assert "stopped at checkpoint 1: 2 events" in session.said(), "it was stopped well, not killed"
    assert "saved: sums.py; starting again" in session.said()
    assert "Traceback" not in session.said()


@SLOW
def test_modules_that_the_job_imports_are_watched_and_others_are_not(session: Session) -> None:
    session.save("other.py", "x = 1\n")
    session.start()
    session.wait_for_sums(orders=2, total=3)
    session.save("other.py", "x = 2\n")
    session.save("pricing.py", "FACTOR = 10\n")
    session.wait_for_line("resumed at checkpoint 1")
    session.order(1)
    session.wait_for_sums(orders=3, total=13)
    assert [line for line in session.said().splitlines() if "saved" in line] == ["saved: pricing.py; starting again"]


@SLOW
def test_a_save_that_bytecode_cannot_tell_from_the_one_before_is_loaded(session: Session) -> None:
    """Same size, same second: Python would take the cached bytecode of the version before."""
    at = 1_700_000_000 * 10**9
    os.utime(session.folder / "pricing.py", ns=(at, at))
    session.start()
    session.wait_for_sums(orders=2, total=3)
    draft = session.folder / "pricing.new"
    draft.write_text("FACTOR = 7\n")
    os.utime(draft, ns=(at + 1, at + 1))
    draft.replace(session.folder / "pricing.py")  # as many editors save
    session.wait_for_line("resumed at checkpoint 1")
    session.order(1)
    session.wait_for_sums(orders=3, total=10)


@pytest.mark.parametrize(
    ("right", "wrong", "code"),
    [
        ("class Seen(Event):", "class Seen(Event:", "SW-JOBFILE-FAILED"),
        pytest.param(', key="card", id="summing"', ', id="summing"', "SW-JOB-KEY", marks=SLOW),
        pytest.param("    total: int = 0\n", "    total: float = 0.0\n", "SW-STATE-SCHEMA", marks=SLOW),
        pytest.param("state.orders += 1", "state.orders += 1 // 0", "SW-OPERATOR-FAILED", marks=SLOW),
        pytest.param('Job("sums"', 'Jab("sums"', "SW-JOBFILE-FAILED", marks=SLOW),
        pytest.param("from pricing", "from prices", "SW-JOBFILE-FAILED", marks=SLOW),
    ],
    ids=["syntax", "graph", "state", "operator", "name", "import"],
)
def test_a_mistake_is_shown_and_the_next_save_goes_on(session: Session, right: str, wrong: str, code: str) -> None:
    session.start()
    session.wait_for_sums(orders=2, total=3)
    assert right in JOB
    session.save("sums.py", JOB.replace(right, wrong))
    session.wait_for_line("starting again")
    session.order(4)  # some mistakes show only when an event comes
    session.wait_for_line("the job has stopped; waiting for sums.py or a module it imports to be saved")
    assert code in session.said() and "what to do:" in session.said()
    session.save("sums.py", JOB)
    session.wait_for_sums(orders=3, total=7)
    session.press_ctrl_c()
    assert session.end() == 0


@SLOW
def test_a_module_that_was_missing_is_noticed_when_it_comes(session: Session) -> None:
    (session.folder / "pricing.py").unlink()
    session.start()
    session.wait_for_line("waiting for")
    assert "No module named 'pricing'" in session.said()
    session.save("pricing.py", "FACTOR = 2\n")
    session.wait_for_sums(orders=2, total=6)


@SLOW
def test_when_all_input_is_read_it_waits_for_a_save(session: Session) -> None:
    finite = JOB.replace('JsonLines(HERE / "orders.jsonl", Order)', 'ListSource([Order("c", 5)])')
    session.save("sums.py", finite.replace("JsonLines,", "ListSource,"))
    session.start()
    session.wait_for_line("all input has been read; waiting for")
    assert session.sums() == [("c", 1, 5)]
    session.press_ctrl_c()
    assert session.end() == 0


@pytest.mark.parametrize(
    "number", [signal.SIGINT, *(pytest.param(n, marks=SLOW) for n in (signal.SIGTERM, signal.SIGHUP))]
)
def test_asked_to_end_it_stops_the_job_and_leaves_no_process(session: Session, number: signal.Signals) -> None:
    session.start("--json")
    session.wait_for_sums(orders=2, total=3)
    (child,) = session.children()
    assert session.process is not None
    session.process.send_signal(number)
    assert session.end() == 0
    assert not child.is_running()
    said = session.said()
    assert "stopped at checkpoint 1: 2 events" in said
    assert json.loads(said[said.index("{") :]) == {
        "jobfile": str(session.folder / "sums.py"),
        "starts": 1,
        "failures": 0,
    }


@SLOW
def test_a_lost_sink_is_filled_again_if_asked(session: Session) -> None:
    """The advice of SW-SINK-LOST can be followed in `dev`."""
    session.start()
    session.wait_for_sums(2, 3)
    session.press_ctrl_c()
    assert session.end() == 0
    (session.folder / "out.db").unlink()
    session.start()
    session.wait_for_line("start once with --refill sums")
    session.press_ctrl_c()
    assert session.end() == 0
    session.start("--refill", "sums")
    session.wait_for_sums(2, 3)
    session.order(4)
    session.wait_for_sums(3, 7)
    session.press_ctrl_c()
    assert session.end() == 0


@SLOW
def test_ctrl_c_while_the_job_is_starting_ends_without_a_traceback(session: Session) -> None:
    session.save("pricing.py", "import time\nopen('loading', 'w').close()\ntime.sleep(600)\n")
    session.start()
    session.wait_for((session.folder / "loading").exists)
    session.press_ctrl_c()
    assert session.end() == 0
    assert session.said() == "stopped before it had started\n"


@SLOW
def test_ctrl_c_after_a_mistake_ends_well(session: Session) -> None:
    session.save("sums.py", "(\n")
    session.start()
    session.wait_for_line("waiting for")
    session.press_ctrl_c()
    assert session.end() == 0


@SLOW
def test_a_second_ctrl_c_ends_a_job_that_does_not_stop(session: Session) -> None:
    session.save("sums.py", JOB.replace("state.orders += 1", STUCK))
    session.start()
    session.wait_for((session.folder / "stuck").exists)
    (child,) = session.children()
    session.press_ctrl_c()
    session.wait_for((session.folder / "asked").exists)
    session.press_ctrl_c()
    assert session.end() == 0
    assert not child.is_running()


class Stepping:
    """A clock that is so many seconds later whenever it is read."""

    def __init__(self, step: float) -> None:
        self.at, self._step = 0.0, step

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        self.at += self._step
        return self.at

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@pytest.mark.parametrize(
    ("clock", "times"), [(Stepping(1), 1), (Stepping(0), 2)], ids=["time is up", "Ctrl-C came again"]
)
def test_a_child_that_does_not_stop_is_killed(clock: Stepping, times: int) -> None:
    asked = dev.Asked()
    asked.times = times
    deaf = "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert dev._stop(child, asked, clock) is False
        assert child.returncode == -signal.SIGKILL


@SLOW
def test_it_keeps_its_files_where_run_does_so_that_either_goes_on_from_the_other(session: Session) -> None:
    command = [PROGRAM, "run", "sums.py", "--mode", "local", "--until-caught-up"]
    subprocess.run(command, cwd=session.folder, check=True, capture_output=True)
    session.order(4)
    session.start()
    session.wait_for_sums(orders=3, total=7)
    assert "resumed at checkpoint 1" in session.said()


@SLOW
def test_root_keeps_its_files_elsewhere(session: Session) -> None:
    session.start("--root", "elsewhere")
    session.wait_for_sums(orders=2, total=3)
    assert (session.folder / "elsewhere" / "sums").is_dir()
    assert not (session.folder / ".streamwork").exists()


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    answer = subprocess.run([PROGRAM, "dev", "nowhere.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert answer.returncode == 2
    assert answer.stderr.startswith("SW-JOBFILE-MISSING ")


def test_the_files_of_a_job_are_those_that_its_imports_lead_to(tmp_path: Path) -> None:
    texts = {
        "job.py": "import json\nfrom package.inner import thing\ndef late():\n    import helper\n",
        "helper.py": "import not_yet\nimport job\n",
        "unrelated.py": "",
        "package/__init__.py": "from .beside import x\n",
        "package/beside.py": "from . import another\n",
        "package/another.py": "(",
        "package/unused.py": "",
        "package/inner/__init__.py": "from ..above import *\n",
        "package/inner/thing.py": "from ....too_far import x\n",
        "package/above.py": "",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = {str(file.relative_to(tmp_path)) for file in job_files(tmp_path / "job.py")}
    assert {name for name in found if name in texts} == set(texts) - {"unrelated.py", "package/unused.py"}
    assert {"not_yet.py", "not_yet/__init__.py"} <= found, "making one of them would mend the job"
