"""The matrix as Markdown, made from the cells that the tests hold: `make faults` writes docs/faults.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from matrix import rows as table_rows
from matrix.findings import FINDING_CONTROLS, FINDINGS
from matrix.on_spark import cells
from matrix.points import (
    AT_ONCE_POINTS,
    BEHIND,
    DAMAGES,
    OTHERS,
    POINTS,
    RECOVERY,
    Outcome,
    Point,
)
from matrix.targets import AT_ONCE, LOCAL, PREVIEWED, SINKS

HEAD = """# Faults

After a crash at any of these points, the next start restores the guarantees of the job's semantics. This page is generated from the
cells of the fault matrix (`make faults`). A test runs each cell, and compares the results with a batch program over the input:

- **exactly-once**: every row is there once, the state and the sums per key are right, readers never saw an uncommitted epoch,
  and each sink's ledger names the newest checkpoint;
- **at-least-once**: every event is there; repeated events were in an epoch that was open at the crash, or had failed;
- **at-most-once**: no event is there twice; missing events were in an epoch that was open at the crash, or were counted as
  dropped;
- always: per component and checkpoint, processed = delivered + ended early + dropped + dead letters + failed (to be replayed),
  and a start that could give wrong results is refused, without any change.

*local*: every cell, on the local host, which has the same protocol code. `make test` runs some of them, chosen so that all pairs
of point, sink and guarantee are covered, and `make test-all` the others. *Spark*: also on a real Spark, in `make test-all`, chosen
in the same way; in `make soak` all of them. *soak*: random kills of drivers, Python workers, PostgreSQL and Redis, under all
semantics in turn.
"""
FREE = (Outcome.GOES_ON, Outcome.ROLLS_FORWARD)
ON_SPARK = {
    "after plan": "after plan",
    "mid compute: the operator dies": "a worker killed in mid compute",
    "after all reports": "after all reports",
    "after prepared, before the first sink": "after prepared",
    "after prepared, before completed": "after prepared",
    "between two sinks": "before completed, or after it",
    "after a write": "a worker killed after its write",
    "after completed": "before completed, or after it",
}
"""Where a point of the local host is met on Spark, under which name."""
SUDDEN = ("before", "after", "mid", "between")


def where(name: str) -> str:
    told = ["local"]
    if ON_SPARK.get(name) in {cell.point for cell in cells(False)}:
        told.append("Spark")
    if name.startswith(SUDDEN) and "full" not in name:
        told.append("soak")
    return ", ".join(told)


def tabled(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [
        "| " + " | ".join(heads) + " |",
        "|---" * len(heads) + "|",
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
    ]


def _sinks(point: Point, sinks: dict[str, tuple[str, ...]]) -> str:
    tried = [name for name, some in sinks.items() if point.only(some)]
    return "all" if len(tried) == len(sinks) else "; ".join(tried)


def exactly_once() -> list[str]:
    rows = [(p.name, p.outcome.value, _sinks(p, SINKS), _sinks(p, PREVIEWED) or "-", where(p.name)) for p in POINTS]
    rows += [(f"recovery: {name}", "runs recovery again", "all", "-", "local, soak") for name, *_ in RECOVERY]
    files = "; ".join(LOCAL)
    rows += [(name, o.value, "all", "-", "local") for name, _, o in (*DAMAGES, *BEHIND)]
    rows += [
        (name, o.value, "SQLite + log" if name.startswith("a state") else files, "-", "local") for name, o in OTHERS
    ]
    rows += [row[:-2] for row in table_rows.EXACTLY]
    return tabled(("point", "the next start", "sinks", "read-uncommitted", "covered"), rows)


def at_once() -> list[str]:
    def costs(point: Point, semantics: str) -> str:
        if point.semantics and semantics not in point.semantics:
            return ""
        if point.outcome in FREE:
            return "nothing"
        return "at most the open epoch" if semantics == "at-most-once" else "nothing; the open epoch may be repeated"

    rows = [
        (p.name, costs(p, "at-most-once"), costs(p, "at-least-once"), _sinks(p, AT_ONCE), where(p.name))
        for p in AT_ONCE_POINTS
    ]
    rows += [row[:-2] for row in table_rows.AT_ONCE]
    return tabled(("point", "at-most-once loses", "at-least-once (both trackings) loses", "sinks", "covered"), rows)


def refused() -> list[str]:
    return tabled(("refused before anything is written", "why"), [row[:-2] for row in table_rows.REFUSED])


def on_spark() -> list[str]:
    return tabled(("on Spark", "sink", "promise"), [(c.point, c.sink, c.promise) for c in cells(False)])


CONTROLS = [*table_rows.CONTROLS, *FINDING_CONTROLS]
ROWS = [*table_rows.EXACTLY, *table_rows.AT_ONCE, *table_rows.REFUSED, *FINDINGS]
"""Every row that names its test. Points are not among them: all have the same checkers, whose controls are those of a promise."""


def findings() -> list[str]:
    return tabled(("event", "result", "covered"), [row[:-2] for row in FINDINGS])


def controls() -> list[str]:
    def named(guard: str) -> str:
        return "; ".join(dict.fromkeys(row[0] for row in ROWS if row.control == guard)) or "points"

    return tabled(
        ("guarantee", "the safeguard without which the same check fails", "rows"),
        [(control.promise, control.guard, named(control.guard)) for control in CONTROLS],
    )


def without_control() -> list[str]:
    """Rows that a test holds whose checker was never seen to fail without a guard."""
    found = dict.fromkeys(row[0] for row in ROWS if row.held and not row.control)
    return tabled(("no negative control",), [(name,) for name in found])


def text() -> str:
    parts = [
        ("Exactly-once", exactly_once()),
        ("At-most-once and at-least-once: rows are written at once", at_once()),
        ("Values, inputs, targets, stops and security, under any semantics", findings()),
        ("What is refused", refused()),
        ("Negative controls", controls()),
        ("Rows without a negative control", without_control()),
        ("The cells on Spark", on_spark()),
    ]
    return HEAD + "".join(f"\n## {title}\n\n" + "\n".join(lines) for title, lines in parts)


if __name__ == "__main__":
    print(text(), end="")
