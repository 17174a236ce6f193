"""The inbox of a job: events that do not come from a source.

    inbox/000000000001.parquet    letters that a user replays, numbered; each file goes in once
    inbox/SOURCE/000000000042-FENCE-ATTEMPT-INSTANCE.parquet
                                  under acknowledging: what a source without offsets gave, written before it is processed.
                                  A driver adopts such a file of a lower fence by copying it to the name with its own fence
    inbox/@waiting/000000000042-FENCE-ATTEMPT.parquet
                                  under acknowledging: the events that have failed or are pending at checkpoint 42

No source can have an id with "@" or "." in it, so nothing of the inbox's own is taken for what a source gave. A job that ends
acknowledging leaves no event behind: those that wait go in as numbered files, too.

How many of the numbered files have gone in is part of every position ("inbox"), like the offset of a source. So under any
semantics a replayed letter counts as often as an event of a source does. An id counts once: if two drivers or two users put
the same one in, the file with the lowest number brings it.

Which of these files may be removed, when, and by which driver: see `epoch.effects`.
"""

from __future__ import annotations

import fcntl
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import pyarrow as pa

from streamwork.components.parquet_file import from_bytes, to_bytes
from streamwork.components.position import INBOX
from streamwork.delivery.acknowledger import Waiting
from streamwork.delivery.letters import Letter
from streamwork.errors import Refused
from streamwork.world import EPOCH_DIGITS, Disk, FileKind, FileRef, damaged, inside, number_of, read_whole

WAITING = f"{INBOX}/@waiting"
_TAKEN = re.compile(r"(\d{12})-(\d+)-([^-]+)-(\d+)\.parquet", re.ASCII)
_MOVED = "event:"
INBOX_FILE = FileKind("SW-INBOX-DAMAGED", "restore the file from a backup: it holds events that are not processed yet")
MOST_REPLAYS = 10_000
"""Maximum number of events that come back in one epoch: they travel with its assignments."""


class Replay(msgspec.Struct, frozen=True):
    """An event that is given to a component once more."""

    component: str
    instance: int
    event: str  # JSON
    root: int = -1  # under acknowledging: what it is known by in this epoch


class Taken(msgspec.Struct, frozen=True):
    """The name of a file in which an attempt kept what a source gave. Copies of it differ in the fence alone."""

    source: str
    epoch: int
    fence: int
    attempt: str
    instance: int

    @classmethod
    def of(cls, source: str, name: str) -> Taken | None:
        match = _TAKEN.fullmatch(name)
        return None if match is None else cls(source, int(match[1]), int(match[2]), match[3], int(match[4]))

    @property
    def key(self) -> str:
        """The same for all copies; no other attempt has it."""
        return f"{self.source}/{self.epoch:012d}-{self.attempt}-{self.instance}"

    @property
    def path(self) -> str:
        return f"{INBOX}/{self.source}/{self.epoch:012d}-{self.fence}-{self.attempt}-{self.instance}.parquet"


def taken_key(path: str) -> str:
    """The key of a file that a manifest names."""
    source, _, name = path.removeprefix(f"{INBOX}/").partition("/")
    taken = Taken.of(source, name)
    return path if taken is None else taken.key


class Entry(msgspec.Struct, frozen=True):
    """A row of a numbered file."""

    letter: str  # its id; of an event that was no letter, `moved_id`
    component: str
    instance: int
    event: str


