"""``streamwork state``: shows, queries, exports and compares state, of any kept checkpoint or savepoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from streamwork.cli.job_arguments import about_a_job
from streamwork.cli.output import JSON, print_json, say
from streamwork.cli.state_text import show_components, show_diff, show_rows, show_table
from streamwork.errors import WrongUse
from streamwork.job.jobfile import load_job
from streamwork.statefiles import diff as diffing
from streamwork.statefiles import export as exporting
from streamwork.statefiles.component_state import ComponentState, Shape
from streamwork.statefiles.plain_values import plain_lists, plain_rows
from streamwork.statefiles.point import At, Places, StatePoint
from streamwork.statefiles.selection import Selection
from streamwork.statefiles.sql import query
from streamwork.wording import plural
from streamwork.world import RealDisk

AT = click.option(
    "--at",
    metavar="checkpoint:N | savepoint:NAME | PATH",
    help="Whose state; without it, that of the newest completed checkpoint.",
)
ROWS = 20


@click.group("state")
def state_group() -> None:
    """Show, query, export, compare and edit the state of a job."""


def places(job: str, root: Path | None) -> Places:
    """Where the states of a job are. A job file is imported only if one is named."""
    if root is None or Path(job.partition(":")[0]).is_file():
        loaded = load_job(job)
        root = (root or loaded.default_root).absolute()
        return Places(RealDisk(), root, loaded.job.name, loaded.job.graph())
    return Places(RealDisk(), root.absolute(), job)


@state_group.command("show")
@about_a_job
@click.argument("component", required=False)
@AT
@click.option(
    "--key",
    "key",
    multiple=True,
    metavar="VALUE | FIELD=VALUE",
    help="Only this key; repeat for a key of several fields.",
)
@click.option("--key-json", default="", metavar="OBJECT", help="Only this key, its fields as a JSON object.")
@click.option("--prefix", help="Only keys whose first field begins with this text.")
@click.option(
    "--limit", type=click.IntRange(0), default=ROWS, show_default=True, help="The most rows that are shown; 0: all."
)
@JSON
def show_command(
    job: str,
    root: Path | None,
    component: str | None,
    at: str | None,
    key: tuple[str, ...],
    key_json: str,
    prefix: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Show the state of COMPONENT, in the order of its keys; without COMPONENT, which components have state."""
    where, selection = places(job, root), Selection(key, key_json, prefix)
    if component is None and (key or key_json or prefix is not None):
        raise WrongUse(
            "SW-USAGE", "a key of which component?", "name the component: state show JOBFILE COMPONENT --key K"
        )

    def read(point: StatePoint) -> tuple[dict[str, Any], Callable[[], None]]:
        facts = {"job": where.job, "root": str(where.root), "at": facts_of(point)}
        if component is None:
            states = [ComponentState.of(point, name) for name in point.components]
            components = [_summary(state) for state in states]
            return {**facts, "components": components}, lambda: show_components(where.job, point.title, components)
        state = ComponentState.of(point, component)
        found = selection.of(state)
        rows = [_row(state.shape, row) for row in plain_rows(found.slice(0, limit or None))]
        answer = {**facts, **_summary(state), "matching": found.num_rows, "shown": len(rows), "state": rows}
        return answer, lambda: show_rows(point.title, state, len(state), found.num_rows, rows)

    answer, show = where.reading(At.parse(at), read)
    if as_json:
        print_json(answer)
    else:
        show()


@state_group.command("query")
@about_a_job
@click.argument("sql")
@AT
@click.option("--limit", type=click.IntRange(0), default=0, help="The most rows that are printed; 0: all.")
@JSON
def query_command(job: str, root: Path | None, sql: str, at: str | None, limit: int, as_json: bool) -> None:
    """Answer SQL over the state, with DuckDB: one view per component, such as per_card for the component per-card."""
    where = places(job, root)

    def read(point: StatePoint) -> tuple[StatePoint, Any]:
        return point, query(point, sql)

    point, found = where.reading(At.parse(at), read)
    shown = found.slice(0, limit or None)
    if as_json:
        columns = [{"name": field.name, "type": str(field.type)} for field in found.schema]
        facts = {"job": where.job, "root": str(where.root), "at": facts_of(point), "columns": columns}
        print_json({**facts, "count": found.num_rows, "rows": list(plain_lists(shown))})
    else:
        show_table(shown.column_names, list(plain_lists(shown)))
        left = found.num_rows - shown.num_rows
        say(f"{plural(found.num_rows, 'row')} of {point.title}" + (f", {left:,} of them not shown" if left else ""))


