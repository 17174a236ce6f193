"""``streamwork state edit``: a new savepoint with changed state, of a checkpoint or of a savepoint. Neither is changed.

1  read    the state of the components that are edited
2  change  rows of files replace the rows of the same keys, or all; SQL runs over copies (`sql_edit`)
3  check   every value against its field, keys, timers (`row_check`). Nothing is written before this is over
4  write   the savepoint, `savepoint.json` last (`new_savepoint`)
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgspec
import pyarrow as pa

from streamwork.components import parquet_file
from streamwork.epoch.savepoints import FOLDER, Begun
from streamwork.epoch.savepoints.writer import check_free
from streamwork.errors import Refused, WrongUse
from streamwork.job import Graph, Node
from streamwork.job.names import check_name
from streamwork.state.merge import merge
from streamwork.statefiles.component_state import ComponentState
from streamwork.statefiles.diff import EXAMPLES, ComponentDiff, RowDiff, Status, compared
from streamwork.statefiles.new_savepoint import NewSavepoint
from streamwork.statefiles.point import Places, StatePoint
from streamwork.statefiles.row_check import RowCheck
from streamwork.statefiles.sql import mentions, names_of
from streamwork.statefiles.sql_edit import run_edit
from streamwork.world import Clock


class Edit(msgspec.Struct, frozen=True):
    """What is to be changed: files by component, or SQL."""

    files: Mapping[str, Path] = {}
    sql: str = ""
    replace: bool = False  # the files hold all keys: others are removed

    def __post_init__(self) -> None:
        if bool(self.files) == bool(self.sql):
            raise WrongUse("SW-USAGE", "what is to be changed?", "give --sql, or one --file COMPONENT=FILE or several")
        if self.replace and not self.files:
            raise WrongUse("SW-USAGE", "--replace needs --file", "with --sql, write DELETE FROM")

    @property
    def summary(self) -> str:
        return f"SQL: {self.sql}" if self.sql else "files: " + ", ".join(f"{n}={f}" for n, f in self.files.items())


class Edited(msgspec.Struct, frozen=True):
    """What an edit did, or would do."""

    job: str
    base: str
    name: str
    path: str
    written: bool  # False: only the differences were wanted
    bytes: int
    components: tuple[ComponentDiff, ...]


@dataclass(frozen=True)
class Editing:
    """An edit of the state at one point. The graph is that of the job file."""

    places: Places
    graph: Graph
    point: StatePoint
    edit: Edit

    def run(self, name: str, note: str, by: str, clock: Clock, dry: bool = False) -> Edited:
        """1 to 4. With `dry`, 1 to 3."""
        folder = self.places.store.folder / FOLDER / check_name(name, "savepoint")
        check_free(self.places.disk, folder)
        if self.point.savepoint is None and self.graph.promise.at_most_once:
            raise Refused(
                "SW-STATE-EDIT",
                f"how far the input behind {self.point.title} was processed is not known, under at-most-once",
                "create a savepoint first (`streamwork savepoint create JOBFILE NAME`), and edit that one; nothing was written",
            )
        before, after = self._rows()  # 1, 2, 3
        diffs = {one: _compared(before[one], table, self._checks[one]) for one, table in after.items()}
        changed = {one: table for one, table in after.items() if diffs[one].status is not Status.SAME}
        written = 0
        if not dry:
            new = NewSavepoint(
                self.graph,
                self.places.store,
                self.point,
                changed,
                self._checks,
                f"{self.point.manifest.fence}-{secrets.token_hex(4)}",
                f"edited from {self.point.title}; {self.edit.summary}",
            )
            written = new.write(Begun(name, clock.now(), by, note, secrets.token_hex(16))).bytes  # 4
        return Edited(self.places.job, self.point.title, name, str(folder), not dry, written, tuple(diffs.values()))

    def _rows(self) -> tuple[dict[str, pa.Table], dict[str, pa.Table]]:
        """Component -> its rows, before and after."""
        epoch, checks = self.point.manifest.epoch, self._checks
        before = {one: state.table for one, state in self._states.items()}
        after = {}
        if self.edit.sql:
            for one, table in run_edit(self._states, self.edit.sql, checks).items():
                after[one] = checks[one].checked(table, "the result of the SQL", epoch)
        for one, file in self.edit.files.items():
            rows = checks[one].checked(read_rows(file), str(file), epoch)
            after[one] = merge([rows] if self.edit.replace else [before[one], rows], checks[one].shape.identity)
        return before, after

    @cached_property
    def _states(self) -> dict[str, ComponentState]:
        """The components that are edited. One that cannot be is refused."""
        if self.edit.files:
            names = list(self.edit.files)
        else:
            known = names_of(node.id for node in self.graph.stateful)
            names = [one for one, several in known.items() if mentions(self.edit.sql, several[-1])]
        states = {name: ComponentState.of(self.point, name) for name in names}
        for name, state in states.items():
            if state.rows is None or not state.is_current:
                raise _other_schema(self.graph[name], self.point)
        return states

    @cached_property
    def _checks(self) -> dict[str, RowCheck]:
        groups, graph = self.point.identity.groups, self.graph
        return {one: RowCheck.of(graph, graph[one], groups, self._instances(graph[one])) for one in self._states}

    def _instances(self, node: Node) -> int:
        """The base decides: a start with another parallelism divides the state as it does that of the base."""
        stored = self.point.chains.get(node.id, {})
        if stored:
            return len(stored)
        base = self.point.savepoint
        return node.parallelism if base is None else base.record.parallelism.get(node.id, node.parallelism)


def read_rows(file: Path) -> pa.Table:
    """A Parquet file. Refuses what is none."""
    try:
        return parquet_file.from_bytes(file.read_bytes())
    except (OSError, pa.ArrowInvalid) as error:
        raise WrongUse(
            "SW-STATE-FORMAT",
            f"{file} cannot be read as Parquet ({error})",
            "give a Parquet file, as `state export` writes",
        ) from None


def _compared(before: pa.Table, after: pa.Table, check: RowCheck) -> ComponentDiff:
    shape = check.shape
    timers = ("__timers",) if check.has_timers else ()
    names = [*shape.columns, *timers]
    return compared(
        shape.component,
        RowDiff(before.select(names), after.select(names), shape.identity, (*shape.record, *timers)),
        EXAMPLES,
    )


def _other_schema(node: Node, point: StatePoint) -> Refused:
    return Refused(
        "SW-STATE-SCHEMA",
        f"the state of {node.id} in {point.title} has other columns than {node.title} of the job file",
        "edit it with the job file of that version; or start the new version, and edit a savepoint of that. Nothing was written",
    )
