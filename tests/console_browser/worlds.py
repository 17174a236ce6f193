"""Roots with jobs for the pages: one that went well, one with dead letters, one with hostile names and events."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from letter_jobs import squeamish_job
from query.query_jobs import sales, sales_job
from sample import Payment, Summing, run_job
from streamwork import Job, ListSource, SqliteSink

REPO = Path(__file__).parents[2]
SALES = sales(range(0, 8_000, 97))
HOSTILE = [
    "<img src=x onerror=\"document.title='owned'\">",
    "<script>document.title='owned'</script>",
    "</textarea></pre></table><svg onload=document.title='owned'>",
    "javascript:document.title='owned'//",
    "${document.title='owned'}",
    "\u202eright-to-left\u0000\u0007 é 漢字 🙂",
    "w" * 3000,
    " ".join(["many words"] * 300),
]


def quiet_root(folder: Path) -> Path:
    """`sales` has run to its end, `squeamish` has left dead letters."""
    root = folder / "root"
    run_job(sales_job(SALES, folder, 2), root)
    run_job(squeamish_job(folder), root)
    return root


def hostile_root(folder: Path) -> Path:
    """Keys, events and errors are markup, code, very long, or in other scripts."""
    root = folder / "root"
    events = [Payment(text, amount) for text in HOSTILE for amount in (1, -1)]  # it raises at the second
    job = Job("hostile-job-with-a-name-as-long-as-a-name-may-be-0123456789abcdef"[:64], checkpoint_every=0)
    source = job.source(ListSource(events, Payment, max_events=4), id="payments")
    done = source.apply(Shouting(), key="card", id="sums", on_error="dead-letter")
    done.sink(SqliteSink(folder / "hostile.db", "rows"), id="rows")
    run_job(job, root)
    return root


class Shouting(Summing):
    """Its errors hold the hostile text."""

    def apply(self, event: Payment, state: Any, collector: Any) -> None:
        if event.amount < 0:
            raise ValueError(f"cannot process {event.card}")
        super().apply(event, state, collector)


class Running:
    """`examples/card_usage.py` in a process of its own, fed by `feed`."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes]) -> None:
        self.root = folder / "root"
        self.log = folder / "run.log"
        self.process = process
        self._input = folder / "transactions.jsonl"
        self._fed = 0

    def feed(self, events: int = 20) -> None:
        with self._input.open("a") as file:
            for number in range(self._fed, self._fed + events):
                file.write(json.dumps({"id": f"t{number}", "card": f"c{number % 7}", "amount": 1.5}) + "\n")
        self._fed += events


@contextlib.contextmanager
def running_job(folder: Path) -> Iterator[Running]:
    (folder / "card_usage.py").write_text((REPO / "examples" / "card_usage.py").read_text())
    (folder / "transactions.jsonl").touch()
    program = Path(sys.executable).parent / "streamwork"
    options = ["--mode", "local", "--root", "root", "--checkpoint-every", "200ms"]
    with (folder / "run.log").open("wb") as log:
        process = subprocess.Popen(
            [program, "run", "card_usage.py", *options], cwd=folder, stdout=log, stderr=log, env={**os.environ}
        )
        try:
            yield Running(folder, process)
        finally:
            process.kill()
            process.wait()
