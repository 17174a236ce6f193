"""SQL that changes state: it runs over copies of the state in DuckDB, and what the tables hold afterwards is the new state.

There is one table per component, named by its id, with `_` for every character that SQL would need quotes for: UPDATE, INSERT and
DELETE work as on any table. A component by key whose class has `on_timer` has a second table, `NAME_timers`: the key, `at` and
`clock`. Timers of a key that is deleted are deleted with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from streamwork.errors import Refused, WrongUse
from streamwork.statefiles.component_state import ComponentState
from streamwork.statefiles.row_check import ACTION, RowCheck
from streamwork.statefiles.sql import TIMERS, connect, duckdb_for, names_of, timers_of

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

BEFORE = "__before"


def run_edit(states: Mapping[str, ComponentState], sql: str, checks: Mapping[str, RowCheck]) -> dict[str, pa.Table]:
    """Component -> its rows after the statements."""
    duckdb = duckdb_for("state edit --sql")
    names = {component: several[-1] for component, several in names_of(states).items()}
    with connect("state edit --sql") as db:
        for component, state in states.items():
            _create(db, names[component], state, checks[component])
        try:
            db.execute(sql)
            return {one: _read(db, names[one], checks[one]) for one in states}
        except duckdb.Error as error:
            cause = " ".join(str(error).split())
            raise WrongUse("SW-STATE-SQL", f"DuckDB: {cause}", f"the tables are: {', '.join(names.values())}") from None


def _create(db: DuckDBPyConnection, name: str, state: ComponentState, check: RowCheck) -> None:
    db.register(BEFORE, state.shown)
    db.execute(f'CREATE TABLE "{name}" AS FROM "{BEFORE}"')
    db.unregister(BEFORE)
    if check.has_timers:
        db.register(BEFORE, timers_of(state))
        for table in (f"{name}{TIMERS}", f"{name}{TIMERS}{BEFORE}"):
            db.execute(f'CREATE TABLE "{table}" AS FROM "{BEFORE}"')
        db.unregister(BEFORE)


def _read(db: DuckDBPyConnection, name: str, check: RowCheck) -> pa.Table:
    if not check.has_timers:
        return db.sql(f'FROM "{name}"').to_arrow_table()
    timers, key = f"{name}{TIMERS}", check.shape.key
    _check_orphans(db, name, timers, key, check)
    columns = ", ".join(f't."{one}"' for one in key)
    grouped = (
        f"SELECT {columns}, list({{'at': t.at, 'clock': t.clock}} ORDER BY t.at, t.clock) AS __timers "
        f'FROM (SELECT DISTINCT * FROM "{timers}") AS t GROUP BY {columns}'
    )
    return db.sql(
        f'SELECT s.*, t.__timers FROM "{name}" AS s LEFT JOIN ({grouped}) AS t ON {_same(key, "s", "t")}'
    ).to_arrow_table()


def _check_orphans(db: DuckDBPyConnection, name: str, timers: str, key: tuple[str, ...], check: RowCheck) -> None:
    """Refuse a new timer of a key that has no row."""
    everything = (*key, "at", "clock")
    found = db.execute(
        f'SELECT {", ".join(f"CAST(t.{_quoted(one)} AS VARCHAR)" for one in key)} FROM "{timers}" AS t '
        f'WHERE NOT EXISTS (FROM "{name}" AS s WHERE {_same(key, "s", "t")}) '
        f'AND NOT EXISTS (FROM "{timers}{BEFORE}" AS b WHERE {_same(everything, "b", "t")})'
    ).fetchone()
    if found is not None:
        shown = ", ".join(f"{one}={value}" for one, value in zip(key, found, strict=True))
        raise Refused(
            "SW-STATE-EDIT", f"{check.shape.component} has a timer of the key {shown}, which has no row", ACTION
        )


def _same(columns: tuple[str, ...], one: str, other: str) -> str:
    return " AND ".join(f"{one}.{_quoted(name)} IS NOT DISTINCT FROM {other}.{_quoted(name)}" for name in columns)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
