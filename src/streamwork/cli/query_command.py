"""``streamwork query``: asks the state of a job, from its files or from a server."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import pyarrow as pa

from streamwork.cli.job_arguments import find
from streamwork.cli.output import JSON, print_json, say
from streamwork.cli.state_text import show_table
from streamwork.errors import WrongUse
from streamwork.query.answer import Answers, Change, Consistency, Count, Stamp, TableAnswer
from streamwork.query.local import open as open_files
from streamwork.query.remote import connect
from streamwork.query.state import Component, State
from streamwork.statefiles.plain_values import plain_lists, plain_rows

ROWS = 20


@click.command("query")
@click.argument("target", metavar="JOBFILE[:NAME] | JOB | URL")
@click.argument("component", required=False)
@click.argument("key", nargs=-1)
@click.option("--root", type=click.Path(path_type=Path), help="The root; JOB is then the job's name.")
@click.option("--job", help="Which job, of a server at URL that answers for several.")
@click.option("--token", envvar="STREAMWORK_ACCESS_TOKEN", help="The bearer token of the server at URL.")
@click.option(
    "--from", "start", multiple=True, metavar="PART", help="Keys from this one on, in order; repeat for more parts."
)
@click.option("--to", "end", multiple=True, metavar="PART", help="Keys before this one.")
@click.option("--prefix", multiple=True, metavar="PART", help="Keys that begin with this.")
@click.option("--since", metavar="TIME", help="The windows of KEY that start from this time on.")
@click.option("--until", metavar="TIME", help="The windows of KEY that start before this time.")
@click.option("--limit", type=click.IntRange(1), default=ROWS, show_default=True, help="The most rows.")
@click.option("--count", is_flag=True, help="Only how many keys there are.")
@click.option("--sql", metavar="SELECT", help="Answer SQL, with each component as a table.")
@click.option("--watch", is_flag=True, help="Print the changes of the component, or of KEY, checkpoint by checkpoint.")
@click.option("--at", metavar="checkpoint:N | savepoint:NAME", help="The state at this point, not the newest one.")
@click.option(
    "--consistency",
    type=click.Choice([one.value for one in Consistency]),
    default=Consistency.COMMITTED.value,
    show_default=True,
)
@click.option(
    "--at-least", type=click.IntRange(0), metavar="EPOCH", help="Wait until this checkpoint is in the answer."
)
@click.option("--timeout", type=click.FloatRange(0, 60), default=5.0, show_default=True, help="Seconds to wait for it.")
@JSON
def query_command(
    target: str,
    component: str | None,
    key: tuple[str, ...],
    root: Path | None,
    job: str | None,
    token: str | None,
    at: str | None,
    consistency: str,
    at_least: int | None,
    timeout: float,
    as_json: bool,
    **asked: Any,
) -> None:
    """Ask for KEY of COMPONENT, for a range of keys, for windows, or in SQL. Without COMPONENT: which components there are."""
    options: dict[str, Any] = {"at": at, "consistency": consistency, "at_least": at_least, "timeout": timeout}
    with _state(target, root, job, token) as state:
        if asked["sql"] is not None:
            _show(state.sql(asked["sql"], **options), as_json)
        elif component is None:
            _show_components(state, as_json)
        elif asked["watch"]:
            _watch(state[component], key, consistency, as_json)
        else:
            _show(_answer(state[component], key, asked, options), as_json)


def _state(target: str, root: Path | None, job: str | None, token: str | None) -> State:
    if "://" in target:
        return connect(target, token, job=job)
    where, name = find(target, root)
    return open_files(where / name)


def _answer(component: Component[Any], key: tuple[str, ...], asked: dict[str, Any], options: dict[str, Any]) -> Any:
    shape = component.shape
    if asked["count"]:
        return component.count(**options)
    if asked["since"] or asked["until"]:
        since, until = (_moment(asked[name]) for name in ("since", "until"))
        return component.windows(shape.from_plain(key), since, until, limit=asked["limit"], **options)
    if key and len(key) == len(shape.key):
        return component.get_many([shape.from_plain(key) if len(key) > 1 else shape.from_plain(key)[0]], **options)
    prefix = key or asked["prefix"]
    if prefix:
        return component.prefix(shape.from_plain(prefix), limit=asked["limit"], **options)
    start, end = (shape.from_plain(asked[name]) if asked[name] else None for name in ("start", "end"))
    return component.range(start, end, limit=asked["limit"], **options)


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise WrongUse("SW-USAGE", f"{text!r} is not a time", "give one such as 2026-01-02T03:04:05Z") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _show(answer: Count | Answers[Any] | TableAnswer, as_json: bool) -> None:
    facts = {name: getattr(answer, name) for name in Stamp.__struct_fields__}
    if isinstance(answer, Count):
        if as_json:
            print_json({"count": answer.count, **facts})
        else:
            say(f"{answer.count:,}\n{_origin(answer)}")
        return
    table: pa.Table = answer.to_arrow()
    if as_json and isinstance(answer, Answers):
        rows = [_split(answer.shape.key, row) for row in plain_rows(table)]
        print_json({"rows": rows, "more": answer.more, **facts})
    elif as_json:
        columns = [{"name": field.name, "type": str(field.type)} for field in table.schema]
        print_json({"columns": columns, "rows": list(plain_lists(table)), **facts})
    else:
        show_table(table.column_names, list(plain_lists(table)))
        more = ", more behind them" if isinstance(answer, Answers) and answer.more else ""
        say(f"{table.num_rows:,} row{'' if table.num_rows == 1 else 's'}{more}; {_origin(answer)}")


def _origin(answer: Stamp) -> str:
    said = [
        f"checkpoint {answer.epoch}",
        "committed" if answer.committed else "not committed",
        f"{answer.age:.1f} s old",
    ]
    said += ["regressed"] if answer.regressed else []
    said += ["may be undone"] if answer.possibly_undone else []
    return ", ".join(said)


def _split(key: tuple[str, ...], row: dict[str, Any]) -> dict[str, Any]:
    return {"key": {name: row.pop(name) for name in key}, "record": row}


def _show_components(state: State, as_json: bool) -> None:
    found = {name: state[name].shape for name in state.components()}
    if as_json:
        components = {
            name: {
                "key": {part: str(shape.schema.field(part).type) for part in shape.key},
                "record": {field.name: str(field.type) for field in shape.schema if field.name not in shape.key},
            }
            for name, shape in found.items()
        }
        print_json({"components": components})
        return
    rows = [
        [name, ", ".join(shape.key), ", ".join(n for n in shape.schema.names if n not in shape.key)]
        for name, shape in found.items()
    ]
    show_table(["component", "key", "record"], rows)


def _watch(component: Component[Any], key: tuple[str, ...], consistency: str, as_json: bool) -> None:
    parts = component.shape.from_plain(key) if key else None
    for change in component.watch(parts if parts is None or len(parts) > 1 else parts[0], consistency=consistency):
        if as_json:
            print_json(_told(change))
        elif change.regressed:
            say(f"checkpoint {change.epoch}: the state has gone back or was replaced")
        else:
            say(f"checkpoint {change.epoch}: {len(change.rows):,} changed, {len(change.gone):,} gone")
            show_table(change.rows.column_names, list(plain_lists(change.rows.slice(0, ROWS))))


def _told(change: Change) -> dict[str, Any]:
    return {
        "epoch": change.epoch,
        "rows": [_split(change.shape.key, row) for row in plain_rows(change.rows)],
        "gone": list(plain_rows(change.gone)),
        "regressed": change.regressed,
    }
