"""Run the job under each of the semantics with each of its writers, kill -9 it in the middle of a write, and start it again.

    python compare.py                     # without Spark, about half a minute
    python compare.py --mode microbatch   # on Spark
    python compare.py --json

Exits with 1 if a result is not the one that the semantics promise.
"""

import argparse
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from usage.scene import Scene
from usage.writers import TABLE, WRITERS

HERE = Path(__file__).parent
SEMANTICS = ("at-most-once", "at-least-once", "exactly-once")
REFUSED = ("exactly-once", "increment")
"""A sink without a ledger cannot be written exactly once: Streamwork refuses to start the job."""


@dataclass(frozen=True)
class Cell:
    """What one writer shows after a crash under one of the semantics."""

    semantics: str
    sink: str
    events: int
    counted: int | None = None  # rows of an appending writer, else the number in the table
    missing: int | None = None
    repeated: int | None = None
    refused: str = ""

    @property
    def as_promised(self) -> bool:
        if (self.semantics, self.sink) == REFUSED:
            return self.refused == "SW-JOB-SEMANTICS"
        lost, twice = bool(self.missing), bool(self.repeated)
        if self.semantics == "at-most-once":
            return lost and not twice
        if self.semantics == "at-least-once":
            return twice == (self.sink != "upsert") and not lost
        return not lost and not twice and not self.refused


def cell(semantics: str, sink: str, folder: Path, mode: str = "local", events: int = 1_000) -> Cell:
    """Start the job, which is killed in the middle; start it again; count what it wrote."""
    scene = Scene(folder)
    scene.add(range(events))
    environment = {
        **os.environ,
        "FRAUD_DATA": str(folder),
        "USAGE_DB": str(folder / "usage.db"),
        "USAGE_SINK": sink,
        "CRASH_AFTER": str(events // 2),
        "CRASH_MARK": str(folder / "crashed"),
    }
    command = [sys.executable, "-m", "streamwork", "run", str(HERE / "crash_job.py"), "--root", str(folder / "root")]
    command += ["--mode", mode, "--semantics", semantics, "--until-caught-up", "--json"]
    first = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if first.returncode in (2, 3):
        return Cell(semantics, sink, events, refused=json.loads(first.stdout)["error"]["code"])
    if first.returncode != -signal.SIGKILL:
        raise RuntimeError(f"the job was not killed: {first.stdout}{first.stderr}")
    second = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if second.returncode != 0:
        raise RuntimeError(f"the second start failed: {second.stdout}{second.stderr}")
    return counted(semantics, sink, events, folder / "usage.db")


def counted(semantics: str, sink: str, events: int, database: Path) -> Cell:
    with closing(sqlite3.connect(database)) as db:
        if sink == "append":
            rows = Counter(id for (id,) in db.execute(f'SELECT "transaction" FROM {TABLE}'))
            total = sum(rows.values())
            return Cell(semantics, sink, events, total, events - len(rows), total - len(rows))
        (number,) = db.execute(f"SELECT sum(transactions) FROM {TABLE}").fetchone()
    return Cell(semantics, sink, events, number, max(0, events - number), max(0, number - events))


def table(cells: list[Cell]) -> str:
    lines = ["| semantics | sink | transactions | counted | missing | repeated |", "|---|---|---:|---:|---:|---:|"]
    for one in cells:
        numbers = [f"refused: {one.refused}", "", ""] if one.refused else [one.counted, one.missing, one.repeated]
        lines.append("| " + " | ".join(map(str, [one.semantics, one.sink, one.events, *numbers])) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the semantics after kill -9 in the middle of a write.")
    parser.add_argument("--mode", choices=["local", "microbatch"], default="local")
    parser.add_argument("--events", type=int, default=1_000)
    parser.add_argument("--semantics", choices=SEMANTICS, action="append", help="only these; repeat for several")
    parser.add_argument("--sink", choices=list(WRITERS), action="append", help="only these; repeat for several")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cells = [
            cell(semantics, sink, Path(folder) / f"{semantics}-{sink}", options.mode, options.events)
            for semantics in options.semantics or SEMANTICS
            for sink in options.sink or WRITERS
        ]
    kept = all(one.as_promised for one in cells)
    if options.json:
        print(json.dumps({"cells": [asdict(one) for one in cells], "as_promised": kept}, indent=2))
    else:
        print(table(cells))
        print("every result is as promised" if kept else "a result is not as promised")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
