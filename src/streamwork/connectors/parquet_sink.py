"""Parquet files as a sink: a checkpoint becomes visible atomically, and small files are merged.

    FOLDER/_owner.json                   uid and sink id of the job that writes it
    FOLDER/_staging/FENCE-TOKEN/         the staging folder of the registered driver; there is one
    FOLDER/epoch=42/part-N.parquet       rows of checkpoint 42 and of those after it, up to the next folder
    FOLDER/epoch=42/_ledger.json         the ledger row, as of the last of these checkpoints
    FOLDER/epoch=0/part-TOKEN.parquet    rows that were written immediately (`write`)

The newest folder grows until it has `folder_bytes`; then the next checkpoint begins another one. To grow, a folder is replaced
by one with hard links to its files, the new rows and the new ledger row, atomically (the two folders exchange
their names). When there are `MERGE_FILES` files, the small ones are merged with the new rows into one file, in the same step. So a
commit is one rename, or one exchange, and includes compaction:

    the driver dies               readers see                   left in staging               the next start
    before the exchange           the old folder                the new folder, or a part     removes it; commits the rows again
    after it                      the new folder                the old folder                removes it; the ledger has the rows

Rewinding removes the folders behind a checkpoint, newest first, and exchanges the one that has its rows with a shorter one. A crash
in between leaves the sink at the last checkpoint of an older folder, as its ledger says; rewinding again completes it.

Where folders cannot be exchanged (probed when a driver registers), each checkpoint gets a folder of its own, and nothing is merged.

A folder's number is that of the checkpoint, or the next free one: a job whose root was restored from a backup reuses
numbers that the target already has. The position alone decides whether rows are written; numbers only order the folders.

The fence needs no lock. A driver renames everything it adds out of its own staging folder, and a driver that registers with a
higher fence first renames that folder. So a rename of the older driver either precedes the newer driver's first read of the
ledger, or fails because its source is missing. A driver never creates its staging folder again.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from streamwork.components import Event, LedgerEntry, LedgerRow, Located, Sink, SinkKind
from streamwork.components.commit_rule import Verdict, settle, wrong_ledger
from streamwork.components.position import from_plain, plain
from streamwork.components.schema import arrow_schema
from streamwork.components.sink import fenced
from streamwork.connectors import parquet_commits as commits
from streamwork.connectors.folders import Folders
from streamwork.connectors.parquet_rewinding import Rewinding
from streamwork.connectors.pieces import gathered
from streamwork.connectors.sql_commits import Counted
from streamwork.errors import JobFailed, Refused, WrongUse

E = TypeVar("E", bound=Event)
LEDGER = commits.LEDGER
ROWS_PER_GROUP = 131_072
MERGE_FILES = 16  # in one folder
SMALL = 1 << 20  # bytes: smaller files are always merged
_STAGED = re.compile(r"([0-9]{12})-[0-9a-f]+")
_DEAD = re.compile(r"dead-[0-9]{12}-[0-9a-f]+")
_PART = re.compile(r"part-([0-9]+)\.parquet")
_EPOCH = re.compile(r"epoch=([1-9][0-9]*)")


class _StagingGone(Exception):
    """A newer driver has registered."""


class _Owner(msgspec.Struct, frozen=True):
    uid: str
    sink: str


class ParquetSink(Rewinding, Located, Sink[E], Generic[E]):
    """Adds events to a folder of Parquet files, which it creates; read it as ``FOLDER/epoch=*/*.parquet``.

    The folder must be on a file system that renames folders atomically: a disk, not an object store.

    A commit:
        1  applies the commit rule to the ledger row of the newest folder;
        2  writes rows and ledger row to ``epoch=N`` in the staging folder, with links to the files of the newest folder if that
           one grows, and syncs both and the folder;
        3  renames it into place, or exchanges it with the newest folder, and syncs the target.

    `folder_bytes` is the size at which a folder is full; 0 gives each checkpoint a folder of its own.
    """

    kind = SinkKind.TRANSACTIONAL

    def __init__(self, folder: str | Path, *, folder_bytes: int = 128 << 20) -> None:
        self.path = Path(folder)
        self._folder_bytes = folder_bytes
        self._swaps = False
        self._folders = Folders()
        self._schema: pa.Schema = None
        self._mine: Path | None = None  # the staging folder of this driver

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_mine": None}  # only the registered driver commits

    def check(self, event: type[E]) -> None:
        arrow_schema(event)
        if "epoch" in event.__struct_fields__:
            raise WrongUse(
                "SW-SINK-FIELD",
                f"{event.__name__} has a field named epoch, a name that readers use for the numbers of the folders",
                "rename the field",
            )

    def with_target(self, target: str) -> ParquetSink[E]:
        """FOLDER"""
        return ParquetSink(target, folder_bytes=self._folder_bytes)

    def used(self) -> str:
        names = (
            [name for name in self._folders.names(self.path) if not name.startswith("_")] if self.path.is_dir() else []
        )
        return f"folder {self.path} holds {names[0]}" if names else ""

    def open(self, event: type[E]) -> None:
        self.check(event)
        if not self.path.parent.is_dir():
            raise WrongUse(
                "SW-SINK-PATH", f"the folder of {self.path} does not exist", "create it, or correct the path in the job"
            )
        self._schema = arrow_schema(event)
        with self._failing():
            self._have(self.path)
            self._have(self._staging)
            self._folders.remove_abandoned(self.path / "epoch=0")

    def write(self, batch: pa.RecordBatch) -> None:
        folder, token = self.path / "epoch=0", secrets.token_hex(8)
        with self._failing():
            self._have(folder)
            with self._folders.temporary(folder) as hidden:
                self._folders.write_rows(hidden, self._schema, iter((batch,)))
                self._folders.rename(hidden, folder / f"part-{token}.parquet")
            self._folders.sync(folder)

    def register(self, uid: str, sink_id: str, fence: int) -> None:
        with self._failing(), self._turning_away(sink_id, fence):
            self._check_fence(sink_id, fence)
            mine = self._staging / f"{fence:012d}-{secrets.token_hex(8)}"
            self._folders.make(mine)
            self._folders.sync(self._staging)
            try:
                with self._mine_only(mine):
                    self._own(mine, uid, sink_id)
                self._check_fence(sink_id, fence)
            except Refused:
                self._folders.remove(mine)
                raise
            for name in self._folders.names(self._staging):
                if (staged := _STAGED.fullmatch(name)) and int(staged[1]) <= fence and name != mine.name:
                    with suppress(FileNotFoundError):  # another driver has renamed it
                        self._bury(name)
            self._folders.sync(self._staging)
            for name in self._folders.names(self._staging):
                if _DEAD.fullmatch(name):
                    self._folders.remove(self._staging / name)
            self._swaps = self._can_swap(mine)
        self._mine = mine

    def ledger(self, uid: str, sink_id: str) -> LedgerRow | None:
        with self._failing():
            fences = self._fences()
            newest = self._newest()
            if newest is None:
                return LedgerRow(max(fences), None, "") if fences else None
            found = self._read(newest)
            if (found.uid, found.sink) != (uid, sink_id):
                return None
            return LedgerRow(max([*fences, found.fence]), found.position, found.manifest_sha256)

    def commit(self, entry: LedgerEntry, staged: Iterator[pa.RecordBatch]) -> None:
        row = self.ledger(entry.uid, entry.sink)
        verdict = settle(row, entry)  # 1
        if verdict is Verdict.SKIP:
            return
        assert row is not None
        if self._mine is None:
            raise wrong_ledger(entry.sink, row, f"this sink commits checkpoint {entry.epoch}, but has not registered")
        position = entry.end if verdict is Verdict.APPLY else row.position
        assert position is not None
        with self._failing(), self._turning_away(entry.sink, entry.fence):
            newest = self._newest()
            found = None if newest is None else self._read(newest)
            last = 0 if found is None else found.last or newest or 0
            ledger = commits.Ledger(entry.uid, entry.sink, position, entry.fence, entry.manifest_sha256, last)
            if verdict is Verdict.ADOPT:
                assert newest is not None and found is not None
                if row.manifest_sha256 != entry.manifest_sha256:
                    more = commits.noted(found.commits, entry.manifest_sha256, found.rows)
                    self._adopt(self._mine, newest, msgspec.structs.replace(ledger, rows=found.rows, commits=more))
            else:
                number = max(entry.epoch, last + 1)
                self._apply(self._mine, number, newest, found, msgspec.structs.replace(ledger, last=number), staged)

    def _apply(
        self,
        mine: Path,
        number: int,
        newest: int | None,
        found: commits.Ledger | None,
        ledger: commits.Ledger,
        staged: Iterator[pa.RecordBatch],
    ) -> None:
        files = [] if newest is None else self._files(newest)
        others = [] if newest is None else self._others(newest)
        small = newest is not None and sum(size for _, size in files) < self._folder_bytes
        grows = self._swaps and small and all(path.is_file() for path in others)
        name = f"epoch={newest if grows else number}"
        made, target = mine / name, self.path / name
        self._folders.remove(made)  # of a failed attempt, or a replaced folder
        with self._mine_only(mine):
            self._folders.make(made)  # 2
        keep = self._linked(files) if grows else 0
        merged = [path for path, _ in files[keep:]] if grows else []
        counted = Counted(staged)
        pieces = gathered(chain(_rows_of(merged), counted), ROWS_PER_GROUP)
        first = next(pieces, None)
        with self._mine_only(mine):
            for path in [*(path for path, _ in files[:keep]), *others] if grows else ():
                self._folders.link(path, made / path.name)
            if first is not None:
                self._folders.write_rows(made / f"part-{number}.parquet", self._schema, chain((first,), pieces))
            before = found if grows else None
            known = before is None or before.rows != commits.UNKNOWN
            rows = (0 if before is None else before.rows) + counted.rows if known else commits.UNKNOWN
            more = commits.noted(() if before is None else before.commits, ledger.manifest_sha256, rows)
            self._write_ledger(made / LEDGER, msgspec.structs.replace(ledger, rows=rows, commits=more))
            self._folders.sync(made)
            if grows:
                self._folders.exchange(made, target)  # 3
            else:
                self._folders.rename(made, target)  # 3
        self._folders.sync(self.path)
        with suppress(FileNotFoundError):  # a newer driver may have renamed it
            self._folders.sync(mine)
        if grows:
            self._folders.remove(made)

    def _files(self, number: int) -> list[tuple[Path, int]]:
        """The files of a folder and their sizes, in the order of their rows."""
        folder = self.path / f"epoch={number}"
        found = [(int(match[1]), name) for name in self._folders.names(folder) if (match := _PART.fullmatch(name))]
        return [(folder / name, (folder / name).stat().st_size) for _, name in sorted(found)]

    def _others(self, number: int) -> list[Path]:
        """Files in a folder that this sink has not written. They are kept. (A folder with a subfolder, which cannot be linked, does
        not grow.)
        """
        folder = self.path / f"epoch={number}"
        names = self._folders.names(folder)
        return [folder / name for name in names if name != LEDGER and not _PART.fullmatch(name)]

    def _linked(self, files: Sequence[tuple[Path, int]]) -> int:
        """The number of files at the beginning that are linked; the others are merged with the new rows. Files with an older
        schema of the event are linked.
        """
        least, keep = mergeable([size for _, size in files]), len(files)
        while keep > least and self._schema.equals(pq.read_schema(files[keep - 1][0])):
            keep -= 1
        return keep

    def _can_swap(self, mine: Path) -> bool:
        """True if this file system can exchange folders and link files."""
        if not self._folder_bytes:
            return False
        one, other = mine / "probe-1", mine / "probe-2"
        try:
            with self._mine_only(mine):
                self._folders.make(one)
                self._folders.make(other)
                self._folders.write(one / "file", b"")
                self._folders.link(one / "file", other / "file")
                self._folders.exchange(one, other)
            return True
        except OSError:
            return False
        finally:
            self._folders.remove(one)
            self._folders.remove(other)

    def _adopt(self, mine: Path, newest: int, ledger: commits.Ledger) -> None:
        """Write another manifest into the ledger row of the newest folder, whose rows are already there."""
        made, folder = mine / f"adopt-{secrets.token_hex(4)}.json", self.path / f"epoch={newest}"
        with self._mine_only(mine):
            self._write_ledger(made, ledger)
            self._folders.rename(made, folder / LEDGER)
        self._folders.sync(folder)

    def _write_ledger(self, path: Path, ledger: commits.Ledger) -> None:
        self._folders.write(path, msgspec.json.encode(ledger, order="sorted", enc_hook=plain))

    @contextmanager
    def _mine_only(self, mine: Path) -> Iterator[None]:
        """Raise _StagingGone if a file is not found because a newer driver has renamed the staging folder."""
        try:
            yield
        except FileNotFoundError:
            if mine.name in self._folders.names(self._staging):
                raise
            raise _StagingGone from None

    @contextmanager
    def _turning_away(self, sink_id: str, fence: int) -> Iterator[None]:
        try:
            yield
        except _StagingGone:
            raise fenced(sink_id, max([*self._fences(), fence + 1]), fence) from None

    # ---- fence and owner ---------------------------------------------------------------------------------------------

    @property
    def _staging(self) -> Path:
        return self.path / "_staging"

    def _fences(self) -> list[int]:
        found = (_STAGED.fullmatch(name) for name in self._folders.names(self._staging))
        return [int(match[1]) for match in found if match]

    def _check_fence(self, sink_id: str, fence: int) -> None:
        newest = self._newest()
        known = [*self._fences(), self._read(newest).fence if newest is not None else 0]
        if max(known) > fence:
            raise fenced(sink_id, max(known), fence)

    def _bury(self, name: str) -> None:
        self._folders.rename(self._staging / name, self._staging / f"dead-{name}")

    def _own(self, mine: Path, uid: str, sink_id: str) -> None:
        owner, path = _Owner(uid, sink_id), self.path / "_owner.json"
        try:
            draft = mine / "owner.json"
            self._folders.write(draft, msgspec.json.encode(owner))
            self._folders.create(draft, path)
            self._folders.sync(self.path)
        except FileExistsError:
            found = msgspec.json.decode(path.read_bytes(), type=_Owner)
            if found != owner:
                raise Refused(
                    "SW-SINK-OWNED",
                    f"folder {self.path} belongs to sink {found.sink!r} of "
                    + ("this job" if found.uid == uid else f"a job with another root (uid {found.uid})"),
                    "run with the --root that the folder was written from, and the sink's old id; or write to another folder; or "
                    "remove this one to start from scratch",
                ) from None

    # ---- files -------------------------------------------------------------------------------------------------------

    def _numbers(self) -> list[int]:
        found = (_EPOCH.fullmatch(name) for name in self._folders.names(self.path))
        return [int(match[1]) for match in found if match]

    def _newest(self) -> int | None:
        return max(self._numbers(), default=None)

    def _read(self, epoch: int) -> commits.Ledger:
        path = self.path / f"epoch={epoch}" / LEDGER
        try:
            return msgspec.json.decode(path.read_bytes(), type=commits.Ledger, dec_hook=from_plain)
        except (FileNotFoundError, msgspec.DecodeError) as error:
            raise Refused(
                "SW-SINK-LEDGER",
                f"{path} cannot be read: {error}",
                "restore it from a backup; or, if the folder does not belong to this sink, move it away",
            ) from error

    def _have(self, folder: Path) -> None:
        if not folder.is_dir():
            try:
                self._folders.make(folder)
            except FileExistsError:
                return
            self._folders.sync(folder.parent)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise JobFailed(
                "SW-SINK-FAILED",
                f"{self.path}: {error}",
                "check free space and permissions of the disk, and start again: nothing is lost",
            ) from error


def mergeable(sizes: Sequence[int]) -> int:
    """The number of files that are not merged. From `MERGE_FILES` files on, those at the end are merged: each that is small, or not
    larger than all after it together. So a row is merged about once for each doubling of the folder's size.
    """
    if len(sizes) < MERGE_FILES:
        return len(sizes)
    keep, after = len(sizes), 0
    while keep and sizes[keep - 1] <= max(after, SMALL):
        keep -= 1
        after += sizes[keep]
    return keep


def _rows_of(files: Sequence[Path]) -> Iterator[pa.RecordBatch]:
    for path in files:
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches(ROWS_PER_GROUP, use_threads=False)
