"""``streamwork demo card-usage``: runs the README's job on generated input, and shows its results and its state."""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from streamwork.cli.examples import example
from streamwork.job.jobfile import load_job
from streamwork.run.mode import Mode
from streamwork.run.options import RunOptions
from streamwork.run.outcome import Outcome
from streamwork.run.runner import run
from streamwork.run.watcher import Watcher
from streamwork.wording import plural

EVENTS = 200_000
CARDS = 5_000


def write_transactions(path: Path, count: int, first: int = 0, seed: int = 1, cards: int = CARDS) -> None:
    """Append `count` transactions, equal for equal arguments. Amounts are multiples of 0.25, so that sums are exact."""
    rng = random.Random(f"{seed}/{first}")
    with path.open("a") as file:
        for number in range(first, first + count):
            card, amount = f"card-{rng.randrange(cards):05d}", rng.randrange(1, 2000) / 4
            file.write(json.dumps({"id": f"t{number}", "card": card, "amount": amount}) + "\n")


def prepare(folder: Path) -> Path:
    """Write the job file, and append another batch of transactions."""
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "transactions.jsonl"
    have = sum(1 for _ in source.open()) if source.exists() else 0
    write_transactions(source, EVENTS, first=have)
    target = folder / "card_usage.py"
    shutil.copyfile(example("card_usage.py"), target)
    return target


def run_demo(folder: Path, mode: Mode, watcher: Watcher | None) -> Outcome:
    if watcher is not None:
        watcher.on_note(f"writing {plural(EVENTS, 'transaction')} for the job to read to {folder}")
    target = prepare(folder)
    with _inside(folder):
        loaded = load_job(str(target))
        options = RunOptions(mode=mode, root=loaded.default_root, until_caught_up=True, module_folder=folder)
        return run(loaded.job, options, watcher)


def show_results(folder: Path, say: Callable[[str], Any]) -> None:
    """Show what the job has written: results in SQLite, state in Parquet."""
    with closing(sqlite3.connect(folder / "usage.db")) as db:
        cards, events, total = db.execute("SELECT count(*), sum(transactions), sum(total) FROM usage").fetchone()
        top = db.execute("SELECT card, transactions, total FROM usage ORDER BY total DESC LIMIT 3").fetchall()
    say(
        f"\nresults, {folder / 'usage.db'}, table usage: {plural(cards, 'card')}, "
        f"{plural(events, 'transaction')}, {total:,.2f} in all"
    )
    for card, transactions, amount in top:
        say(f"  {card}  {plural(transactions, 'transaction'):>19}  {amount:>12,.2f}")
    newest = max((folder / ".streamwork" / "card-usage" / "state" / "per-card" / "0").glob("*.parquet"))
    row = pq.ParquetFile(newest).read(use_threads=False).slice(0, 1).to_pylist()[0]
    say(f"\nstate, {newest}: Parquet that DuckDB, Polars, pandas and Spark can open. One of its rows:")
    say("  " + ", ".join(f"{name}={value!r}" for name, value in row.items()))
    say(
        "\nrun the demo again: it resumes at the last checkpoint. Kill it with -9 meanwhile: nothing is lost or duplicated."
    )


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