@state_group.command("export")
@about_a_job
@click.argument("component")
@click.argument("file", type=click.Path(path_type=Path))
@AT
@JSON
def export_command(job: str, root: Path | None, component: str, file: Path, at: str | None, as_json: bool) -> None:
    """Write the state of COMPONENT into FILE: .parquet, .csv or .jsonl."""
    where = places(job, root)

    def read(point: StatePoint) -> tuple[StatePoint, Any]:
        return point, exporting.export(ComponentState.of(point, component), file.absolute(), RealDisk())

    point, table = where.reading(At.parse(at), read)
    if as_json:
        facts = {"job": where.job, "root": str(where.root), "at": facts_of(point), "component": component}
        print_json({**facts, "file": str(file.absolute()), "rows": table.num_rows, "columns": table.column_names})
    else:
        say(f"{plural(table.num_rows, 'row')} of {component} in {point.title} written to {file}")


@state_group.command("diff")
@about_a_job
@click.argument("before", metavar="BEFORE")
@click.argument("after", metavar="AFTER")
@click.option("--component", "only", multiple=True, metavar="ID", help="Only this component; may be repeated.")
@click.option(
    "--limit", type=click.IntRange(0), default=diffing.EXAMPLES, show_default=True, help="Examples of each kind."
)
@JSON
def diff_command(
    job: str, root: Path | None, before: str, after: str, only: tuple[str, ...], limit: int, as_json: bool
) -> None:
    """Compare the state at BEFORE with that at AFTER: each checkpoint:N, savepoint:NAME or the PATH of a savepoint."""
    compare(places(job, root), At.parse(before), At.parse(after), only, limit, as_json)


def compare(where: Places, before: At, after: At, only: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Print what differs between two points of a job."""

    def read(old: StatePoint) -> diffing.StateDiff:
        return where.reading(after, lambda new: _diff(old, new, limit, only))

    found = where.reading(before, read)
    if as_json:
        print_json({"job": where.job, "root": str(where.root), "diff": found})
    else:
        show_diff(found)


def _diff(old: StatePoint, new: StatePoint, limit: int, only: tuple[str, ...]) -> diffing.StateDiff:
    unknown = [name for name in only if name not in {*old.components, *new.components}]
    if unknown:
        raise WrongUse(
            "SW-STATE-COMPONENT",
            f"neither {old.title} nor {new.title} has a component {unknown[0]!r} with state",
            f"use one of: {', '.join({*old.components, *new.components}) or 'none'}",
        )
    return diffing.diff(old, new, limit, only)


def facts_of(point: StatePoint) -> dict[str, Any]:
    found: dict[str, Any] = {"checkpoint": point.manifest.epoch, "positions": point.positions}
    if point.savepoint is not None:
        found |= {"savepoint": point.savepoint.record.name, "path": str(point.savepoint.folder)}
    return found


def _summary(state: ComponentState) -> dict[str, Any]:
    shape, schema = state.shape, state.unordered.schema
    return {
        "component": shape.component,
        "class": shape.title,
        "key": shape.key,
        "sub_key": shape.sub_key,
        "fields": {name: str(schema.field(name).type) for name in shape.columns},
        "rows": len(state),
        "bytes": state.bytes,
    }


def _row(shape: Shape, row: dict[str, Any]) -> dict[str, Any]:
    """One key, its parts apart, so that no name of a user meets one of ours."""
    found: dict[str, Any] = (
        {"key": {name: row[name] for name in shape.key}} if shape.key else {"instance": row["__instance"]}
    )
    if shape.sub_key:
        found["sub_key"] = {name: row[name] for name in shape.sub_key}
    found["value"] = {name: row[name] for name in shape.record}
    if row.get("__timers"):
        found["timers"] = row["__timers"]
    return {**found, "group": row["__group"], "checkpoint": row["__epoch"]}
