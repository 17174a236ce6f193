"""`compare`: runs two versions of a job over the same slice of input, and says what differs.

    1  restore  A, A again and B, each in a scratch folder: a version that does not fit is refused before anything runs. Then
                the polled sources of A are recorded
    2  A        over the slice: its plans and its ticks of the clock are noted
    3  A again  over the same plans. A key that differs is not deterministic: its differences say nothing about B
    4  B        over the same plans
    5  compare  the rows of every sink and the state of every component, A beside B

A key that differs in 3 is counted apart. Rows without a key have none to be recognised by: if A gives other rows the second time,
the columns that differ by themselves are left out, if that makes A's rows the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from streamwork.comparison.outputs import counted, output_diff, row_counts, row_diff
from streamwork.comparison.recording import Recording
from streamwork.comparison.report import Comparison, Difference, Part, Side
from streamwork.comparison.trial import Prepared, Trial, Version, positions
from streamwork.epoch.savepoints.origin import Origin
from streamwork.errors import StreamworkError
from streamwork.job.params import Value
from streamwork.statefiles.component_state import ComponentState
from streamwork.statefiles.diff import EXAMPLES, ComponentDiff, RowChange, RowDiff, Status, compared, rows_of
from streamwork.statefiles.diff import schema_changes as state_changes
from streamwork.wording import plural
from streamwork.world import Clock

Tell = Callable[[str, int], None]
"""Called with what is running, and its number of events so far."""
KEY, ROWS, INSTANCE = "key", "rows", "instance"
"""What the rows of a part are recognised by. Without a key, they are counted."""
RUNS = ("A", "A again", "B")


@dataclass(frozen=True)
class Asked:
    """What is compared."""

    a: Version
    b: Version
    origin: Origin
    root: Path
    events: int
    examples: int = EXAMPLES


@dataclass(frozen=True)
class Found:
    """The result, and every difference, read while the scratch folders are there."""

    comparison: Comparison
    differences: Callable[[], Iterator[Difference]]


def compare(asked: Asked, scratch: Path, clock: Clock, tell: Tell = lambda run, done: None) -> Found:
    """1 to 5."""
    versions = zip(RUNS, (asked.a, asked.a, asked.b), ("a", "again", "b"), strict=True)
    with _blaming("A", asked.a):
        recording = Recording(asked.a.job.graph(), asked.origin, scratch / "recorded", clock)
    prepared = {
        run: _prepared(run, version, asked, recording, scratch / folder, clock) for run, version, folder in versions
    }
    with _blaming("A", asked.a):
        left_out = recording.record(asked.events)
    first = _run(RUNS[0], prepared, asked, None, clock, tell)
    again = _run(RUNS[1], prepared, asked, first, clock, tell)
    other = _run(RUNS[2], prepared, asked, first, clock, tell)
    outputs = [_output(name, first, again, other) for name in _both(first.captures, other.captures)]
    a, twice, b = first.state, again.state, other.state
    states = [
        _state(name, *(ComponentState.of(p, name) if name in p.components else None for p in (a, twice, b)))
        for name in _both(a.components, b.components)
    ]
    start, end = positions(first)
    parts = {"output": outputs, "state": states}
    comparison = Comparison(
        job=asked.origin.identity.job,
        root=str(asked.root),
        origin=asked.origin.name,
        same=not any(pair.part(0).differs for pairs in parts.values() for pair in pairs),
        deterministic=all(pair.deterministic for pairs in parts.values() for pair in pairs),
        events=first.events,
        ended=first.ended,
        epochs=len(first.legs),
        start=start,
        end=end,
        a=_side(first),
        b=_side(other),
        outputs=tuple(pair.part(asked.examples) for pair in outputs),
        states=tuple(pair.part(asked.examples) for pair in states),
        remarks=(
            *_recorded(recording, left_out),
            *_remarks(first, other),
            *(line for pairs in parts.values() for one in pairs for line in one.remarks),
        ),
    )

    def differences() -> Iterator[Difference]:
        for kind, pairs in parts.items():
            for pair in pairs:
                yield from (Difference(kind, pair.component, change, good) for change, good in pair.changes())

    return Found(comparison, differences)


def _prepared(run: str, version: Version, asked: Asked, recording: Recording, folder: Path, clock: Clock) -> Prepared:
    with _blaming(run, version):
        return Prepared.of(version, asked.origin, recording, folder, clock)


def _run(
    run: str, prepared: Mapping[str, Prepared], asked: Asked, first: Trial | None, clock: Clock, tell: Tell
) -> Trial:
    plans = None if first is None else first.legs
    with _blaming(run, prepared[run].version):
        return prepared[run].run(asked.events, plans, clock, lambda done: tell(run, done))


@contextmanager
def _blaming(run: str, version: Version) -> Iterator[None]:
    """An error says whose it is."""
    try:
        yield
    except StreamworkError as error:
        raise error.with_cause(f"{run} ({version.file}): {error.cause}") from error


# ---- one sink, one component -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Pair:
    """The rows of A beside those of B, and beside those of A the second time."""

    component: str
    by: str
    rows_a: int
    rows_b: int
    ab: RowDiff | None  # None: only one of them has it, or the keys differ
    aa: RowDiff | None
    status: Status = Status.REKEYED  # where there are no rows to compare
    schema: tuple[str, ...] = ()
    random_columns: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def deterministic(self) -> bool:
        return not self.unsteady and not self.random_columns

    @property
    def unsteady(self) -> bool:
        """True if A gave something else the second time, in the columns that are compared."""
        return self.aa is not None and bool(self.aa.changed or self.aa.added.num_rows or self.aa.gone.num_rows)

    def changes(self) -> Iterator[tuple[RowChange, bool]]:
        """Every difference of A and B, and whether it is one of B: A itself did not differ there."""
        if self.ab is None:
            return
        random = self._random_keys()
        for change in self.ab.changes():
            yield change, not (self.unsteady and self.by == ROWS) and _text(change) not in random

    def part(self, examples: int) -> Part:
        if self.ab is None:
            gone, added = (self.rows_a, 0) if self.status is Status.GONE else (0, self.rows_b)
            if self.status is Status.REKEYED:
                gone, added = self.rows_a, self.rows_b
            found = ComponentDiff(
                self.component, self.status, self.rows_a, self.rows_b, added, gone, schema=self.schema
            )
            return Part(self.component, self.by, found, beyond_random=gone + added)
        found = compared(self.component, self.ab, examples, self.schema)
        if self.by == ROWS:
            found = _of_rows(found, self.ab)
        total = found.changed + found.gone + found.added
        if not self.unsteady:
            return Part(self.component, self.by, found, beyond_random=total, random_columns=self.random_columns)
        assert self.aa is not None
        random = self.aa.changed + self.aa.gone.num_rows + self.aa.added.num_rows
        beyond = 0 if self.by == ROWS else sum(good for _, good in self.changes())
        return Part(self.component, self.by, found, random, tuple(self.aa.changes(examples)), beyond)

    def _random_keys(self) -> set[bytes]:
        return set() if self.aa is None or not self.unsteady else {_text(change) for change in self.aa.changes()}


def _of_rows(found: ComponentDiff, multisets: RowDiff) -> ComponentDiff:
    """With the numbers of rows in place of those of distinct rows."""
    same, gone, added = row_counts(multisets)
    return msgspec.structs.replace(
        found, rows_before=same + gone, rows_after=same + added, changed=0, same=same, gone=gone, added=added, fields={}
    )


def _text(change: RowChange) -> bytes:
    return msgspec.json.encode(change.key, order="sorted")


def _output(name: str, first: Trial, again: Trial, other: Trial) -> _Pair:
    a, twice, b = first.captures.get(name), again.captures.get(name), other.captures.get(name)
    if a is None or twice is None or b is None:
        rows_a, rows_b = (0 if one is None else one.rows().num_rows for one in (a, b))
        there = a or b
        by = KEY if there is not None and there.key else ROWS
        return _Pair(name, by, rows_a, rows_b, None, None, Status.ADDED if a is None else Status.GONE)
    before, second, after = a.rows(), twice.rows(), b.rows()
    ab, schema = output_diff(before, after, a.key, b.key)
    pair = _Pair(
        name,
        KEY if a.key else ROWS,
        before.num_rows,
        after.num_rows,
        ab,
        row_diff(before, second, a.key),
        schema=schema,
    )
    if a.key or ab is None or not pair.unsteady:
        return pair
    random = [c for c in before.column_names if not counted(before.select([c])).equals(counted(second.select([c])))]
    left = [c for c in before.column_names if c not in random]
    aa = row_diff(before.select(left), second.select(left), ())
    if not left or aa.changed or aa.added.num_rows or aa.gone.num_rows:
        line = f"sink {name} has no key, and A itself writes other rows each time: its differences say nothing about B"
        return replace(pair, remarks=(line,))
    line = f"sink {name}: A itself writes other values of {', '.join(random)} each time; rows are compared without them"
    common = [c for c in left if c in after.column_names]
    ab, _ = output_diff(before.select(left), after.select(common), (), ())
    return replace(pair, ab=ab, aa=aa, random_columns=tuple(random), remarks=(line,))


def _state(name: str, a: ComponentState | None, twice: ComponentState | None, b: ComponentState | None) -> _Pair:
    if a is None or twice is None or b is None:
        rows_a, rows_b = (0 if one is None else len(one) for one in (a, b))
        return _Pair(name, KEY, rows_a, rows_b, None, None, Status.ADDED if a is None else Status.GONE)
    by = KEY if a.shape.key else INSTANCE
    return _Pair(name, by, len(a), len(b), rows_of(a, b), rows_of(a, twice), schema=state_changes(a, b))


# ---- around it ---------------------------------------------------------------------------------------------------------


def _both(a: Sequence[str] | Mapping[str, object], b: Sequence[str] | Mapping[str, object]) -> list[str]:
    return list(dict.fromkeys([*a, *b]))


def _side(trial: Trial) -> Side:
    params: dict[str, Value] = dict(trial.graph.params)
    return Side(
        label=trial.version.label,
        file=trial.version.file,
        params=params,
        fingerprint=trial.graph.fingerprint,
        events=trial.events,
        seconds=round(trial.seconds, 3),
        events_per_second=round(trial.events / max(trial.seconds, 1e-9)),
        counters={name: dict(counts) for name, counts in trial.counters.items()},
    )


def _recorded(recording: Recording, left_out: int) -> Iterator[str]:
    for name in recording.sources:
        yield f"source {name} has no offsets: it was polled once, for A, and both versions read what it gave"
    if left_out:
        yield f"{plural(left_out, 'thing')} that polled sources gave, and that are no events, were left out"


def _remarks(a: Trial, b: Trial) -> Iterator[str]:
    if a.ended:
        yield f"the input ended after {plural(a.events, 'event')}"
    mine, theirs = ({node.id for node in trial.graph.sources} for trial in (a, b))
    for name in sorted(mine - theirs):
        yield f"B does not read source {name}"
    for name in sorted(theirs - mine):
        yield f"source {name} of B is not read: A has none, so there is no plan of it"
    for node in a.graph.stateful:
        there = [one for one in b.graph.stateful if one.id == node.id]
        if there and node.key is None and there[0].parallelism != node.parallelism:
            yield f"{node.id} keeps state by instance, and has {node.parallelism} of them in A and {there[0].parallelism} in B"
    for name in _both(a.counters, b.counters):
        for kind in ("dropped", "dead_letters", "late"):
            counts = [trial.counters.get(name, {}).get(kind, 0) for trial in (a, b)]
            if any(counts):
                yield f"{name}: {kind.replace('_', ' ')}: {counts[0]:,} in A, {counts[1]:,} in B"
