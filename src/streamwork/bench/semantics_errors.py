"""The part of ``streamwork bench semantics`` about errors: one failing event, and one kill -9, under each of the semantics.

Events are appended at a fixed rate (open loop), with a checkpoint each second; each is counted and becomes a row of its own in
SQLite. Latency is the time from when an event is due until a reader sees its row.

    normal_ms    the highest latency before the error
    others_ms    one event fails, at its first attempt only: the highest latency of the others that were due around it
    event_ms     its own latency; None: it has no row
    gap_s        kill -9 of all processes, and a start at once: from the kill to the first new row
    missing      events without a row in the end, the failed one apart
    repeated     rows beyond the first of an event, in the end
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from streamwork.bench.contest import Wrong
from streamwork.bench.open_loop import TABLE, Rows, Sender, Use, kill, reading, started
from streamwork.bench.semantics_errors_job import FAILS
from streamwork.log import EventLog
from streamwork.run.mode import Mode

Note = Callable[[str], None]
JOBFILE = """from pathlib import Path

from streamwork.bench.semantics_errors_job import build

job = build(Path(__file__).parent, {semantics!r})
"""
STOP_SECONDS = 120.0
LOSES, REPEATS = "at-most-once", "at-least-once"


class ErrorSizes(msgspec.Struct, frozen=True, kw_only=True):
    mode: str = Mode.MICROBATCH.value
    rate: int = 1_000
    cards: int = 100
    warm_seconds: float = 2.0
    normal_seconds: float = 3.0
    after_seconds: float = 2.0  # of events that are due behind the failing one, and behind the kill


FULL = ErrorSizes()
QUICK = ErrorSizes(mode=Mode.LOCAL.value, rate=200, cards=5, warm_seconds=0.2, normal_seconds=1.2, after_seconds=1.0)


def measure(folder: Path, semantics: Mapping[str, str], sizes: ErrorSizes, note: Note) -> dict[str, Any]:
    """The figures of one of the semantics. Raises `Wrong` if more is lost or repeated than they allow."""
    folder.mkdir(parents=True)
    (folder / "job.py").write_text(JOBFILE.format(semantics=dict(semantics)))
    with EventLog.create(folder / "uses.log", Use, key="card", partitions=2) as log:
        sender = Sender(log, sizes.cards, sizes.rate)
        sender.append(1)
        with started(folder, sizes.mode) as job, sender.sending():
            rows = Rows(folder, job)
            rows.until(lambda: rows.visible > 0, "the first row")
            found = _failing(rows, sender, sizes, semantics["semantics"] != LOSES)
            killed = time.time()
            kill(job)
        with started(folder, sizes.mode, "--take-over") as job, sender.sending():
            rows.job = job
            seen = rows.visible
            rows.until(lambda: rows.visible > seen, "a row after the kill")
            found["gap_s"] = round(rows.changed - killed, 2)
            behind = time.time()
            rows.until(lambda: rows.since(behind + sizes.after_seconds) > 0, "the events behind the kill")
            job.terminate()
            job.wait(STOP_SECONDS)
        with started(folder, Mode.LOCAL.value, "--take-over", "--until-caught-up") as job:  # it starts sooner
            if job.wait(STOP_SECONDS) != 0:
                raise Wrong("the last run has failed")
    lost, repeated = _compare(folder, sender.sent)
    found |= {"missing": lost - (found["event_ms"] is None), "repeated": repeated}
    _check(semantics["semantics"], found)
    note(f"{semantics}: {found}")
    return found


def _failing(rows: Rows, sender: Sender, sizes: ErrorSizes, comes: bool) -> dict[str, Any]:
    """`comes`: the failing event has a row in the end."""
    began = time.time() + sizes.warm_seconds
    rows.until(lambda: rows.since(began + sizes.normal_seconds) > 0, "the rows before the error")
    normal = rows.latencies(began).max()
    failing = sender.send_one(FAILS)
    at = time.time()
    rows.until(
        lambda: rows.since(at + sizes.after_seconds) > 0 and (not comes or failing in rows.by_number(at - 1.0)),
        "the rows behind the failing event",
    )
    own = {number: late for number, late in rows.by_number(at - 1.0).items() if number == failing}
    others = [late for number, late in rows.by_number(at - 1.0).items() if number != failing]
    return {
        "normal_ms": round(float(normal), 1),
        "others_ms": round(float(max(others)), 1),
        "event_ms": round(own[failing], 1) if failing in own else None,
    }


def _compare(folder: Path, sent: int) -> tuple[int, int]:
    """(events without a row, rows beyond the first of an event)"""
    with reading(folder) as db:
        rows, events = db.execute(f"SELECT count(*), count(DISTINCT number) FROM {TABLE}").fetchone()
    return sent - events, rows - events


def _check(semantics: str, found: Mapping[str, Any]) -> None:
    if semantics != LOSES and (found["missing"] or found["event_ms"] is None):
        raise Wrong(f"{semantics}: {found['missing']} events are missing")
    if semantics != REPEATS and found["repeated"]:
        raise Wrong(f"{semantics}: {found['repeated']} rows are repeated")
