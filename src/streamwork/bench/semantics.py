"""``streamwork bench semantics``: what each of the semantics costs, on the same count per card.

    at-most-once      the instances write to the sink at once; nothing is replayed
    at-least-once     likewise, and after a failure everything since the last checkpoint is replayed
    acknowledging     at-least-once, every event followed by its id through the job
    exactly-once      outputs are staged, and committed with a ledger, while the next checkpoint is computed

Each upserts the newest count of every card into SQLite (`sqlite`); appends every count, so that nothing is upserted (`appends`);
and, with `--postgres ADDRESS`, upserts into PostgreSQL (`postgres`). All have their default durability, and an empty table for
each of the semantics. The semantics take turns, one burst each, with the same events, so that noise on the machine affects all of
them. A burst is a backlog of several checkpoints, timed from the first plan to the last completion. A ratio compares two
consecutive bursts with the same events; the median is reported. At the end each table is compared with numpy's result, card by
card; a difference is an error, and no speed is reported.

What an error costs under each of them is measured by `semantics_errors`.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from streamwork.bench import semantics_errors
from streamwork.bench.contest import Wrong, turned
from streamwork.bench.epochs import CpuTime, Epochs
from streamwork.bench.keyed_state import card_names
from streamwork.bench.keyed_state_job import COUNTS, PARALLELISM, Counting, Use
from streamwork.bench.spread import spread
from streamwork.components import Sink
from streamwork.connectors import LogSource, SqliteSink
from streamwork.hosts.session import start_spark
from streamwork.hosts.spark_epochs import SparkEpochs
from streamwork.job import Job
from streamwork.log import EventLog

SEMANTICS: dict[str, dict[str, str]] = {
    "at_most_once": {"semantics": "at-most-once"},
    "at_least_once": {"semantics": "at-least-once"},
    "acknowledging": {"semantics": "at-least-once", "tracking": "acknowledge"},
    "exactly_once": {"semantics": "exactly-once"},
}
TABLE = "usage"
APPENDED = 10_000  # rows at a time
Note = Callable[[str], None]


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    cards: int = 10_000
    rows: int = 200_000  # of one checkpoint
    checkpoints: int = 4  # of a burst
    warm: int = 1
    repeats: int = 5
    errors: semantics_errors.ErrorSizes = semantics_errors.FULL


FULL = Sizes()
QUICK = Sizes(cards=50, rows=1_000, checkpoints=2, repeats=1, errors=semantics_errors.QUICK)


def run(
    folder: Path | None = None, sizes: Sizes = FULL, note: Note = lambda line: None, postgres: str | None = None
) -> dict[str, Any]:
    """Measure and return all figures. Raises `Wrong` if a table is wrong. `note` receives progress lines.

    PostgreSQL is measured if its address is given; the database must be empty.
    """
    found: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-semantics-", dir=folder)))
        spark = start_spark(f"local[{PARALLELISM}]", scratch / "spark.log", [])
        targets: dict[str, Target] = {"sqlite": SqliteTarget(scratch), "appends": AppendTarget(scratch)}
        if postgres is not None:
            targets["postgres"] = PostgresTarget(postgres)
        else:
            note("PostgreSQL is not measured: --postgres gives its address")
        for name, target in targets.items():
            found[name] = Contest(scratch / name, spark, target, target.sized(sizes), _labelled(note, name)).run()
        errors = {
            name: semantics_errors.measure(scratch / "errors" / name, chosen, sizes.errors, _labelled(note, "errors"))
            for name, chosen in SEMANTICS.items()
        }
    return {
        "exactly_once_vs_at_most_once": min(one["exactly_once_vs_at_most_once"] for one in found.values()),
        **found,
        "errors": errors,
        "settings": {**msgspec.to_builtins(sizes), "cores": PARALLELISM},
    }


def _labelled(note: Note, name: str) -> Note:
    return lambda line: note(f"{name}: {line}")


class Target:
    """A database that the contestants write to, each to a table of its own."""

    def sink(self, contestant: str) -> Sink[Any]:
        raise NotImplementedError

    def rows(self, contestant: str) -> dict[str, tuple[int, float]]:
        """Card -> count and total."""
        raise NotImplementedError

    def sized(self, sizes: Sizes) -> Sizes:
        """How much is measured with this target."""
        return sizes


class SqliteTarget(Target):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def sink(self, contestant: str) -> Sink[Any]:
        return SqliteSink(self._folder / f"{contestant}.db", TABLE, key="card")

    def rows(self, contestant: str) -> dict[str, tuple[int, float]]:
        import sqlite3

        with contextlib.closing(sqlite3.connect(self._folder / f"{contestant}.db")) as db:
            return {
                card: (count, total) for card, count, total in db.execute(f"SELECT card, count, total FROM {TABLE}")
            }


class AppendTarget(SqliteTarget):
    """Every count is a row of its own: nothing is upserted."""

    def sized(self, sizes: Sizes) -> Sizes:
        return msgspec.structs.replace(sizes, rows=sizes.rows // 2)  # all rows stay in the table

    def sink(self, contestant: str) -> Sink[Any]:
        return SqliteSink(self._folder / f"{contestant}-appended.db", TABLE)

    def rows(self, contestant: str) -> dict[str, tuple[int, float]]:
        """The last count of a card; the number of its rows instead, where that is another one."""
        import sqlite3

        with contextlib.closing(sqlite3.connect(self._folder / f"{contestant}-appended.db")) as db:
            found = db.execute(
                f"SELECT card, count(*), max(count), count(DISTINCT count), max(total) FROM {TABLE} GROUP BY card"
            )
            return {
                card: (last if rows == last == different else -rows, total)
                for card, rows, last, different, total in found
            }


class PostgresTarget(Target):
    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    def sink(self, contestant: str) -> Sink[Any]:
        from streamwork.connectors import PostgresSink

        return PostgresSink(self._dsn, contestant, key="card")

    def rows(self, contestant: str) -> dict[str, tuple[int, float]]:
        import psycopg

        with psycopg.connect(self._dsn) as db:
            found = db.execute(
                psycopg.sql.SQL("SELECT card, count, total FROM {}").format(psycopg.sql.Identifier(contestant))
            )
            return {card: (count, total) for card, count, total in found}


class Contest:
    """All semantics, with one target."""

    def __init__(self, folder: Path, spark: Any, target: Target, sizes: Sizes, note: Note) -> None:
        self._folder = folder
        self._spark = spark
        self._target = target
        self._sizes = sizes
        self._note = note
        self._rng = np.random.default_rng(7)
        self._names = card_names(sizes.cards)
        self._counts, self._totals = np.zeros(sizes.cards, np.int64), np.zeros(sizes.cards)
        self._seconds: dict[str, list[float]] = {name: [] for name in SEMANTICS}
        self._cpu: dict[str, list[float]] = {name: [] for name in SEMANTICS}

    def run(self) -> dict[str, Any]:
        with contextlib.ExitStack() as stack:
            log = stack.enter_context(EventLog.create(self._folder / "log", Use, key="card", partitions=PARALLELISM))
            jobs = {name: self._start(name) for name in SEMANTICS}
            for job in jobs.values():
                stack.callback(job.close)
            for repeat in range(-self._sizes.warm, self._sizes.repeats):
                self._burst(log, jobs, repeat)
            self._check()
        return self._numbers()

    def _start(self, name: str) -> Epochs:
        job = Job(name.replace("_", "-"), checkpoint_every=0, parallelism=PARALLELISM, **SEMANTICS[name])  # type: ignore[arg-type]
        uses = job.source(LogSource(self._folder / "log", Use, max_events=self._sizes.rows), id="uses")
        uses.apply(Counting(), key="card", id=COUNTS).sink(self._target.sink(name), id="usage")
        return Epochs(job, self._folder / "root", SparkEpochs(self._spark))

    def _burst(self, log: EventLog[Use], jobs: dict[str, Epochs], repeat: int) -> None:
        rows = self._sizes.rows * self._sizes.checkpoints
        cards = self._rng.integers(0, self._sizes.cards, rows)
        amounts = self._rng.integers(0, 100_000, rows) / 4  # quarters: their sum is exact in any order
        self._counts += np.bincount(cards, minlength=self._sizes.cards)
        self._totals += np.bincount(cards, amounts, self._sizes.cards)
        names = pa.array(self._names).take(pa.array(cards))
        batch = pa.record_batch({"id": np.arange(rows), "card": names, "amount": amounts})
        for start in range(0, rows, APPENDED):
            log.append(batch.slice(start, APPENDED))
        log.sync()
        for name in turned(list(jobs), repeat):
            used = CpuTime()
            seconds = jobs[name].run_all(rows)
            self._note(f"burst {repeat + 1} of {self._sizes.repeats}, {name}: {rows / seconds:,.0f} events/s")
            if repeat >= 0:
                self._seconds[name].append(seconds)
                self._cpu[name].append(used.seconds())

    def _check(self) -> None:
        wanted = {
            name: (int(count), float(total))
            for name, count, total in zip(self._names, self._counts, self._totals, strict=True)
            if count
        }
        for name in SEMANTICS:
            found = self._target.rows(name)
            if found != wanted:
                wrong = [card for card in wanted if found.get(card) != wanted[card]]
                raise Wrong(f"{name}: {len(wrong)} of {len(wanted)} cards are wrong, the first is {wrong[:1]}")

    def _numbers(self) -> dict[str, Any]:
        rows = self._sizes.rows * self._sizes.checkpoints
        found: dict[str, Any] = {}
        for name, seconds in self._seconds.items():
            at_most = self._seconds["at_most_once"]
            spreads = {
                "events_per_s": spread([rows / one for one in seconds], 0),
                "ratio_vs_at_most_once": spread([b / a for a, b in zip(seconds, at_most, strict=True)]),
                "cpu_s_per_million": spread([one * 1e6 / rows for one in self._cpu[name]]),
            }
            found[name] = {**{one: figures["median"] for one, figures in spreads.items()}, "spread": spreads}
        return {"exactly_once_vs_at_most_once": found["exactly_once"]["ratio_vs_at_most_once"], **found}
