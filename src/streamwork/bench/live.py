"""``streamwork bench live``: the fraud detection example, from the time at which a transaction is due to its readable decision.

Job and sender are processes of their own. The sender is an open loop: latency counts from the scheduled time, so a stall is not
hidden. A part counts only if every transaction was decided, and enough of the planted fraud was found.

    direct      the rate of the target by direct calls, in one process with the presenter, with a checkpoint every second
    killed      the same, and one process is killed with -9 in the middle; each transaction must be answered
    rising      higher and higher rates, until p99 is above the limit or decisions are missing
    http        by HTTP on connections that are kept alive; the latency is that of the answer
    microbatch  the same job with one Spark job per checkpoint
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from streamwork.bench.live_system import Load, System, Victim

LIMIT_MS = 20.0
LEAST_PRECISION = 0.75
WARM = Load(rate=50.0, seconds=2.0)
"""Starts Spark and its workers, so that nothing else counts their start."""
PERCENTILES = ("p50_ms", "p99_ms", "p999_ms", "max_ms")
Note = Callable[[str], None]


class Wrong(AssertionError):
    """The decisions are wrong, so the speed does not count."""


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    mode: str = "live"
    rate: float = 1000.0
    seconds: float = 60.0
    victims: tuple[str, ...] = ("analyser", "task")
    killed_seconds: float = 60.0
    rising: tuple[float, ...] = (2000.0, 3000.0, 4000.0, 6000.0, 8000.0)
    rising_seconds: float = 15.0
    http_rate: float = 300.0
    http_seconds: float = 20.0
    connections: int = 32
    microbatch_rates: tuple[float, ...] = (1000.0, 2000.0, 4000.0, 8000.0, 16000.0)
    microbatch_seconds: float = 15.0
    checkpoint_every: str = "1s"
    least_recall: float = 0.75


FULL = Sizes()
QUICK = Sizes(
    rate=200.0,
    seconds=5.0,
    victims=("task",),
    killed_seconds=10.0,
    rising=(400.0,),
    rising_seconds=5.0,
    http_rate=50.0,
    http_seconds=5.0,
    connections=8,
    microbatch_rates=(),
    least_recall=0.5,  # few are planted, and a busy machine costs scores
)


def run(folder: Path | None = None, sizes: Sizes = FULL, note: Note = lambda line: None) -> dict[str, Any]:
    """Measure and return all figures. Raises `Wrong` if decisions are wrong. `note` receives progress lines."""
    with tempfile.TemporaryDirectory(prefix="bench-live-", dir=folder) as scratch:
        place = Path(scratch)
        with System(place / "direct", sizes.mode, sizes.checkpoint_every) as system:
            system.send(WARM)
            note(f"direct calls, {sizes.rate:,.0f} per second for {sizes.seconds:g} s")
            direct = _row(_checked(system.send(Load(rate=sizes.rate, seconds=sizes.seconds)), sizes.least_recall))
            note(_shown(direct))
            note(f"HTTP, {sizes.http_rate:,.0f} per second")
            load = Load(rate=sizes.http_rate, seconds=sizes.http_seconds, connections=sizes.connections)
            http = _row(_checked(system.send(load), sizes.least_recall))
            note(_shown(http))
            rising = {"live": _rise(system, direct, sizes.rising, sizes.rising_seconds, note)}
        killed = {victim: _kill(place / f"killed-{victim}", Victim(victim), sizes, note) for victim in sizes.victims}
        if sizes.microbatch_rates:
            with System(place / "microbatch", "microbatch", sizes.checkpoint_every) as system:
                note("the same in microbatch")
                system.send(WARM)
                rising["microbatch"] = _rates(system, sizes.microbatch_rates, sizes.microbatch_seconds, note)
    return {
        **{name: direct[name] for name in (*PERCENTILES, "share_within_20ms")},
        "max_rate_within_20ms": highest(rising["live"]),
        "direct": direct,
        "http": http,
        "killed": killed,
        "rates": {name: {f"{row['rate']:g}": row for row in rows} for name, rows in rising.items()},
        "settings": msgspec.to_builtins(sizes),
    }


def _kill(folder: Path, victim: Victim, sizes: Sizes, note: Note) -> dict[str, Any]:
    note(f"{victim.value} killed in the middle of {sizes.killed_seconds:g} s")
    with System(folder, sizes.mode, sizes.checkpoint_every) as system:
        system.send(WARM)
        with system.killing(victim, sizes.killed_seconds / 2) as killed:
            found = system.send(Load(rate=sizes.rate, seconds=sizes.killed_seconds))
    if not killed:
        raise Wrong("no process was killed")
    answered = sum(found["answers"].values())
    if answered != found["latency"]["transactions"]:
        raise Wrong(f"{answered} of {found['latency']['transactions']} transactions were answered")
    row = {**_row(found), "missing_scores": sum(found["missing_scores"].values())}
    del row["cpu_s_per_million"]  # that of the killed process is not known
    note(_shown(row))
    return row


def _rise(
    system: System, first: dict[str, Any], rates: Sequence[float], seconds: float, note: Note
) -> list[dict[str, Any]]:
    """Rows of rising rates; the last one is above the limit, unless all are within it."""
    rows = [first]
    for rate in rates:
        if not within(rows[-1]):
            break
        rows += _rates(system, [rate], seconds, note)
    return rows


def _rates(system: System, rates: Sequence[float], seconds: float, note: Note) -> list[dict[str, Any]]:
    rows = []
    for rate in rates:
        rows.append(_row(system.send(Load(rate=rate, seconds=seconds))))
        note(_shown(rows[-1]))
    return rows


# ---- pure ---------------------------------------------------------------------------------------------------------------


def within(row: Mapping[str, Any]) -> bool:
    """True if all transactions were decided, and p99 is within the limit."""
    return bool(row["decided"] == row["transactions"] and row["p99_ms"] is not None and row["p99_ms"] <= LIMIT_MS)


def highest(rows: Sequence[Mapping[str, Any]]) -> float:
    """The highest rate up to which every rate is within the limit; 0 if none is."""
    best = 0.0
    for row in sorted(rows, key=lambda row: float(row["rate"])):
        if not within(row):
            break
        best = row["rate"]
    return best


def _checked(found: dict[str, Any], least_recall: float = FULL.least_recall) -> dict[str, Any]:
    """The report of the sender, if its decisions are right."""
    transactions = found["latency"]["transactions"]
    if found["decided"] != transactions:
        raise Wrong(f"{found['decided']} of {transactions} transactions were decided")
    quality = found["quality"]["all"]
    if not quality["planted"]:
        raise Wrong("no fraud was planted: the run is too short")
    if quality["recall"] < least_recall or quality["precision"] is None or quality["precision"] < LEAST_PRECISION:
        raise Wrong(
            f"recall {quality['recall']} (at least {least_recall:g}), precision {quality['precision']} (at least "
            f"{LEAST_PRECISION:g}); {sum(found['missing_scores'].values())} scores came too late"
        )
    return found


def _row(found: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of one part."""
    latency, answers, quality = found["latency"], found["answers"], found["quality"]["all"]
    return {
        "rate": found["rate"],
        "transactions": latency["transactions"],
        "decided": found["decided"],
        **{name: latency[name] for name in PERCENTILES},
        "share_within_20ms": latency["share_within"],
        "answered_in_time": answers["in time"],
        "longest_gap_ms": found["longest_gap_ms"],
        "sender_lag_ms": found["sender_lag_ms"],
        "recall": quality["recall"],
        "precision": quality["precision"],
        "cpu_s_per_million": round(found["job_cpu_s"] * 1e6 / (latency["transactions"] + found["history"]), 1),
    }


def _shown(row: Mapping[str, Any]) -> str:
    return (
        f"  {row['rate']:g}/s: p50 {row['p50_ms']} ms, p99 {row['p99_ms']} ms, p99.9 {row['p999_ms']} ms, max {row['max_ms']} ms, "
        f"{row['share_within_20ms']:.2%} within 20 ms, {row['decided']:,} of {row['transactions']:,} decided"
    )
