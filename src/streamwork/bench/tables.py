"""The figures of a benchmark as tables, for a terminal and for a page.

The figures of all benchmarks are nested in the same few ways:

    a figure     a number, a text, or a spread: {"median": ..., "min": ..., "max": ..., "repeats": [...]}
    a row        a dict of figures; its key "spread" may hold their spreads
    a table      rows that have columns in common
    a section    a dict with figures, rows or sections below it; its key is part of their titles

"settings" come last; single repeats are left out.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

WIDTH = 120  # where there is no terminal that has one
MOST_COLUMNS = 8
"""A table with more columns than that is turned, so that its figures are rows."""
VALUE = ""
"""The name of the only column of a table that has but one."""


class Figure(NamedTuple):
    """A number with its minimum and maximum, or a text."""

    value: float | str | None
    low: float | None = None
    high: float | None = None

    @property
    def text(self) -> str:
        return self.value if isinstance(self.value, str) else "-" if self.value is None else number(self.value)

    @property
    def spread(self) -> str:
        """`min..max`; empty if both equal the figure."""
        if self.low is None or self.high is None or self.low == self.high:
            return ""
        return f"{short(self.low)}..{short(self.high)}"

    @property
    def whole(self) -> str:
        return f"{self.text} ({self.spread})" if self.spread else self.text


class Table(NamedTuple):
    """A titled table; without rows, only the title is shown."""

    title: str
    columns: tuple[str, ...]
    rows: dict[str, dict[str, Figure]]

    @property
    def is_list(self) -> bool:
        return self.columns == (VALUE,)


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 or isinstance(value, int) else f"{value:.4g}"


def short(value: float) -> str:
    """With three digits."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if abs(value) >= 10 * size or (abs(value) >= size and unit == "M"):
            return f"{value / size:.3g}{unit}" if abs(value) < 1000 * size else f"{value / size:,.0f}{unit}"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


# ---- from what was found to tables --------------------------------------------------------------------------------------


def tables(numbers: dict[str, Any]) -> list[Table]:
    """All tables, in order; the settings come last."""
    found = {name: value for name, value in numbers.items() if name != "settings"}
    return [*_section("", found, found), *_section("settings", numbers.get("settings", {}), {})]


def figure(value: Any) -> Figure | None:
    """The figure of a value; None if it is a row, a table or a section."""
    if isinstance(value, dict):
        if {"median", "min", "max"} <= value.keys():
            return Figure(value["median"], value["min"], value["max"])
        inner = figure(value.get("spread"))
        return inner if inner is not None and value.keys() == {"repeats", "spread"} else None
    if isinstance(value, list | tuple):
        parts = [figure(one) for one in value]
        return None if None in parts else Figure(", ".join(part.text for part in parts if part is not None))
    if isinstance(value, bool):
        return Figure("yes" if value else "no")
    return Figure(value) if isinstance(value, int | float | str) else Figure(None)


def row(node: dict[str, Any]) -> dict[str, Figure] | None:
    """The figures of a dict, with their spreads; None if it is no row."""
    spreads = node.get("spread", {})
    found: dict[str, Figure] = {}
    for name, value in node.items():
        if name == "spread":
            continue
        one = figure(spreads.get(name, value))
        if one is None:
            return None
        found[name] = one
    return found


def _section(title: str, node: dict[str, Any], above: dict[str, Any]) -> Iterator[Table]:
    figures: dict[str, dict[str, Figure]] = {}
    groups: list[dict[str, dict[str, Figure]]] = []
    deeper: dict[str, dict[str, Any]] = {}
    spreads = node.get("spread", {})
    for name, value in node.items():
        if name == "spread":
            continue
        if (one := figure(spreads.get(name, value))) is not None:
            if not isinstance(value, list) or name != "repeats":
                figures[name] = {VALUE: one}
        elif isinstance(value, list):
            deeper[name] = {str(place): inner for place, inner in enumerate(value, start=1)}
        elif not value:
            pass  # an empty section, such as "skipped"
        elif (cells := row(value)) is None:
            deeper[name] = value
        else:
            group = next((one for one in groups if any(cells.keys() & other.keys() for other in one.values())), None)
            if group is None:
                groups.append(group := {})
            group[name] = cells
    if figures:
        yield Table(title, (VALUE,), figures)
    for group in groups:
        if len(group) == 1:
            ((name, cells),) = group.items()
            yield Table(_below(title, name), (VALUE,), {one: {VALUE: found} for one, found in cells.items()})
        else:
            yield _table(title, group)
    for name, child in deeper.items():
        if _all_there(child, above):
            yield Table(f"{_below(title, name)}: the figures above", (), {})
        else:
            yield from _section(_below(title, name), child, above)


def _all_there(child: dict[str, Any], above: dict[str, Any]) -> bool:
    return all(name in above and above[name] == value for name, value in child.items())


def _table(title: str, rows: dict[str, dict[str, Figure]]) -> Table:
    columns = tuple(
        name
        for name in dict.fromkeys(name for cells in rows.values() for name in cells)
        if any(cells.get(name, Figure(None)).value is not None for cells in rows.values())
    )
    if len(columns) <= MOST_COLUMNS:
        return Table(title, columns, rows)
    turned = {column: {name: cells[column] for name, cells in rows.items() if column in cells} for column in columns}
    return Table(title, tuple(rows), turned)


def _below(title: str, name: str) -> str:
    return f"{title}, {name}" if title else name


# ---- from tables to text ------------------------------------------------------------------------------------------------


def show(numbers: dict[str, Any]) -> None:
    """Print the tables on the terminal, with the spread below each figure."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
    before = None
    for table in tables(numbers):
        if before is not None:
            console.print()
        if table.title != before and table.title:
            console.print(Text(table.title, style="bold"))
        before = table.title
        if table.rows:
            console.print(_drawn(table))


def _drawn(table: Table) -> RichTable:
    drawn = RichTable(box=None, pad_edge=False, show_header=not table.is_list, padding=(0, 2, 0, 0))
    drawn.add_column("", no_wrap=True)
    if table.is_list:  # figure and spread beside each other
        drawn.add_column()
        drawn.add_column(style="dim")
        for name, cells in table.rows.items():
            drawn.add_row(Text(name), Text(cells[VALUE].text), Text(cells[VALUE].spread))
        return drawn
    for column in table.columns:
        # Blanks, so that a name can be wrapped; and what does not fit is folded, not cut off.
        drawn.add_column(Text(column.replace("_", " ")), justify="right", overflow="fold")
    for name, cells in table.rows.items():
        shown = [cells.get(column, Figure(None)) for column in table.columns]
        drawn.add_row(
            Text(name), *(Text.assemble(one.text, (f"\n{one.spread}" if one.spread else "", "dim")) for one in shown)
        )
    return drawn


def markdown(found: Iterable[Table]) -> Iterator[str]:
    """The tables as Markdown, each below its title."""
    before = ""
    for table in found:
        if table.title != before:
            yield f"**{cell(table.title)}**"
        before = table.title
        if table.rows:
            yield grid(
                ["", *(column.replace("_", " ") for column in table.columns)],
                [
                    [name, *(cells.get(column, Figure(None)).whole for column in table.columns)]
                    for name, cells in table.rows.items()
                ],
            )


def grid(head: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown; all columns but the first are figures."""
    lines = ["| " + " | ".join(map(cell, line)) + " |" for line in [head, *rows]]
    return "\n".join([lines[0], "|" + "|".join(["---", *["---:"] * (len(head) - 1)]) + "|", *lines[1:]])


def cell(text: str) -> str:
    """Text that cannot end its cell, or begin a tag."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
