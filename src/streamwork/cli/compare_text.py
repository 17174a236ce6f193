"""A comparison on a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from streamwork.cli.output import say
from streamwork.cli.state_text import Labels, show_changes, show_component, show_table
from streamwork.comparison.comparing import ROWS
from streamwork.comparison.outputs import COUNT
from streamwork.comparison.report import Comparison, Part, Side
from streamwork.statefiles.diff import Change, Status
from streamwork.statefiles.plain_values import text_of
from streamwork.wording import plural

SIDES = Labels("A", "B", {Change.CHANGED: "changed", Change.GONE: "only in A", Change.ADDED: "only in B"})
HEAD = ("", "", "by", "rows A", "rows B", "same", "changed", "only A", "only B", "random")


def show_comparison(found: Comparison) -> None:
    cut = plural(found.epochs, "slice")
    say(f"job {found.job}, from {found.origin}: {plural(found.events, 'event')} in {cut}")
    for name in sorted({*found.start, *found.end}):
        say(f"  {name}: {found.start[name]:,} -> {found.end[name]:,}")
    for side in (found.a, found.b):
        say(_side_line(side))
    for line in found.remarks:
        say(f"  {line}")
    show_table(HEAD, [*_rows("output", found.outputs), *_rows("state", found.states)])
    for kind, parts in (("output", found.outputs), ("state", found.states)):
        for part in parts:
            _show_part(kind, part)
    say(_verdict(found))
    if not found.same or not found.deterministic:
        say(f"all differences: {found.files[1]}")


def _side_line(side: Side) -> str:
    values = ", ".join(f"{name}={text_of(value)}" for name, value in side.params.items())
    took = f"{side.seconds:,.1f} s, {plural(side.events_per_second, 'event')}/s"
    return f"  {side.label}: {side.file}" + (f" with {values}" if values else "") + f" ({took})"


def _rows(kind: str, parts: Iterable[Part]) -> Iterable[list[object]]:
    for part in parts:
        diff = part.diff
        counts = [diff.rows_before, diff.rows_after, diff.same, diff.changed, diff.gone, diff.added]
        yield [kind, part.component, part.by, *counts, part.random]


def _show_part(kind: str, part: Part) -> None:
    diff = part.diff
    if diff.status is not Status.SAME:
        note = {
            Status.GONE: "only in A",
            Status.ADDED: "only in B",
            Status.REKEYED: "the keys differ: rows cannot be compared",
        }.get(diff.status, "")
        title = f"{kind} {part.component}" + (f": {note}" if note else "")
        if part.by == ROWS:
            _show_rows(part, title)
        else:
            show_component(diff, title, SIDES)
    if part.random:
        rows = plural(part.random, "key" if part.by != ROWS else "row")
        say(
            f"{kind} {part.component}: A itself differs in {rows} the second time; {part.beyond_random:,} other differences"
        )
        show_changes(part.random_examples, "A", "A again")


def _show_rows(part: Part, title: str) -> None:
    """Rows without a key: each is shown with the number of times that it is there."""
    say(title)
    for line in part.diff.schema:
        say(f"  {line}")
    show_changes(part.diff.examples, "A", "B")
    left = [part.diff.gone, part.diff.added]
    for example in part.diff.examples:
        times = [0 if side is None else side[COUNT] for side in (example.before, example.after)]
        left[0] -= max(0, times[0] - times[1])
        left[1] -= max(0, times[1] - times[0])
    for count, where in zip(left, ("only in A", "only in B"), strict=True):
        if count:
            say(f"  {count:,} more {where}")


def _verdict(found: Comparison) -> str:
    apart = "" if found.deterministic else ", apart from what is not deterministic in A"
    if found.same:
        return f"A and B give the same outputs and states{apart}"
    names = [f"output {part.component}" for part in found.outputs if part.differs]
    names += [f"state {part.component}" for part in found.states if part.differs]
    return f"A and B differ in {', '.join(names)}{apart}"
