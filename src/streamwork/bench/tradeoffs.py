"""The tables of trade-offs in the documentation: figures of saved results, and words for what no benchmark measures.

All words of the tables are in this file, each row with the reason for them. A figure without a result is *not measured*.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from streamwork.bench.results import Result
from streamwork.bench.tables import Figure, figure, number, row

Results = Mapping[str, Result]
NOT_MEASURED = "not measured"


class Words(NamedTuple):
    """A row of a table: a text for each column, and why it is so."""

    cells: tuple[str, ...]
    why: str


# ---- semantics ----------------------------------------------------------------------------------------------------------

SEMANTICS = {
    "at_most_once": "at-most-once",
    "at_least_once": "at-least-once, checkpoints",
    "acknowledging": "at-least-once, acknowledging",
    "exactly_once": "exactly-once",
}
TARGETS = {"sqlite": "SQLite", "postgres": "PostgreSQL", "appends": "SQLite, no upserts"}

SEMANTICS_WORDS = {
    "accuracy": Words(
        (
            "events may be missing, none counts twice",
            "none is missing, rows since the last checkpoint may be repeated",
            "none is missing, rows may be repeated, and come in another order",
            "every event counts once, in the state and in the sinks",
        ),
        "what a reader of the sink may find after a failure; the [fault matrix](faults.md) checks it at every step",
    ),
    "complexity": Words(
        (
            "least: nothing is tracked or replayed",
            "the author makes repeated rows harmless",
            "the same, in any order; and handles dead letters",
            "none for the author; the sink keeps a ledger",
        ),
        "what the author must think of, beyond the operator itself",
    ),
    "maintenance": Words(
        (
            "watch the number of dropped events",
            "expect repeated rows after each failure",
            "watch dead letters, and replay them",
            "keep the root and the ledgers of the sinks together",
        ),
        "what the operator of the job does, beyond watching that it keeps up",
    ),
    "dependencies": Words(
        (
            "any source, any sink",
            "sources with repeatable reads; any sink",
            "any source but those that Spark reads; any sink",
            "sources with repeatable reads; sinks with a ledger",
        ),
        "other combinations are refused with `SW-JOB-SEMANTICS`",
    ),
}


def of_semantics(results: Results) -> Iterator[str]:
    """The measured speeds, and the table of trade-offs."""
    found = results.get("semantics")
    if found is None:
        yield "No result yet. Run `streamwork bench semantics --save docs/benchmarks/results` and `streamwork bench page`."
    else:
        yield _measured(found)
        yield (
            "CPU is in seconds per million events; the ratio is to at-most-once, in the same run. Medians, with minimum and "
            "maximum."
        )
        yield ""
        yield from _speeds(found.numbers)
    yield ""
    yield "**The trade-offs**"
    yield ""
    errors = {} if found is None else found.numbers.get("errors", {})
    yield from table(
        [*SEMANTICS.values()],
        {
            "accuracy": SEMANTICS_WORDS["accuracy"].cells,
            "the same, measured: after a kill -9": tuple(_lost(errors.get(name)) for name in SEMANTICS),
            "latency on error: one event fails": tuple(_failing(errors.get(name)) for name in SEMANTICS),
            "latency on error: kill -9": tuple(_killed(errors.get(name)) for name in SEMANTICS),
            **{what: SEMANTICS_WORDS[what].cells for what in ("complexity", "maintenance", "dependencies")},
            "throughput, against at-most-once": tuple(
                _ratios({} if found is None else found.numbers, name) for name in SEMANTICS
            ),
        },
    )
    yield ""
    yield from _reasons(SEMANTICS_WORDS)
    if errors and found is not None:
        load = found.numbers["settings"]["errors"]
        yield (
            f"- latency on error: {number(load['rate'])} events/s with a checkpoint each second, in mode {load['mode']}; the "
            "highest time from when an event is due until its row is visible. A kill -9 is answered by a start at once; the gap "
            "has the start of Spark in it"
        )


def _speeds(numbers: Mapping[str, Any]) -> Iterator[str]:
    figures = {"events/s": "events_per_s", "CPU": "cpu_s_per_million", "ratio": "ratio_vs_at_most_once"}
    targets = [name for name in TARGETS if name in numbers]
    rows: dict[str, tuple[str, ...]] = {}
    for name, title in SEMANTICS.items():
        cells = [row(numbers[target].get(name, {})) or {} for target in targets]
        rows[title] = tuple(found.get(one, Figure(None)).whole for found in cells for one in figures.values())
    yield from table([f"{TARGETS[target]}: {one}" for target in targets for one in figures], rows, "---:")


def _lost(errors: Mapping[str, Any] | None) -> str:
    if errors is None:
        return NOT_MEASURED
    return f"{number(errors['missing'])} events missing, {number(errors['repeated'])} rows repeated"


def _failing(errors: Mapping[str, Any] | None) -> str:
    if errors is None:
        return NOT_MEASURED
    own = errors["event_ms"]
    its = "it is dropped" if own is None else f"its row comes after {_ms(own)}"
    return f"{its}; other rows: up to {_ms(errors['others_ms'])}, {_ms(errors['normal_ms'])} before"


def _killed(errors: Mapping[str, Any] | None) -> str:
    return NOT_MEASURED if errors is None else f"{number(errors['gap_s'])} s until the next row"


def _ratios(numbers: Mapping[str, Any], name: str) -> str:
    found = {
        title: figure(numbers[target][name].get("ratio_vs_at_most_once"))
        for target, title in TARGETS.items()
        if name in numbers.get(target, {})
    }
    return "; ".join(f"{title} {one.text}" for title, one in found.items() if one is not None) or NOT_MEASURED


def _ms(value: float) -> str:
    return f"{number(round(value))} ms" if value < 10_000 else f"{number(round(value / 1000, 1))} s"


# ---- stateful or stateless ----------------------------------------------------------------------------------------------

STATE = ("stateful", "stateless", "stateless, state by hand in a database")
STATE_WORDS = {
    "accuracy": Words(
        (
            "counts, sums and windows are exact, also after a restart",
            "exact only if events are independent: an alert above 90 degrees, but not a running average",
            "the state is exact; outputs around a crash are repeated or missing",
        ),
        "what an answer that needs earlier events is worth after a restart",
    ),
    "complexity": Words(
        (
            "a `Record`, and `state` in `apply`",
            "`apply`",
            "positions, fences and going back, which [`streamwork.manual`](manual-state.md) does",
        ),
        "what the author writes and must think of",
    ),
    "maintenance": Words(
        (
            "old checkpoints must fit a changed job; files to keep and to monitor",
            "change it and start it",
            "the tables of the database must fit a changed job; the parallelism is fixed",
        ),
        "what a new version and a restart ask of the operator",
    ),
    "dependencies": Words(
        (
            "a folder that outlives the machine, `--root`",
            "none",
            "a database; the root may be lost",
        ),
        "what must be there for a restart to go on where the job was",
    ),
}


def of_state(results: Results) -> Iterator[str]:
    """The table of stateful against stateless."""
    yield from table(
        [*STATE],
        {
            "accuracy": STATE_WORDS["accuracy"].cells,
            "latency on error: a restart": (
                f"to restore a state of 1,000,000 keys: {_one(results, 'recovery', 'restore_1m_keys_s', unit=' s')}",
                "nothing to restore",
                "all records are read from the database",
            ),
            "the same: events computed again after a kill -9": (
                _of(results, "manual", "exactly_once", "computed_again"),
                "those since the last position of the source",
                _of(results, "manual", "by_hand", "computed_again"),
            ),
            **{what: STATE_WORDS[what].cells for what in ("complexity", "maintenance", "dependencies")},
            "throughput": (
                _of(results, "manual", "exactly_once", "events_per_s", unit=" events/s"),
                "as fast as the operator",
                _of(results, "manual", "by_hand", "events_per_s", unit=" events/s"),
            ),
            "the same, in a state of 5,000,000 keys": (
                f"time of an epoch against a state of 10,000 keys: {_one(results, 'state-size', 'ratio')}",
                "no state",
                "all records of an instance are in its memory",
            ),
        },
    )
    yield ""
    yield from _reasons(STATE_WORDS)
    yield "- the figures are those of [benchmarks](benchmarks/README.md): `manual`, `recovery`, `state-size`"


# ---- lambda, or one exactly-once job ------------------------------------------------------------------------------------

LAMBDA = ("lambda", "one exactly-once job")
LAMBDA_WORDS = {
    "accuracy": Words(
        ("exact up to the seam, mostly accurate behind it", "exact"),
        "what an answer is worth while the jobs run",
    ),
    "complexity": Words(
        ("one definition, two jobs, one view", "one job"),
        "what the author and the reader of answers must think of",
    ),
    "maintenance": Words(
        ("batch runs are to be started, and to be watched", "none beyond the job"),
        "what the operator does",
    ),
    "dependencies": Words(
        ("all input, from its beginning, for each batch run", "the input since the last checkpoint"),
        "what must be kept",
    ),
}


def of_lambda(results: Results) -> Iterator[str]:
    """A lambda beside one exactly-once job."""
    found = results.get("lambda")
    numbers = {} if found is None else found.numbers
    if found is None:
        yield "No result yet. Run `streamwork bench lambda --save docs/benchmarks/results` and `streamwork bench page`."
    else:
        yield _measured(found)
    yield ""
    ways, wrong, gets = (numbers.get(name, {}) for name in ("ways", "wrong", "get_ms"))
    yield from table(
        [*LAMBDA],
        {
            "accuracy": LAMBDA_WORDS["accuracy"].cells,
            "events missing after a kill -9": (
                _text(wrong, "lambda_after_kill", ", until the next batch run"),
                _text(wrong, "exactly_once_after_kill"),
            ),
            **{what: LAMBDA_WORDS[what].cells for what in ("complexity", "maintenance", "dependencies")},
            "CPU seconds for the same input": (
                " + ".join(_text(ways.get(way, {}), "cpu_s", f" ({what})") for way, what in LAMBDA_PARTS.items()),
                _text(ways.get("exactly_once", {}), "cpu_s"),
            ),
            "the last round of input, in seconds": (
                " + ".join(
                    _text(ways.get(way, {}), "seconds_last", f" ({what})") for way, what in LAMBDA_PARTS.items()
                ),
                _text(ways.get("exactly_once", {}), "seconds_last"),
            ),
            "an answer for one key, in ms": (_text(gets, "merged"), _text(gets, "exactly_once")),
        },
    )
    yield ""
    yield from _reasons(LAMBDA_WORDS)
    if found is not None:
        sizes = numbers["settings"]
        yield (
            f"- figures: {number(sizes['rounds'])} rounds of {number(sizes['events'])} events and a batch run after each, "
            "on the local host"
        )


LAMBDA_PARTS = {"stream": "streaming job", "batch": "batch runs"}


def _text(numbers: Mapping[str, Any], name: str, behind: str = "") -> str:
    return f"{number(numbers[name])}{behind}" if name in numbers else NOT_MEASURED


def _one(results: Results, bench: str, name: str, unit: str = "") -> str:
    """A figure at the top of a result."""
    numbers = results[bench].numbers if bench in results else {}
    found = figure(numbers.get("spread", {}).get(name, numbers.get(name)))
    return f"{found.whole}{unit}" if found is not None and found.value is not None else NOT_MEASURED


def _of(results: Results, bench: str, side: str, name: str, unit: str = "") -> str:
    """A figure of one of several contestants."""
    cells = row(results[bench].numbers.get(side, {})) if bench in results else None
    found = (cells or {}).get(name)
    return f"{found.whole}{unit}" if found is not None and found.value is not None else NOT_MEASURED


# ---- text ---------------------------------------------------------------------------------------------------------------


def _measured(result: Result) -> str:
    return f"Measured on {result.date}: {result.machine}." + (f" {result.note}" if result.note else "")


def _reasons(words: Mapping[str, Words]) -> Iterator[str]:
    for what, one in words.items():
        yield f"- {what}: {one.why}"


def table(columns: list[str], rows: Mapping[str, tuple[str, ...]], side: str = "---") -> Iterator[str]:
    """A table in Markdown."""
    yield "| | " + " | ".join(columns) + " |"
    yield "|---|" + "|".join([side] * len(columns)) + "|"
    for what, cells in rows.items():
        yield f"| {what} | " + " | ".join(cells) + " |"
