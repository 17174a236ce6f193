"""SQL over the state at one `StatePoint`, by DuckDB, which is the extra `sql`.

There is one view per component, named by its id; a second name has `_` in place of what SQL would ask quotes for (`per_card` for
`per-card`). A view has the columns of key and record; of instance state, the first one is `__instance`. For components with timers
there is one more, `NAME_timers`: the key, `at` and `clock`. The views are tables in memory: SQL cannot change state.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from streamwork.components.batches import one_array
from streamwork.errors import WrongUse
from streamwork.statefiles.component_state import ComponentState
from streamwork.statefiles.point import StatePoint

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

TIMERS = "_timers"


def duckdb_for(what: str) -> Any:
    """The package `duckdb`. Refuses with the extra that installs it."""
    try:
        import duckdb
    except ImportError:
        raise WrongUse("SW-JOB-EXTRA", f"{what} needs the package duckdb", 'pip install "streamwork[sql]"') from None
    return duckdb


def connect(what: str) -> DuckDBPyConnection:
    """An empty database in memory, whose times are in UTC."""
    found: DuckDBPyConnection = duckdb_for(what).connect(
        config={"autoinstall_known_extensions": False, "preserve_insertion_order": True}
    )
    found.execute("SET TimeZone = 'UTC'")
    return found


def query(point: StatePoint, sql: str) -> pa.Table:
    """The result of the last statement in `sql`."""
    duckdb = duckdb_for("state query")
    with connect("state query") as db:
        add_views(db, point, lambda name: mentions(sql, name))
        try:
            found = db.sql(sql)
            return pa.table({}) if found is None else found.to_arrow_table()
        except duckdb.Error as error:
            raise sql_error(error, point, shown_names(point)) from None


def sql_error(error: Exception, point: StatePoint, names: Iterable[str]) -> WrongUse:
    cause = " ".join(str(error).split())
    return WrongUse("SW-STATE-SQL", f"DuckDB: {cause}", f"the views of {point.title} are: {', '.join(names) or 'none'}")


def shown_names(point: StatePoint) -> list[str]:
    """The names of the views that need no quotes."""
    return [several[-1] for several in names_of(point.components).values()]


def mentions(sql: str, name: str) -> bool:
    return name.lower() in sql.lower()


def add_views(db: DuckDBPyConnection, point: StatePoint, wanted: Callable[[str], bool]) -> None:
    """Read and add the views that are wanted; all, if none is: then the statement asks for what there is."""
    names = names_of(point.components)
    taken = {name for several in names.values() for name in several}
    some = [component for component, several in names.items() if any(map(wanted, several))] or list(names)
    for component in some:
        state = ComponentState.of(point, component)
        for name in names[component]:
            db.register(name, state.shown)
        timers = f"{names[component][-1]}{TIMERS}"
        if state.has_timers and timers not in taken:
            db.register(timers, timers_of(state))


def timers_of(state: ComponentState) -> pa.Table:
    """Every timer as one row: the key, `at` and `clock`."""
    table = state.table
    timers = one_array(table.column("__timers").chunks, table.schema.field("__timers").type)
    keys = table.select(list(state.shape.identity)).take(pc.list_parent_indices(timers))
    flat = timers.flatten()
    return keys.append_column("at", pc.struct_field(flat, "at")).append_column("clock", pc.struct_field(flat, "clock"))


def names_of(components: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Component -> the names of its view: its id, and one that needs no quotes. Names that differ in case only are one name to SQL:
    the later one gets a `_` at its end, as in `views.sql`.
    """
    taken: set[str] = set()

    def free(name: str) -> str:
        while name.lower() in taken:
            name += "_"
        taken.add(name.lower())
        return name

    own = {component: free(component) for component in components}
    plain = {component: re.sub(r"[^A-Za-z0-9_]", "_", name) for component, name in own.items()}
    return {
        component: (name,) if plain[component] == name else (name, free(plain[component]))
        for component, name in own.items()
    }