class Inbox:
    def __init__(self, disk: Disk, folder: Path) -> None:
        """`folder` is that of the job."""
        self._disk = disk
        self._job = folder
        self._folder = folder / INBOX
        self._ids: dict[int, frozenset[str]] = {}  # of the numbered files that were read: they never change

    # ---- letters that are replayed --------------------------------------------------------------------------------

    def numbers(self) -> list[int]:
        names = (name.partition(".") for name in self._disk.names(self._folder))
        found = (number_of(stem, EPOCH_DIGITS) for stem, _, rest in names if rest == "parquet")
        return sorted(number for number in found if number is not None)

    def end(self, start: int) -> int:
        """How far an epoch that begins behind file `start` may go: as many files as fit."""
        rows, end = 0, start
        for number in [number for number in self.numbers() if number > start]:
            rows += len(self.read(number))
            if rows > MOST_REPLAYS and end > start:
                break
            end = number
        return end

    def between(self, start: int, end: int) -> list[Entry]:
        """What the files behind `start`, up to and with `end`, bring."""
        known: set[str] = set()
        found = []
        for number in self.numbers():
            if start < number <= end:
                found += [entry for entry in self.read(number) if entry.letter not in known]
            if number < end:
                known |= self._ids_of(number)
        return found

    def read(self, number: int) -> list[Entry]:
        path = self._folder / f"{number:012d}.parquet"
        try:
            return [msgspec.convert(row, Entry) for row in self._read(path)]
        except msgspec.ValidationError as error:
            raise damaged(INBOX_FILE, path, f"cannot be read ({error})") from None

    def replayed(self) -> set[str]:
        """The ids of the letters that were replayed."""
        return {letter for number in self.numbers() for letter in self._ids_of(number)}

    def _ids_of(self, number: int) -> frozenset[str]:
        if number not in self._ids:
            self._ids[number] = frozenset(entry.letter for entry in self.read(number))
        return self._ids[number]

    def put(self, letters: Sequence[Letter]) -> list[int]:
        """Replay letters. Refuses those that were replayed before; returns the numbers of the files."""
        self._disk.make_folder(self._folder)
        with self._locked():
            known = self.replayed()
            if twice := [letter.id for letter in letters if letter.id in known]:
                raise Refused(
                    "SW-LETTERS-REPLAYED",
                    f"{', '.join(twice[:3])}{' ...' if len(twice) > 3 else ''} was replayed before",
                    "leave it out: a letter goes in once. If it fails again, it is a new letter",
                )
            rows = [Entry(letter.id, letter.to, letter.instance, letter.event) for letter in letters]
            return self._append(rows)

    def move(self, entries: Sequence[Entry]) -> list[int]:
        """Put events in that were no letters, each once: those already there are left out. Only the driver calls this.
        Returns the numbers of the files.
        """
        known = self.replayed() if entries else set()
        return self._append([entry for entry in entries if entry.letter not in known])

    def _append(self, rows: Sequence[Entry]) -> list[int]:
        """A driver and a command may append at the same time: a number that is taken is skipped, and no row is left out."""
        number, numbers = max(self.numbers(), default=0), []
        for at in range(0, len(rows), MOST_REPLAYS):
            data = to_bytes(_table(rows[at : at + MOST_REPLAYS], Entry))
            self._disk.make_folder(self._folder)
            while True:
                number += 1
                try:
                    self._disk.create(self._folder / f"{number:012d}.parquet", data)
                    break
                except FileExistsError:
                    continue
            numbers.append(number)
        return numbers

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One command at a time: else two could replay the same letter."""
        with (self._folder / ".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    # ---- under acknowledging --------------------------------------------------------------------------------------

    def write_taken(self, source: str, stem: str, events: Sequence[str]) -> FileRef:
        """What a source without offsets gave: durable before it is processed."""
        return self._write(f"{INBOX}/{source}/{stem}.parquet", pa.table({"event": pa.array(events, pa.string())}))

    def read_taken(self, path: str) -> list[str]:
        return [str(row["event"]) for row in self._read(inside(self._job, path))]

    def taken(self, source: str, fence: int) -> list[Taken]:
        """The files of a source that this fence and lower ones have written, whether they count or not."""
        found = [Taken.of(source, name) for name in self._disk.names(self._folder / source)]
        return [one for one in found if one is not None and one.fence <= fence]

    def adopt(self, taken: Taken, fence: int) -> Taken:
        """Copy a file to the name with this fence, where no driver of a lower fence removes it."""
        mine = msgspec.structs.replace(taken, fence=fence)
        if taken.fence < fence:
            with suppress(FileExistsError):  # it has been copied before, and the old name came back
                self._disk.create(inside(self._job, mine.path), self._bytes(inside(self._job, taken.path)))
        return mine

    def discard(self, source: str, keys: Collection[str], fence: int) -> None:
        """Remove the files with these keys, durably, under the names of this fence and lower ones: never those of a higher one."""
        gone = [one for one in self.taken(source, fence) if one.key in keys]
        for one in gone:
            self._disk.discard(inside(self._job, one.path))
        if gone:
            self._disk.sync_names(self._folder / source)

    def write_waiting(self, stem: str, waiting: Sequence[Waiting]) -> FileRef:
        return self._write(f"{WAITING}/{stem}.parquet", _table(waiting, Waiting))

    def read_waiting(self, refs: Sequence[FileRef]) -> list[Waiting]:
        found = []
        for ref in refs:
            data = ref.read(self._disk, self._job, INBOX_FILE)
            found += [msgspec.convert(row, Waiting) for row in _rows(inside(self._job, ref.path), data)]
        return found

    def _write(self, path: str, table: pa.Table) -> FileRef:
        return FileRef.write(self._disk, self._job, path, to_bytes(table), table.num_rows)

    def _read(self, path: Path) -> list[dict[str, object]]:
        return _rows(path, self._bytes(path))

    def _bytes(self, path: Path) -> bytes:
        return read_whole(self._disk.read, path, INBOX_FILE)


def moved_id(event_id: str, epoch: int) -> str:
    """What an event that was no letter is known by in a numbered file: its id, and the checkpoint at which it waited."""
    return f"{_MOVED}{event_id}@{epoch}"


def tracked_id(entry: Entry) -> str:
    """The id of an event that comes out of a numbered file, under acknowledging: no other has it."""
    if not entry.letter.startswith(_MOVED):
        return f"letter:{entry.letter}"
    return entry.letter.removeprefix(_MOVED).partition("@")[0]


def _table(rows: Sequence[msgspec.Struct], kind: type[msgspec.Struct]) -> pa.Table:
    types: dict[object, pa.DataType] = {str: pa.string(), int: pa.int64(), bool: pa.bool_()}
    types[tuple[str, ...]] = pa.list_(pa.string())
    fields = [(field.name, types[field.type]) for field in msgspec.structs.fields(kind)]
    return pa.Table.from_pylist([msgspec.to_builtins(row) for row in rows], pa.schema(fields))


def _rows(path: Path, data: bytes) -> list[dict[str, object]]:
    try:
        rows: list[dict[str, object]] = from_bytes(data).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise damaged(INBOX_FILE, path, f"cannot be read ({error})") from None
    return rows
