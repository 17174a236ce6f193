"""A small job in a folder of its own, for tests of savepoints by the command line: its file, its input, its runs and its output."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from commands import call_in, standing_in
from streamwork.job.jobfile import load_job
from streamwork.run.mode import Mode
from streamwork.run.options import RunOptions
from streamwork.run.outcome import Outcome
from streamwork.run.runner import run
from streamwork.run.stopping import Stop
from streamwork.world import RealClock
from waiting import wait_for

JOB = """
from datetime import timedelta

from streamwork import Event, Job, JsonLines, KeyedOperator, Record, SqliteSink

class Payment(Event):
    card: str
    amount: int

class Usage(Event):
    card: str
    number: int
    total: int

class Totals(Record):
    number: int = 0
    total: int = 0

class PerCard(KeyedOperator[Payment, Totals, Usage]):
    def apply(self, event, state, collector):
        state.number += 1
        state.total += event.amount * {factor}
        collector.emit(Usage(event.card, state.number, state.total))

job = Job("usage", checkpoint_every=0, parallelism=2)
payments = job.source(JsonLines("payments.jsonl", Payment, max_events=5), id="payments")
usage = payments.apply(PerCard(), key="card", id="per-card")
usage.sink({sink}, id="journal")
"""
LATEST = 'usage.sink(SqliteSink("latest.db", "latest", key="card"), id="latest")\n'
JOURNAL = 'SqliteSink("journal.db", "journal")'
ROOT = ".streamwork"


class Place:
    """The folder of a job, like that of a person: `usage.py`, `payments.jsonl`, the databases and `.streamwork`."""

    def __init__(self, folder: Path, factor: int = 1, sink: str = JOURNAL, latest: str = LATEST) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._latest = latest
        self.given: list[tuple[str, int]] = []
        self._thread: threading.Thread | None = None  # the job runs in it
        self.write("usage.py", factor, sink)

    def write(self, name: str, factor: int = 1, sink: str = JOURNAL) -> None:
        (self.folder / name).write_text(JOB.format(factor=factor, sink=sink) + self._latest)

    def give(self, count: int) -> None:
        """Append events to the input."""
        new = [(f"card-{i % 7}", 1 + i % 5) for i in range(len(self.given), len(self.given) + count)]
        with (self.folder / "payments.jsonl").open("a") as file:
            file.writelines(json.dumps({"card": card, "amount": amount}) + "\n" for card, amount in new)
        self.given += new

    def call(self, *arguments: object) -> tuple[int, Any, str]:
        """Exit code, what it answers, errors."""
        code, out, errors = call_in(self.folder, *arguments, "--json")
        return code, json.loads(out), errors

    def ask(self, *arguments: object) -> Any:
        code, answer, errors = self.call(*arguments)
        assert code == 0, (answer, errors)
        return answer

    def refused(self, *arguments: object) -> dict[str, str]:
        code, answer, _ = self.call(*arguments)
        assert code in (1, 2, 3), answer
        found: dict[str, str] = answer["error"]
        return found

    def catch_up(self, *arguments: object, job: str = "usage.py") -> Any:
        """Run until all input has been processed."""
        return self.ask("run", job, "--mode", "local", "--until-caught-up", "--no-restart", *arguments)

    def save(self, name: str, *arguments: object) -> Any:
        return self.ask("savepoint", "create", "usage.py", name, *arguments)

    @contextmanager
    def running(self, job: str = "usage.py", mode: Mode = Mode.LOCAL) -> Iterator[threading.Thread]:
        """The job runs in a thread meanwhile."""
        stop, outcome, errors = Stop(RealClock()), [], []

        def work() -> None:
            try:
                outcome.append(run(loaded.job, options, None, None, stop))
            except Exception as error:
                errors.append(error)

        with standing_in(self.folder):
            loaded = load_job(job)
        options = RunOptions(mode=mode, root=self.folder / ROOT, restart=False)
        thread = self._thread = threading.Thread(target=work)
        thread.start()
        try:
            yield thread
        finally:
            stop.asked = True
            thread.join()
            self._thread = None
        if errors:
            raise errors[0]
        assert isinstance(outcome[0], Outcome)

    # ---- output ---------------------------------------------------------------------------------------------------

    def journal(self, database: str = "journal.db", table: str = "journal") -> list[tuple[str, int, int]]:
        if not (self.folder / database).exists():
            return []
        with sqlite3.connect(self.folder / database) as db:
            try:
                return sorted(db.execute(f"SELECT card, number, total FROM {table}"))
            except sqlite3.OperationalError:
                return []

    def latest(self, database: str = "latest.db", table: str = "latest") -> list[tuple[str, int, int]]:
        return self.journal(database, table)

    def wait_for_rows(self, count: int) -> None:
        """Or for the end of the thread in which the job runs."""
        wait_for(lambda: len(self.journal()) >= count or (self._thread is not None and not self._thread.is_alive()))
        assert len(self.journal()) >= count, "the job has ended"


def expected(given: list[tuple[str, int]], factor: int = 1) -> list[tuple[str, int, int]]:
    """The journal of a run over all of it."""
    state: dict[str, tuple[int, int]] = {}
    rows = []
    for card, amount in given:
        number, total = state.get(card, (0, 0))
        state[card] = number + 1, total + amount * factor
        rows.append((card, *state[card]))
    return sorted(rows)


def last(rows: list[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    """The last row of each card."""
    return sorted({card: (card, number, total) for card, number, total in rows}.values())
