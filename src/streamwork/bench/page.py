"""``streamwork bench page``: writes the pages about speed from the saved results of the benchmarks.

    DOCS/benchmarks/results/NAME.json   read: the result of `streamwork bench NAME --save DOCS/benchmarks/results`
    DOCS/benchmarks/README.md           written: a section for each benchmark
    DOCS/benchmarks/NAME.svg            written: its plot
    DOCS/semantics.md                   written: the part between its two markers

Equal results give equal pages, byte for byte. Missing results and missed targets are marked as such.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click

from streamwork.bench.plot import plot, svg
from streamwork.bench.results import Result, load
from streamwork.bench.tables import Figure, grid, markdown, row, tables
from streamwork.bench.targets import PLANNED, TARGETS, Target, Verdict
from streamwork.cli.output import JSON, print_json, say
from streamwork.errors import WrongUse

RESULTS = Path("benchmarks", "results")
PAGE = Path("benchmarks", "README.md")
SEMANTICS = Path("semantics.md")
BEGIN = "<!-- measured: begin. `streamwork bench page` writes what follows. -->"
END = "<!-- measured: end -->"
PAGE_WIDTH = 128
SAVE_HERE = f"--save docs/{RESULTS.as_posix()}"


class Section(NamedTuple):
    """The text about a benchmark."""

    title: str
    about: str
    names: dict[str, str] = {}


SPARK_PEER = "plain Structured Streaming in PySpark, RocksDB with changelog, from Parquet files of the same rows"
BYTEWAX_PEER = "Bytewax, one worker, without recovery: nothing is durable, and each epoch begins without state"

MODES = {
    "live": "tasks that run all the time",
    "microbatch": "one Spark job for each checkpoint, of as many events as take about a second",
}

LATENCY_SYSTEMS = {
    **MODES,
    "spark": "plain Structured Streaming, at-least-once; it triggers at the checkpoint interval",
    "flink": "Flink SQL, exactly-once",
}

PUBLISHED = (
    ("inside", "generator inside the job", "15,000,000", "a cluster"),
    ("state", "from Kafka, state in the engine", "3,000,000", "a cluster; the network was the limit"),
    ("million", "a million campaigns, written to Redis", "280,000", "a cluster"),
)
"""Figures of others, for the variants of this benchmark: events per second."""

SECTIONS = {
    "keyed-state": Section(
        "State per key",
        "A count and a total per key, exactly-once, with a checkpoint after every million events, compared with other systems "
        "on the same events. The systems compute one epoch each in turn; all counts are checked before a result is accepted. "
        "`growth` compares few keys with many: the same jobs in turn, without the other systems.",
        {
            "fused": "a `KeyedOperator`, event by event, in one chain with its source: the log is partitioned by the key",
            "shuffled": "the same after an exchange: the log is not partitioned by the key",
            "vectorised": "the same as `fused`, by `apply_batch`",
            "tws": "`transformWithStateInPandas` in plain PySpark, RocksDB with changelog",
            "native": "Spark's own streaming aggregation in plain PySpark; its output is one row per key, not one per event",
            "bytewax": BYTEWAX_PEER,
        },
    ),
    "windows": Section(
        "Windows",
        "A count and a sum per key and window, exactly-once, with a checkpoint after every million events, compared with the same "
        "query in other systems on the same events: windows of 10 s; the same every 5 s; sessions with a gap of 30 s. The systems "
        "compute one epoch each in turn; all results are checked before a speed is accepted. The ratio of a kind of window is the "
        "smaller one of `fused` and `shuffled`.",
        {
            "fused": "Streamwork in one chain with its source: the log is partitioned by the key",
            "shuffled": "the same after an exchange: the log is not partitioned by the key",
            "spark": SPARK_PEER,
            "bytewax": BYTEWAX_PEER,
        },
    ),
    "joins": Section(
        "Joins",
        "Clicks and purchases of the same user within 30 s, exactly-once, compared with the same query in other systems on the "
        "same events. The systems compute one epoch each in turn; all pairs are checked before a speed is accepted. The ratio is "
        "the smaller one of `fused` and `shuffled`.",
        {
            "fused": "Streamwork in one chain with both sources: their logs are partitioned by the key",
            "shuffled": "the same after an exchange: the logs are not partitioned by the key",
            "spark": SPARK_PEER,
            "bytewax": f"{BYTEWAX_PEER}; it has no such join, so the join is written in Python",
        },
    ),
    "semantics": Section(
        "Semantics",
        "A count per card, upserted into SQLite and into PostgreSQL, under each of the [semantics](../semantics.md). Each "
        "computes several checkpoints in turn; every table is checked, card by card, before a result is accepted.",
    ),
    "ysb-baseline": Section(
        "Yahoo streaming benchmark: the baseline",
        "How it was before: the same events from the same topic, without state in the engine and without fault tolerance. "
        "Campaigns are looked up in Redis, and cached; counts are added in Redis every second. In turn with the variant `state`.",
        {"baseline": "state in Redis, at-most-once", "state": "state in the engine, exactly-once"},
    ),
    "ysb-state": Section(
        "Yahoo streaming benchmark: from Kafka, with the state in the engine",
        "Ad events as seven-field JSON in a topic of two partitions: views are kept, joined with their campaigns, and counted per "
        "campaign and window of 10 s. Exactly-once, with a checkpoint every second, into Kafka: the counts of open windows each "
        "second, and those of closed windows. The systems read the same topic in turn, with two cores, which the broker shares. "
        "The speed of a system is that between the moments at which a consumer of committed records can read the right counts of a "
        "quarter of the windows, and of all. The mode with the higher speed counts.",
        {
            **MODES,
            "spark": "plain Structured Streaming in PySpark, written by hand; into Kafka it is at-least-once",
            "flink": "Flink SQL, exactly-once, closed windows only; without the join, which needs state for the stream there",
            "pathway": "Pathway, at-least-once, nothing is durable; without the join",
            "bytewax": "Bytewax, two workers, without recovery: nothing is durable; without the join; one run",
            "quix": "Quix Streams, exactly-once, one process; without the join; one run",
        },
    ),
    "ysb-inside": Section(
        "Yahoo streaming benchmark: the generator inside the job",
        "Ad events: views are kept, joined with their campaigns by a static table of 1,000 ads, and counted per campaign and "
        "window of 10 s; exactly-once, with a checkpoint every second, into SQLite. The generator is a source of the job. Events "
        "are typed columns with all seven fields, not text; `json` is the same with seven-field JSON. All "
        "counts are compared with a recomputation before a speed is accepted.",
        MODES,
    ),
    "ysb-log": Section(
        "Yahoo streaming benchmark: from the embedded log",
        "The same query on the same events, which are in an embedded log on the same machine, as typed columns with seven "
        "fields. The job reads three of them.",
        MODES,
    ),
    "ysb-rates": Section(
        "Yahoo streaming benchmark: latency against throughput",
        "From Kafka into Kafka, with windows of 1 s and a checkpoint every second: from when the last event of a window is due to "
        "when a consumer of committed records can read its right count. Events are sent at a fixed rate (open loop), from 10,000 a "
        "second up, until a system falls behind.",
        LATENCY_SYSTEMS,
    ),
    "ysb-batches": Section(
        "Yahoo streaming benchmark: size of a batch against latency",
        "The same at 50,000 events a second, with rising checkpoint intervals: what comes in one of them is a batch.",
        LATENCY_SYSTEMS,
    ),
    "ysb-generator": Section(
        "Yahoo streaming benchmark: the generator",
        "How many events a second two processes make, as seven-field JSON, and the broker acknowledges. Nothing reads them. "
        "Topics are filled before other variants read them, so this is no limit of theirs.",
    ),
    "ysb-million": Section(
        "Yahoo streaming benchmark: a million campaigns",
        "Each event names its campaign; the views of a million campaigns are counted in windows of 60 minutes. The results are "
        "written to Redis at each checkpoint, or read from the job's state directly. Both sides serve 500 reads a second, of "
        "random campaigns, that are to be at most 2 s old. All counts are compared with a recomputation.",
        {
            "direct": "the state answers: a query of the job's files, without an output database",
            "redis": "`RedisSink`: one hash per campaign, exactly-once",
        },
    ),
    "query": Section(
        "Queryable state",
        "The state of a job with a million keys, asked over HTTP: one key per request, many keys per request with the Python "
        "client, and 200 gets per second while the job counts at full speed in local mode. Latency counts from the time at which a "
        "get was due. The slowdown compares stretches with the server and stretches in which it is stopped. Redis: the same keys "
        "by MGET with hiredis, decoded to equal records. Every answer is compared with a recomputation before a speed is accepted.",
    ),
    "state-size": Section(
        "Size of the state",
        "The duration of an epoch with the same number of changed keys, in a small state and in a large one, in turn, "
        "including snapshots.",
        {
            "small": "as many keys as an epoch changes",
            "large": "many times more keys; an epoch changes as many as in the small state",
        },
    ),
    "recovery": Section(
        "Recovery",
        "The time from kill -9, at the most expensive point, to the first new epoch that is committed to every sink and whose "
        "results were checked.",
        {
            "short": "after few checkpoints and starts",
            "long": "after many",
            "many": "with a state of a million keys",
            "plain": "Spark without Streamwork: its start and its first job",
        },
    ),
    "savepoint": Section(
        "Savepoints",
        "A count per key with a state of a million keys, on Spark, exactly-once, and savepoints of it: what one costs the job that "
        "goes on, how long it takes to create one, to start from it in another root, and to divide the state among more "
        "instances. The state of every savepoint, start and rescaling is checked, key by key, before a time is accepted.",
        {
            "without": "an epoch without a savepoint",
            "with": "the epoch that begins with the request, and during which the savepoint is written",
            "while_writing": "epochs after that one, until the savepoint is complete",
            "restore": "every file is compared with its hash and copied, the ledgers are checked, the fence is taken",
            "driver": "the start of a driver in the new root",
            "first_epoch": "10,000 events; the state is read",
        },
    ),
    "backpressure": Section(
        "Backpressure",
        "A log of two partitions is read by two tasks in live mode; all events go to one instance with the sink, which can take "
        "them. For a minute the sink takes ten times as long for each event. Under [`sources`](../backpressure.md) the sources "
        "stop (at-least-once); under `drop` new events are dropped meanwhile (at-most-once). Every event is in the output once, "
        "or counted as dropped, before a result is accepted. Memory is that of the tasks, without the JVM.",
        {
            "sources": "pausing and resuming: nothing is lost, and events are late until the backlog is done",
            "drop": "nothing stops: events are lost, and those that are not are late by a full channel at most",
        },
    ),
    "live": Section(
        "Live",
        "The [fraud detection example](../../examples/fraud_detection/README.md), at-most-once, parallelism 1, with a checkpoint "
        "every second: the time from when a transaction is due to when its decision can be read. A sender in a process of its own "
        "sends at a fixed rate (open loop). All transactions must be decided, and the planted fraud found, before a latency is "
        "accepted. In the rows with a kill, decisions may be missing, and each transaction must be answered.",
        {
            "direct": "by direct calls",
            "http": "by HTTP: until the answer",
            "killed": "by direct calls; the named process is killed with -9 in the middle",
            "rates": "rising rates; those of `live` end when p99 is above 20 ms or a decision is missing",
        },
    ),
    "recovery-standby": Section(
        "Takeover by a standby",
        "The gap in the output of a job whose driver is killed with -9: from the last output before the kill to the first new "
        "output after it, while events are appended steadily. At the end all counts are checked.",
        {
            "known": "a standby on the machine of the driver, which finds that its process is gone",
            "unknown": "a standby that knows nothing about the driver's process: the lease must pass",
            "cold": "no standby: an ordinary start, begun at the moment of the kill",
        },
    ),
    "kafka": Section(
        "The Kafka connectors",
        "`KafkaSource` and `KafkaSink` in one process, compared with the same work by hand with confluent-kafka, from and to the "
        "same broker on the same machine: five-field JSON is read as events; rows are written in one transaction; and a "
        "transaction without rows is committed. Everything that was read and written is counted and summed before a speed is "
        "accepted. CPU seconds are those of the client.",
        {
            "json": "the source: JSON to events",
            "raw_columns": "the source: the values as they are, in an Arrow column, for operators that take columns",
            "kafka_sink": "the sink: rows, keys, and the ledger record",
            "by_hand": "confluent-kafka: `consume` and a msgspec decoder per event; a msgspec encoder and `produce` per row",
        },
    ),
    "console": Section(
        "The console",
        "A root with 100 jobs, each running, with a history of 10,000 epochs: from a request for JSON to the whole answer, "
        "over HTTP. Every answer is compared with what was written before a time is accepted.",
        {
            "first_s": "the overview, from a console that has just been started and has read nothing",
            "repeated_s": "the overview again",
            "job_s": "one job with its graph",
            "epochs_s": "a page of a hundred epochs",
            "epoch_s": "one epoch with its files",
        },
    ),
    "engine": Section(
        "The engine alone",
        "A chain with a typed keyed operator on one core, compared with a hand-written loop that produces the same rows and "
        "the same records.",
    ),
    "log": Section(
        "The log",
        "The embedded log: throughput of append and read, and the latency until another process has read an event. Latency is "
        "measured from the time at which an event was due.",
    ),
}

COMMANDS = {
    "recovery-standby": "recovery --standby",
    "kafka": "kafka --kafka {kafka}",
    "query": "query --redis {redis}",
    "ysb-baseline": "ysb --variant baseline --kafka {kafka} --redis {redis}",
    "ysb-state": "ysb --variant state --kafka {kafka}",
    "ysb-rates": "ysb --variant rates --kafka {kafka}",
    "ysb-batches": "ysb --variant batches --kafka {kafka}",
    "ysb-generator": "ysb --variant generator --kafka {kafka}",
    "ysb-inside": "ysb --variant inside",
    "ysb-log": "ysb --variant log",
    "ysb-million": "ysb --variant million --redis {redis}",
}
"""Benchmarks that are an option of another one."""


@click.command("page")
@click.option(
    "--docs",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("docs"),
    show_default=True,
    help=f"The folder with {RESULTS.as_posix()}/NAME.json.",
)
@JSON
def page_command(docs: Path, as_json: bool) -> None:
    """Write the page about the benchmarks, with its plots, from saved results."""
    if not (docs / RESULTS).is_dir():
        raise WrongUse(
            "SW-USAGE",
            f"the folder {docs / RESULTS} does not exist",
            "pass the folder of the documentation with --docs",
        )
    written, results = write(docs), load(docs / RESULTS)
    judged = [_judged(target, results) for target in TARGETS]
    if as_json:
        print_json({"written": [path.as_posix() for path in written], "targets": judged})
        return
    for path in written:
        say(f"wrote {path}")
    for one in judged:
        say(f"{one['bench']}: {one['target']}, {one['wanted']}: {one['measured']}, {one['verdict']}")


def write(docs: Path) -> list[Path]:
    """Write the files that have changed. Returns all pages and plots."""
    pages = make(docs)
    for name in SECTIONS:
        if (old := Path("benchmarks", f"{name}.svg")) not in pages:
            (docs / old).unlink(missing_ok=True)  # its result is gone
    for path, text in pages.items():
        (docs / path).write_text(text)
    return [docs / path for path in pages]


def make(docs: Path) -> dict[Path, str]:
    """The content of all pages and plots, by path below DOCS."""
    results = load(docs / RESULTS)
    pages = {PAGE: page(results)}
    for name, result in results.items():
        if (drawn := plot(name, result.numbers)) is not None:
            pages[Path("benchmarks", f"{name}.svg")] = svg(drawn, f"{name}, {drawn.unit}")
    if (docs / SEMANTICS).exists():
        pages[SEMANTICS] = with_numbers((docs / SEMANTICS).read_text(), results.get("semantics"))
    return pages


# ---- the page about the benchmarks --------------------------------------------------------------------------------------


def page(results: dict[str, Result]) -> str:
    return "\n\n".join(_paragraphs(results)) + "\n"


def _paragraphs(results: dict[str, Result]) -> Iterator[str]:
    yield "# Benchmarks"
    yield (
        "<!-- Generated by `streamwork bench page` from results/*.json: run it again instead of editing this page. -->\n"
        "The systems take turns in one run, with the same events, so that a disturbance affects all of them. Outputs are checked\n"
        "before a result is accepted. A figure is the median of the repeats, with minimum and maximum in brackets. A ratio\n"
        "compares two successive measurements. Machines differ: ratios are more meaningful than speeds."
    )
    yield (
        "To measure again, run a benchmark with `--save`, then generate this page:\n\n"
        f"```sh\nstreamwork bench keyed-state {SAVE_HERE}\nstreamwork bench page\n```"
    )
    yield from _summary(results)
    for name in [*SECTIONS, *(name for name in results if name not in SECTIONS)]:
        yield from _section(name, results.get(name))
    if not PLANNED:
        return
    yield "## Not built yet"
    yield "These benchmarks have targets, but no code yet."
    yield grid(["benchmark", "target"], [[f"`{one.bench}`", one.what] for one in PLANNED]).replace("---:", "---")


def _summary(results: dict[str, Result]) -> Iterator[str]:
    yield "## Targets"
    verdicts = [target.verdict(_numbers(target, results)) for target in TARGETS]
    counted = {
        "met": sum(one.met for one in verdicts),
        "missed": verdicts.count(Verdict.MISSED),
        "not measured": verdicts.count(Verdict.UNMEASURED),
    }
    counts = ", ".join(f"{count} {'is' if count == 1 else 'are'} {what}" for what, count in counted.items())
    yield f"Of {len(TARGETS)} targets {counts}."
    yield _targets(TARGETS, results, named=True)


def _section(name: str, result: Result | None) -> Iterator[str]:
    known = SECTIONS.get(name, Section(name, ""))
    yield f"## {known.title}"
    if known.about:
        yield textwrap.fill(known.about, PAGE_WIDTH)
    if known.names:
        yield "\n".join(f"- `{one}`: {meaning}" for one, meaning in known.names.items())
    for variant, what, speed, where in PUBLISHED:
        if name == f"ysb-{variant}":
            yield f"Published by others, on other hardware ({where}), for the same variant, {what}: {speed} events/s."
    targets = [target for target in TARGETS if target.bench == name]
    if result is None:
        yield f"No result yet. Run `{_command(name, f'streamwork bench {name}')} {SAVE_HERE}`."
        return
    yield f"Measured on {result.date}: {result.machine}." + (f" {result.note}" if result.note else "")
    yield f"```sh\n{_command(name, result.command)} {SAVE_HERE}\n```"
    if targets:
        yield _targets(targets, {name: result}, named=False)
        missed = [target for target in targets if target.verdict(result.numbers) is Verdict.MISSED]
        if missed:
            yield "\n".join(
                f"**Missed:** {target.what} is {target.measured(result.numbers).text}; the target is {target.wanted}."
                for target in missed
            )
    if (drawn := plot(name, result.numbers)) is not None:
        yield f"![{drawn.unit}]({name}.svg)"
    yield from markdown(tables(result.numbers))


def _command(name: str, otherwise: str) -> str:
    """The whole command of a benchmark; servers that it needs are started for it."""
    command = f"streamwork bench {COMMANDS[name]}" if name in COMMANDS else otherwise
    return f"python tests/real_servers.py {command}" if "{" in command else command


def _targets(targets: tuple[Target, ...] | list[Target], results: dict[str, Result], named: bool) -> str:
    rows = []
    for target in targets:
        one = _judged(target, results)
        rows.append(
            [*([f"`{target.bench}`"] if named else []), target.what, one["wanted"], one["measured"], one["verdict"]]
        )
    head = [*(["benchmark"] if named else []), "figure", "target", "measured", ""]
    return grid(head, rows).replace("---:", "---")


def _judged(target: Target, results: dict[str, Result]) -> dict[str, str]:
    numbers = _numbers(target, results)
    found, verdict = target.measured(numbers), target.verdict(numbers)
    return {
        "bench": target.bench,
        "target": target.what,
        "wanted": target.wanted,
        "measured": found.whole,
        "verdict": verdict.value if target.bench in results else "not measured: no result",
    }


def _numbers(target: Target, results: dict[str, Result]) -> dict[str, Any]:
    return results[target.bench].numbers if target.bench in results else {}


# ---- the numbers in the page about semantics ----------------------------------------------------------------------------

WORDS = {
    "at_most_once": "at-most-once",
    "at_least_once": "at-least-once, checkpoints",
    "acknowledging": "at-least-once, acknowledging",
    "exactly_once": "exactly-once",
}
DATABASES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}


def with_numbers(text: str, result: Result | None) -> str:
    """The page with a new part between its markers."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise WrongUse(
            "SW-USAGE", f"{SEMANTICS} has lost its markers", f"put `{BEGIN}` and `{END}` where the numbers go"
        )
    return "\n".join([f"{before}{BEGIN}\n", *_semantics(result), f"\n{END}{after}"])


def _semantics(result: Result | None) -> Iterator[str]:
    if result is None:
        yield f"No result yet. Run `streamwork bench semantics {SAVE_HERE}` and `streamwork bench page`."
        return
    yield f"Measured on {result.date}: {result.machine}." + (f" {result.note}" if result.note else "")
    yield "CPU is in seconds per million events; the ratio is to at-most-once, in the same run. Medians, with minimum and maximum."
    yield ""
    head = ["", *(f"{title}: {one}" for title in DATABASES.values() for one in ("events/s", "CPU", "ratio"))]
    figures = ("events_per_s", "cpu_s_per_million", "ratio_vs_at_most_once")
    rows = []
    for name, title in WORDS.items():
        cells = [row(result.numbers.get(database, {}).get(name)) or {} for database in DATABASES]
        rows.append([title, *(found.get(one, Figure(None)).whole for found in cells for one in figures)])
    yield grid(head, rows)
