"""`View`: batch up to the seam, and the streaming job behind it.

An answer is made of one batch run and one checkpoint of the streaming job:

    1  run      the newest that the view shows
    2  stream   the newest completed checkpoint; the run's seam must be in its past, else the run is not used (SW-LAMBDA-SEAM)
    3  again    1: if the run is neither the newest nor the one before it now, what lies behind its seam may have been forgotten in
                2: from 1 on, with the new one
    4  merge    rows of the run, and those of the stream behind the seam

So no event is counted twice or missed: the rows behind the seam are those of events behind its positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import msgspec
import pyarrow as pa

from streamwork.components import Event
from streamwork.components.columns import to_structs
from streamwork.epoch.job_folder import open_store
from streamwork.errors import JobFailed, WrongUse
from streamwork.lambdas.definition import Lambda
from streamwork.lambdas.merging import Merged, behind, merged
from streamwork.lambdas.plan import PartialPlan
from streamwork.lambdas.seams import FOLDER, Flip, Seam, SeamFolder
from streamwork.query import State
from streamwork.query.answer import NEWEST
from streamwork.query.block import Bound
from streamwork.query.local import LocalState
from streamwork.query.pile import Pile
from streamwork.query.reader import Reader
from streamwork.query.version import Version
from streamwork.statefiles.sql import connect, duckdb_for
from streamwork.wording import plural
from streamwork.world import RealDisk

O = TypeVar("O", bound=Event)  # noqa: E741 (out)
TRIES = 5
EVERY_ROW = 1 << 62


class Stand(msgspec.Struct, frozen=True):
    """What an answer is made of."""

    checkpoint: int  # of the streaming job
    age: float  # seconds since that was written
    run: int | None  # the batch run; None: there is none yet
    seam: int | None  # the checkpoint up to which the batch run counts
    computed: float | None  # when the batch run was complete, in seconds since 1970


class MergedAnswer(msgspec.Struct, Generic[O], frozen=True):
    """The answer for one key."""

    record: O | None  # both parts; None: no event of this key
    exact: O | None  # of the batch run alone, up to the seam
    recent: O | None  # of the streaming job alone, behind the seam
    stand: Stand

    @property
    def is_exact(self) -> bool:
        """True if nothing of the key came behind the seam, so that the whole answer is of the batch run."""
        return self.recent is None and self.stand.run is not None


class View(Generic[O]):
    """The merged answers of a lambda. It only reads files, and follows the streaming job and new batch runs."""

    def __init__(self, plan: PartialPlan, folder: Path, cache: Path | None = None) -> None:
        """`folder` is that of the streaming job."""
        self._plan = plan
        self._folder = SeamFolder(RealDisk(), folder / FOLDER)
        self._cache = cache
        self._stream = Reader(folder, cache=cache)
        self._run: tuple[Seam, Flip, Reader] | None = None

    # ---- questions ------------------------------------------------------------------------------------------------

    def get(self, key: Any) -> MergedAnswer[O]:
        """The answer for a key; of a key of several parts, a tuple of them."""
        return self.get_many([key])[0]

    def get_many(self, keys: Sequence[Any]) -> list[MergedAnswer[O]]:
        """The answers for keys, all from one run and one checkpoint."""
        asked = [key if isinstance(key, tuple) else (key,) for key in keys]
        found, stand = self._answer(asked)
        places = {tuple(values): place for place, values in enumerate(_rows(found.keys))}
        both, exact, recent = (to_structs(self._plan.to, one) for one in (found.both, found.exact, found.recent))
        of_batch = dict(zip(found.in_batch.tolist(), exact, strict=True))
        of_stream = dict(zip(found.in_stream.tolist(), recent, strict=True))
        answers = []
        for key in asked:
            place = places.get(key)
            record = None if place is None else both[place]
            answers.append(MergedAnswer(record, of_batch.get(place), of_stream.get(place), stand))
        return answers

    def key_of(self, texts: Sequence[str]) -> tuple[Any, ...]:
        """A key that is given as text, field by field. Refuses one of another type (SW-QUERY-KEY)."""
        shape = self._stream.known()[self._plan.id].shape
        self._check_parts(len(texts))
        return shape.text_parts(texts)

    def key_of_plain(self, given: Any) -> tuple[Any, ...]:
        """A key as JSON has it: its only part, a list of parts, or an object. Refuses one of another type (SW-QUERY-KEY)."""
        shape = self._stream.known()[self._plan.id].shape
        parts = shape.parts(shape.from_plain(given), fewer=True)
        self._check_parts(len(parts))
        return parts

    def _check_parts(self, count: int) -> None:
        if count != len(self._plan.key):
            raise WrongUse(
                "SW-QUERY-KEY",
                f"{self._plan.id} has the key {', '.join(self._plan.key)}, and {plural(count, 'value')} were given",
                "give a value for each field of the key",
            )

    def table(self) -> pa.Table:
        """All keys: the fields of answers, and `is_exact`, `run`, `seam` and `checkpoint`. Fields of the key come first if the
        answers do not have them.
        """
        found, stand = self._answer(None)
        names = [name for name in found.keys.schema.names if name not in found.both.schema.names]
        table = pa.Table.from_batches([found.keys.select(names)])
        for field, column in zip(found.both.schema, found.both.columns, strict=True):
            table = table.append_column(field, column)
        count = table.num_rows
        table = table.append_column("is_exact", pa.array(found.is_exact & (stand.run is not None)))
        for name in ("run", "seam", "checkpoint"):
            table = table.append_column(name, pa.array([getattr(stand, name)] * count, pa.int64()))
        return table

    def stand(self) -> Stand:
        """What answers are made of now."""
        return self._answer([])[1]

    def sql(self, query: str) -> pa.Table:
        """The result of SQL over `table`, which has the name of the lambda, with `_` in place of `-`. Needs the extra `sql`."""
        name = self._plan.id.replace("-", "_")
        with connect("View.sql") as db:
            db.register(name, self.table())
            try:
                found = db.sql(query)
            except duckdb_for("View.sql").Error as error:
                cause = " ".join(str(error).split())
                raise WrongUse("SW-STATE-SQL", f"DuckDB: {cause}", f"the only table is {name}") from None
            return pa.table({}) if found is None else found.to_arrow_table()

    @property
    def run(self) -> int | None:
        """The batch run that is shown; None before the first one. Reads no state."""
        return self._folder.look().shown

    @property
    def batch(self) -> State:
        """The state of the batch run that is shown, with what only a batch run computes."""
        self._follow()
        if self._run is None:
            raise JobFailed(
                "SW-LAMBDA-NO-RUN",
                f"no batch run of {self._plan.id} is complete",
                "start one: `streamwork lambda run job.py`",
            )
        return LocalState(self._run[2])

    def close(self) -> None:
        self._stream.close()
        if self._run is not None:
            self._run[2].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # ---- one run and one checkpoint -------------------------------------------------------------------------------

    def _answer(self, keys: list[tuple[Any, ...]] | None) -> tuple[Merged, Stand]:
        """`keys` None: all."""
        for _ in range(TRIES):
            self._follow()
            run = self._run
            (stream, epoch), stamp = self._stream.answer(NEWEST, lambda version: self._taken(version, keys))
            if run is not None and run[0].run not in self._folder.look().flips[-2:]:
                continue
            if run is None:
                return merged(self._plan, None, stream), Stand(epoch, stamp.age, None, None, None)
            seam, flip, reader = run
            if seam.uid != self._stream.uid or not self._stream.contains(seam.epoch, seam.fence):
                raise _not_in_the_past(seam, epoch)
            (batch, _), _ = reader.answer(NEWEST, lambda version: self._taken(version, keys))
            stand = Stand(epoch, stamp.age, seam.run, seam.epoch, flip.completed)
            return merged(self._plan, batch, behind(stream, seam.epoch)), stand
        raise JobFailed(
            "SW-LAMBDA-BUSY",
            f"batch runs of {self._plan.id} end faster than the view can be read",
            "start the next batch run when the one before has ended",
        )

    def _follow(self) -> None:
        """1."""
        shown = self._folder.look().shown
        if shown is None or (self._run is not None and self._run[0].run == shown):
            return
        seam, flip = self._folder.seam(shown), self._folder.shown(shown)
        reader = Reader(self._folder.root(shown) / flip.job, cache=self._cache)
        if self._run is not None:
            self._run[2].close()
        self._run = seam, flip, reader

    def _taken(self, version: Version, keys: list[tuple[Any, ...]] | None) -> tuple[pa.Table, int]:
        """(the rows of these keys, the checkpoint)"""
        pile = version.component(self._plan.id).pile
        if keys is None:
            return pile.table(), version.epoch
        found = [_of_key(pile, key) for key in dict.fromkeys(keys)]
        table = pa.concat_tables(found) if found else pile.shape.schema.empty_table()
        return table, version.epoch


def open_view(definition: Lambda[O], root: Path, cache: Path | None = None) -> View[O]:
    """The view of a lambda whose streaming job has this root. Refuses a root in which it has not run (SW-ROOT-EMPTY)."""
    store = open_store(root, definition.name)
    return View(definition.plan(), store.folder, cache)


def _of_key(pile: Pile, key: tuple[Any, ...]) -> pa.Table:
    parts = pile.shape.parts(key, fewer=True)
    return pile.between(Bound.of(parts, after=False), Bound.of(parts, after=True), EVERY_ROW)[0]


def _rows(keys: pa.RecordBatch) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in keys.columns), strict=True))


def _not_in_the_past(seam: Seam, epoch: int) -> JobFailed:
    return JobFailed(
        "SW-LAMBDA-SEAM",
        f"batch run {seam.run} counts up to checkpoint {seam.epoch}, and the streaming job was set back behind that before it came "
        f"to {epoch}",
        "start another batch run: `streamwork lambda run job.py`",
    )
