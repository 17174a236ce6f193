"""A disk in memory that loses unsynced data in a crash, and that can be full, fail, and return damaged data.

It gives the guarantees of `streamwork.world.Disk`, and no others:

- a prefix of the unsynced writes survives a crash. The last write of the prefix is torn, sometimes with 512-byte holes, since
  pages reach a disk in any order;
- names created, replaced or removed are durable when the call has returned. After a crash within the call, either is possible;
- a file whose name survived has only the bytes that survived;
- a crash, or the death of a writer, within `create` and `replace` may leave a temporary file behind.

The seed decides among the possible outcomes. Each operation consists of steps (write, sync, link, rename,
unlink, sync of the folder), and `crash_at(n)` crashes in the n-th: run once to learn `steps`, then once for each n.

    disk = SimulatedDisk(seed=7)
    ...                                  # run the code under test with this disk
    disk.crash()                         # power failure: open files are dead
    ...                                  # recover with this disk, and check
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from streamwork.world.temporary import PREFIX

_HOLE = 512


class DiskCrashed(BaseException):
    """The simulated machine has crashed. Not an Exception, so that no handler in the code under test catches it."""


class Survival(Enum):
    """Which unsynced writes survive a crash."""

    SEEDED = "seeded"
    NOTHING = "nothing"
    EVERYTHING = "everything"


class _File:
    """`content`: the bytes that programs read. `durable`: the synced bytes. `pending`: the unsynced writes between the two."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.durable = b""
        self.pending: list[tuple[int, bytes | None]] = []  # (position, bytes), or (size, None) for a cut

    def write(self, data: bytes) -> None:
        self.pending.append((len(self.content), data))
        self.content += data

    def truncate(self, size: int) -> None:
        self.pending.append((size, None))
        _cut(self.content, size)

    def sync(self) -> None:
        self.durable = bytes(self.content)
        self.pending = []

    def flip(self, position: int, mask: int) -> None:
        self.content[position] ^= mask
        if position < len(self.durable):
            self.durable = _flipped(self.durable, position, mask)
        self.pending = [
            (at, _flipped(data, position - at, mask) if data is not None and at <= position < at + len(data) else data)
            for at, data in self.pending
        ]

    def after_crash(self, survival: Survival, rng: random.Random) -> bytes:
        if survival is Survival.EVERYTHING or not self.pending:
            return bytes(self.content)
        if survival is Survival.NOTHING:
            return self.durable
        content, written = bytearray(self.durable), len(self.durable)
        whole = rng.randint(0, len(self.pending))
        for place, (position, data) in enumerate(self.pending[: whole + 1]):
            if data is None:
                if place < whole:
                    _cut(content, position)
                    written = min(written, position)
                continue
            kept = data if place < whole else data[: rng.randint(0, len(data))]
            content[position : position + len(kept)] = kept
        if rng.random() < 0.25:
            _make_holes(content, written, rng)
        return bytes(content)


def _flipped(data: bytes, position: int, mask: int) -> bytes:
    return data[:position] + bytes([data[position] ^ mask]) + data[position + 1 :]


def _cut(content: bytearray, size: int) -> None:
    del content[size:]
    content.extend(b"\0" * (size - len(content)))


