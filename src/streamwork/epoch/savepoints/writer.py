"""`SavepointWriter`: writes the folder of a savepoint.

    1  begin   `begun.json`, created exclusively: of two writers of one name one is refused
    2  add     any number of files, each durable when the call returns, under a name that is new
    3  seal    `savepoint.json` with the hashes of them all, created exclusively

What a crash leaves:

    in 1, 2    a folder without `savepoint.json`: half-made. It is listed as such, refused by every reader, and removed by `drop`
    in 3       the same, or a complete savepoint
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from streamwork.epoch.savepoints.record import BEGUN, DONE, Begun, SavepointRecord, read_begun
from streamwork.epoch.sealed import to_bytes
from streamwork.errors import Refused
from streamwork.job.names import check_name
from streamwork.state import StateFiles
from streamwork.world import Disk, FileKind, FileRef


class SavepointWriter:
    def __init__(self, disk: Disk, folder: Path, begun: Begun) -> None:
        self.disk = disk
        self.folder = folder
        self.begun = begun
        self.files = StateFiles(disk, folder)
        """Writes state files of the savepoint: they count once the record names them."""

    @classmethod
    def begin(cls, disk: Disk, folder: Path, begun: Begun) -> SavepointWriter:
        """1. Refuses a name that is not usable, and one that is taken."""
        check_name(begun.name, "savepoint")
        check_free(disk, folder)
        disk.make_folder(folder)
        for above in (folder.parent.parent, folder.parent):  # names that a killed writer made may not be durable
            disk.sync_names(above)
        try:
            disk.create(folder / BEGUN, to_bytes(begun))
        except FileExistsError:
            raise _taken(disk, folder) from None
        return cls(disk, folder, begun)

    def add(self, path: str, data: bytes, rows: int = 0) -> FileRef:
        """2. A file of its own."""
        return FileRef.write(self.disk, self.folder, path, data, rows)

    def add_sealed(self, path: str, value: msgspec.Struct) -> FileRef:
        """2. A value as a sealed file."""
        return self.add(path, to_bytes(value))

    def copy(self, folder: Path, ref: FileRef, kind: FileKind) -> FileRef:
        """2. A file of another folder, under the path that it has there. Refuses one that was changed."""
        data = ref.read(self.disk, folder, kind)
        return FileRef.write(self.disk, self.folder, ref.path, data, ref.rows)

    def seal(self, record: SavepointRecord) -> SavepointRecord:
        """3. From here on the savepoint counts."""
        self.disk.create(self.folder / DONE, to_bytes(record))
        return record


def check_free(disk: Disk, folder: Path) -> None:
    """Refuse a folder that has something in it."""
    if disk.names(folder):
        raise _taken(disk, folder)


def _taken(disk: Disk, folder: Path) -> Refused:
    begun = read_begun(disk, folder)
    by = "" if begun is None else f", by {begun.by}"
    half = "" if disk.exists(folder / DONE) else "half-made "
    return Refused(
        "SW-SAVEPOINT-EXISTS",
        f"there is a {half}savepoint {folder.name!r} already{by} ({folder})",
        f"choose another name, or remove that one first: `streamwork savepoint drop JOBFILE {folder.name}`. Nothing was written",
    )
