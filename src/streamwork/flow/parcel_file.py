"""Parcels from one task to another, through files that the reader removes behind itself.

    exchange/FENCE/GANG/CHANNEL/000000.parcels, 000001.parcels, ...

A frame is the lengths of head and content, their CRC, and both; a head of length 0 ends a file. A reader waits for a frame that
is not complete. Files are never durable and never read again: a gang that ends leaves nothing behind that counts. So they do
not go through the `Disk`.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import msgspec

from streamwork.errors import JobFailed
from streamwork.flow.parcel import Parcel, TimedHead

FILE_BYTES = 4 << 20
"""A file that is larger is followed by another one."""
MOST_FILES = 16
"""A writer has no room while so many files have not been read."""
_FRAME = struct.Struct("<III")
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(TimedHead).decode


def pack(parcel: Parcel) -> bytes:
    """A parcel as one frame."""
    head, content = _encode(parcel.head), memoryview(parcel.content)
    return b"".join((_FRAME.pack(len(head), len(content), zlib.crc32(content, zlib.crc32(head))), head, content))


class FrameReader:
    """Cuts a stream of bytes into parcels."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self.ended = False

    def parcels(self, more: bytes) -> Iterator[Parcel]:
        """The parcels that are complete with these bytes."""
        self._bytes += more
        at, data = 0, self._bytes
        while len(data) - at >= _FRAME.size:
            size, content, crc = _FRAME.unpack_from(data, at)
            if size == 0:
                self.ended = True
                at += _FRAME.size
                break
            end = at + _FRAME.size + size + content
            if end > len(data):
                break
            body = bytes(data[at + _FRAME.size : end])
            if zlib.crc32(body) != crc:
                raise _damaged("its CRC does not match")
            try:
                head = _decode(body[:size])
            except msgspec.MsgspecError as error:
                raise _damaged(str(error)) from None
            yield Parcel(head, memoryview(body)[size:])
            at = end
        del self._bytes[:at]


END = _FRAME.pack(0, 0, 0)


class ParcelWriter:
    def __init__(self, folder: Path, file_bytes: int = FILE_BYTES, most_files: int = MOST_FILES) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._file_bytes = file_bytes
        self._most_files = most_files
        self._number = 0
        self._size = 0
        self._descriptor = self._open(0)
        self._unread: deque[Path] = deque()

    def write(self, parcel: Parcel) -> None:
        self._append(pack(parcel))
        if self._size >= self._file_bytes:
            self._append(END)
            os.close(self._descriptor)
            self._unread.append(file_path(self._folder, self._number))
            self._number += 1
            self._size = 0
            self._descriptor = self._open(self._number)

    def has_room(self) -> bool:
        """False while the reader is too far behind."""
        while len(self._unread) >= self._most_files:
            if self._unread[0].exists():
                return False
            self._unread.popleft()
        return True

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _append(self, data: bytes) -> None:
        view, written = memoryview(data), 0
        while written < len(view):
            written += os.write(self._descriptor, view[written:])
        self._size += written

    def _open(self, number: int) -> int:
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
        return os.open(file_path(self._folder, number), flags, 0o644)


class ParcelReader:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0
        self._descriptor: int | None = None
        self._frames = FrameReader()

    def read(self) -> Iterator[Parcel]:
        """The parcels that have come since the last call."""
        while True:
            if self._descriptor is None:
                try:
                    self._descriptor = os.open(file_path(self._folder, self._number), os.O_RDONLY | os.O_CLOEXEC)
                except FileNotFoundError:
                    return
            if not (found := os.read(self._descriptor, 1 << 20)):
                return
            yield from self._frames.parcels(found)
            if self._frames.ended:
                os.close(self._descriptor)
                file_path(self._folder, self._number).unlink(missing_ok=True)
                self._number += 1
                self._descriptor, self._frames = None, FrameReader()

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def file_path(folder: Path, number: int) -> Path:
    return folder / f"{number:06d}.parcels"


def _damaged(what: str) -> JobFailed:
    return JobFailed(
        "SW-EXCHANGE-DAMAGED",
        f"a parcel between two tasks cannot be read: {what}",
        "start again: the last checkpoint is good. If it happens again, check the disk that holds the job's folder",
    )