def _make_holes(content: bytearray, start: int, rng: random.Random) -> None:
    for block in range(start // _HOLE * _HOLE, len(content), _HOLE):
        if rng.random() < 0.3:
            low, high = max(block, start), min(block + _HOLE, len(content))
            content[low:high] = b"\0" * (high - low)


_FOLDER = _File()  # stands for a folder among the names
_Names = dict[Path, _File]


class SimulatedDisk:
    """A `Disk`. With `honest=False` no sync has an effect: the negative control of tests about durability."""

    def __init__(self, seed: int = 0, *, honest: bool = True, capacity: int | None = None) -> None:
        self.capacity = capacity
        """Capacity in bytes; None for no limit. May be changed at any time, also to less than is in use."""
        self.steps = 0
        """The number of steps so far that changed something."""
        self.trace: list[str] = []
        """One line of text per step."""
        self.life = 0
        """The number of crashes so far."""
        self._rng = random.Random(seed)
        self._honest = honest
        self._names: _Names = {}
        self._durable: _Names = {}
        self._pending: dict[Path, list[tuple[Path, _File | None]]] = {}  # per folder
        self._crash_at: int | None = None
        self._failures: dict[int, int] = {}
        self._dead = False
        self._serial = 0
        self._writing: set[Path] = set()  # temporary files of live writers

    # Faults, injected by tests.

    def crash_at(self, step: int | None) -> None:
        """Crash in the step with this number (see `steps`): from then on every operation raises DiskCrashed, until `crash`."""
        self._crash_at = step

    def fail_at(self, step: int, code: int = errno.EIO) -> None:
        """Make the step with this number fail with an OSError, once."""
        self._failures[step] = code

    def crash(self, survival: Survival = Survival.SEEDED) -> None:
        """Simulate a power failure and a restart. Unsynced data is lost, completely or in part."""
        for changes in self._pending.values():
            self._apply_changes(
                changes, len(changes) if survival is Survival.EVERYTHING else self._chosen(changes, survival)
            )
        self._pending = {}
        alive = {path: file for path, file in self._durable.items() if self._has_folders(path, self._durable)}
        for file in {id(file): file for file in alive.values() if file is not _FOLDER}.values():
            file.content = bytearray(file.after_crash(survival, self._rng))
            file.sync()
        self._names, self._durable = dict(alive), dict(alive)
        self._dead, self._crash_at, self._failures = False, None, {}
        self.life += 1

    def _chosen(self, changes: list[Any], survival: Survival) -> int:
        return 0 if survival is Survival.NOTHING else self._rng.randint(0, len(changes))

    def flip(self, path: Path, position: int, bit: int = 0) -> None:
        """Flip one bit of a file, as a failing disk does."""
        self._file(path).flip(position, 1 << bit)

    def flip_somewhere(self, path: Path) -> int:
        """Flip a bit that the seed chooses. Returns its position in bytes."""
        position = self._rng.randrange(self.size(path))
        self.flip(path, position, self._rng.randrange(8))
        return position

    def abandoned(self) -> list[Path]:
        """Temporary files whose writer is dead."""
        return [path for path in self._names if path.name.startswith(PREFIX) and path not in self._writing]

    @property
    def used(self) -> int:
        return sum(len(f.content) for f in {id(f): f for f in self._names.values()}.values())

    # The Disk.

    def read(self, path: Path) -> bytes:
        return bytes(self._file(path).content)

    def read_at(self, path: Path, position: int, size: int) -> bytes:
        return bytes(self._file(path).content[position : position + size])

    def map(self, path: Path) -> pa.Buffer:
        return pa.py_buffer(self.read(path))

    def size(self, path: Path) -> int:
        return len(self._file(path).content)

    def exists(self, path: Path) -> bool:
        self._check_alive()
        return path in self._names

    def names(self, folder: Path) -> list[str]:
        self._check_alive()
        prefix = f"{folder}/"  # strings compare much faster than paths
        below = (text[len(prefix) :] for text in map(str, self._names) if text.startswith(prefix))
        return sorted(name for name in below if "/" not in name and not name.startswith(PREFIX))

    def make_folder(self, folder: Path) -> None:
        self._check_alive()
        if folder == folder.parent or folder in self._names:
            return
        self.make_folder(folder.parent)
        self._rename(f"mkdir {folder}", folder, _FOLDER)
        self._sync_folder(folder.parent)

    def create(self, path: Path, data: bytes) -> None:
        def link(temporary: Path) -> None:
            if path in self._names:
                raise FileExistsError(errno.EEXIST, "taken", str(path))
            self._point(path, self._names[temporary])

        with self._written(path.parent, data) as temporary:
            self._step(f"link {path}", lambda: link(temporary))
        self._sync_folder(path.parent)

    def replace(self, path: Path, data: bytes) -> None:
        with self._written(path.parent, data) as temporary:
            self._step(f"rename {path}", lambda: self._move(temporary, path))
        self._sync_folder(path.parent)

    def remove(self, path: Path) -> None:
        self._check_alive()
        if path in self._names:
            self._rename(f"unlink {path}", path, None)
            self._sync_folder(path.parent)

    def discard(self, path: Path) -> None:
        self._check_alive()
        if path in self._names:
            self._rename(f"unlink {path}", path, None)

    def move(self, path: Path, target: Path) -> None:
        if not self._has_folders(target, self._names):
            raise FileNotFoundError(errno.ENOENT, "no such folder", str(target.parent))
        self._step(f"rename {path} to {target}", lambda: self._move(path, target))
        self._sync_folder(target.parent)
        self._sync_folder(path.parent)

    def sync(self, path: Path) -> None:
        self.sync_file(self._file(path), path)

    def sync_names(self, folder: Path) -> None:
        self._check_alive()
        if folder == folder.parent or self._names.get(folder) is _FOLDER:  # "/" is always there
            self._sync_folder(folder)

    def open_append(self, path: Path) -> SimulatedFile:
        self._check_alive()
        if path not in self._names:
            self._rename(f"create {path}", path, _File())
            self._sync_folder(path.parent)
        return SimulatedFile(self, path, self._file(path))

    def remove_tree(self, folder: Path) -> None:
        self._check_alive()
        for path in sorted((path for path in self._names if folder in (path, *path.parents)), reverse=True):
            self._rename(f"unlink {path}", path, None)
        self.sync_names(folder.parent)

    def remove_abandoned(self, folder: Path, *, below: bool = False) -> None:
        self._check_alive()
        for path in self.abandoned():
            if path.parent == folder or (below and folder in path.parents):
                self.discard(path)

    # Steps.

    def sync_file(self, file: _File, path: Path) -> None:
        self._step(f"sync {path}", file.sync if self._honest else lambda: None, atomic=True)

    def write_file(self, file: _File, path: Path, data: bytes) -> int:
        room = len(data) if self.capacity is None else max(0, min(len(data), self.capacity - self.used))
        self._step(f"write {room} of {len(data)} to {path}", lambda: file.write(data[:room]))
        if room < len(data):
            raise OSError(errno.ENOSPC, "no space left on the simulated disk", str(path))
        return room

    def truncate_file(self, file: _File, path: Path, size: int) -> None:
        self._step(f"truncate {path} to {size}", lambda: file.truncate(size))

    def _step(self, what: str, effect: Callable[[], None], atomic: bool = False) -> None:
        """Run one step. A crash in a step that is not `atomic` comes after its effect: `crash` decides what survives of it."""
        self._check_alive()
        self.steps += 1
        self.trace.append(f"{self.steps}: {what}")
        if (code := self._failures.pop(self.steps, None)) is not None:
            raise OSError(code, f"simulated failure in step {self.steps}: {what}")
        crashes = self.steps == self._crash_at
        if not (crashes and atomic):
            effect()
        if crashes:
            self._dead = True
            raise DiskCrashed(f"in step {self.steps}: {what}")

    def _rename(self, what: str, path: Path, file: _File | None) -> None:
        if file is not None and not self._has_folders(path, self._names):
            raise FileNotFoundError(errno.ENOENT, "no such folder", str(path.parent))
        self._step(what, lambda: self._point(path, file))

    def _point(self, path: Path, file: _File | None) -> None:
        if file is None:
            self._names.pop(path, None)
        else:
            self._names[path] = file
        self._pending.setdefault(path.parent, []).append((path, file))

    def _move(self, old: Path, new: Path) -> None:
        if old not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(old))
        self._point(new, self._names[old])
        self._point(old, None)  # a crash may leave both names: one more temporary file

    def _sync_folder(self, folder: Path) -> None:
        def apply_changes() -> None:
            if self._honest:
                changes = self._pending.pop(folder, [])
                self._apply_changes(changes, len(changes))

        self._step(f"sync folder {folder}", apply_changes, atomic=True)

    def _apply_changes(self, changes: list[tuple[Path, _File | None]], count: int) -> None:
        for path, file in changes[:count]:
            if file is None:
                self._durable.pop(path, None)
            else:
                self._durable[path] = file

    @contextmanager
    def _written(self, folder: Path, data: bytes) -> Iterator[Path]:
        """A file under a temporary name. The end of the block removes it, unless the writer dies in the block."""
        self._check_alive()
        self._serial += 1
        temporary, file = folder / f"{PREFIX}{self._serial:012x}", _File()
        self._writing.add(temporary)
        try:
            self._rename(f"create {temporary}", temporary, file)
            try:
                self.write_file(file, temporary, bytes(data))
                self.sync_file(file, temporary)
                yield temporary
            except OSError:
                self.discard(temporary)
                raise
            self.discard(temporary)
        finally:
            self._writing.discard(temporary)

    def _file(self, path: Path) -> _File:
        self._check_alive()
        file = self._names.get(path)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        if file is _FOLDER:
            raise IsADirectoryError(errno.EISDIR, "a folder", str(path))
        return file

    @staticmethod
    def _has_folders(path: Path, names: _Names) -> bool:
        return all(folder == folder.parent or names.get(folder) is _FOLDER for folder in path.parents)

    def _check_alive(self) -> None:
        if self._dead:
            raise DiskCrashed("the simulated machine is down until crash() restarts it")


class SimulatedFile:
    """A `DiskFile` of a `SimulatedDisk`; dead after a crash."""

    def __init__(self, disk: SimulatedDisk, path: Path, file: _File) -> None:
        self._disk, self._path, self._file = disk, path, file
        self._life = disk.life

    def write(self, data: Any) -> int:
        self._check_life()
        return self._disk.write_file(self._file, self._path, bytes(data))

    def sync(self) -> None:
        self._check_life()
        self._disk.sync_file(self._file, self._path)

    def truncate(self, size: int) -> None:
        self._check_life()
        self._disk.truncate_file(self._file, self._path, size)

    def tell(self) -> int:
        return len(self._file.content)

    def close(self) -> None:
        """Does nothing."""

    def _check_life(self) -> None:
        if self._life != self._disk.life:
            raise DiskCrashed("this file was open when the simulated machine crashed")

    def __enter__(self) -> SimulatedFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
