"""State on a terminal: rows as tables, differences side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rich import box
from rich.table import Table

from streamwork.cli.output import cell, console, say
from streamwork.statefiles.component_state import ComponentState
from streamwork.statefiles.diff import Change, ComponentDiff, RowChange, StateDiff, Status
from streamwork.statefiles.plain_values import text_of
from streamwork.wording import plural

MOST = 60
"""Characters of a value in a table."""
WIDTH = 120
MARKS = {Change.CHANGED: "~", Change.GONE: "-", Change.ADDED: "+"}
COLOURS = {Change.CHANGED: "yellow", Change.GONE: "red", Change.ADDED: "green"}


class Labels(NamedTuple):
    """What the two sides of a difference are called."""

    before: str
    after: str
    kinds: Mapping[Change, str]


IN_TIME = Labels("before", "after", {change: change.value for change in Change})


def short(value: Any, most: int = MOST) -> str:
    text = text_of(value)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def show_table(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Rows under the names of their columns; numbers to the right."""
    listed = [list(row) for row in rows]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for place, name in enumerate(names):
        values = [row[place] for row in listed if row[place] is not None]
        numbers = bool(values) and all(
            isinstance(value, int | float) and not isinstance(value, bool) for value in values
        )
        table.add_column(cell(name), justify="right" if numbers else "left", overflow="fold")
    for row in listed:
        table.add_row(*(cell(short(value)) for value in row))
    console(width=max(WIDTH, console().width)).print(table)


def show_components(job: str, title: str, components: Sequence[Mapping[str, Any]]) -> None:
    say(f"job {job}, {title}")
    rows = [
        [
            one["component"],
            one["class"],
            ", ".join([*one["key"], *one["sub_key"]]) or "by instance",
            one["rows"],
            one["bytes"],
        ]
        for one in components
    ]
    show_table(["component", "class", "key", "rows", "bytes"], rows)


def show_rows(title: str, state: ComponentState, total: int, matching: int, rows: Sequence[Mapping[str, Any]]) -> None:
    shape = state.shape
    timers = any("timers" in row for row in rows)
    names = [*shape.key, *shape.sub_key] if shape.key else ["instance"]
    if rows:
        table = []
        for row in rows:
            key = [*row["key"].values(), *row.get("sub_key", {}).values()] if shape.key else [row["instance"]]
            table.append([*key, *row["value"].values(), *([_timers(row.get("timers", ()))] if timers else [])])
        show_table([*names, *shape.record, *(["timers"] if timers else [])], table)
    left = matching - len(rows)
    found = "" if matching == total else f"{matching:,} of "
    tail = f"; {left:,} more: --limit 0 shows all" if left else ""
    say(f"{shape.component} in {title}: {found}{plural(total, 'row')}{tail}")


def _timers(timers: Sequence[Mapping[str, Any]]) -> str:
    if not timers:
        return ""
    first = min(timers, key=lambda timer: str(timer["at"]))
    more = f" and {len(timers) - 1:,} more" if len(timers) > 1 else ""
    return f"{first['at']} ({first['clock']}){more}"


def show_diff(found: StateDiff) -> None:
    say(f"{found.before} -> {found.after}")
    for name, (before, after) in found.positions.items():
        say(f"  position {name}: {before:,} -> {after:,}")
    for name, (old, new) in found.params.items():
        say(f"  parameter {name}: {text_of(old)} -> {text_of(new)}")
    rows = [
        [one.component, one.status.value, one.rows_before, one.rows_after, one.changed, one.gone, one.added, one.same]
        for one in found.components
    ]
    show_table(["component", "", "rows before", "after", "changed", "gone", "added", "same"], rows)
    for one in found.components:
        if one.status is not Status.SAME:
            show_component(one)
    if found.same:
        say("the states are the same")


def show_component(one: ComponentDiff, title: str = "", labels: Labels = IN_TIME) -> None:
    """The columns that differ, and examples."""
    say(title or one.component)
    for line in one.schema:
        say(f"  {line}")
    if one.fields:
        counts = ", ".join(f"{name} in {count:,}" for name, count in one.fields.items())
        say(f"  differ: {counts} of {plural(one.changed, 'row')}")
    show_changes(one.examples, labels.before, labels.after)
    counts_by_kind = {Change.CHANGED: one.changed, Change.GONE: one.gone, Change.ADDED: one.added}
    for kind, count in counts_by_kind.items():
        left = count - sum(example.change is kind for example in one.examples)
        if left and one.status is not Status.REKEYED:
            say(f"  {left:,} more {labels.kinds[kind]}")


def show_changes(changes: Sequence[RowChange], before: str = "before", after: str = "after") -> None:
    """Side by side: of a key that changed, the fields that differ; else the whole row."""
    if not changes:
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("", "key", "field", before, after):
        table.add_column(cell(name), overflow="fold")
    for change in changes:
        old, new = change.before or {}, change.after or {}
        names = change.fields or tuple(dict.fromkeys([*old, *new]))
        key = " / ".join(short(value) for value in change.key.values())
        for place, name in enumerate(names or ("",)):
            first = [MARKS[change.change], key] if place == 0 else ["", ""]
            cells = [*first, name, short(old[name]) if name in old else "", short(new[name]) if name in new else ""]
            table.add_row(*map(cell, cells), style=COLOURS[change.change])
    console(width=max(WIDTH, console().width)).print(table)
