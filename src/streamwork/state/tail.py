"""Files of changes behind the newest checkpoint, which tasks of live mode append to and readers follow (`consistency="latest"`).

    exchange/FENCE/latest/GANG/COMPONENT.INSTANCE.EPOCH.PART     frames; a higher part replaces the lower ones of its epoch

    frame   size of the body, CRC-32 of the body (4 bytes each, little-endian), body
    body    when it was written (a double), then rows as a stream of Arrow IPC: key, record and `__deleted`

Nothing here is durable or counts for a restart, so the files do not go through the `Disk`. A frame that is not whole, or whose
checksum is wrong, ends what can be read of a file.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from streamwork.world import number_of

FOLDER = "latest"
MOST_BODY = 1 << 30
_HEAD = struct.Struct("<II")
_WRITTEN = struct.Struct("<d")


class Frame(NamedTuple):
    written: float
    rows: pa.Table


@dataclass(frozen=True, order=True)
class TailName:
    """The name of a file."""

    component: str
    instance: int
    epoch: int
    part: int

    def __str__(self) -> str:
        return f"{self.component}.{self.instance}.{self.epoch}.{self.part}"

    @classmethod
    def parse(cls, text: str) -> TailName | None:
        component, *rest = text.split(".")
        numbers = [number for one in rest if (number := number_of(one)) is not None]
        return cls(component, *numbers) if len(numbers) == len(rest) == 3 else None


class TailWriter:
    def __init__(self, path: Path) -> None:
        """Creates a file in a folder that exists."""
        self.path = path
        self.size = 0
        self._descriptor = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def append(self, written: float, rows: pa.Table) -> None:
        frame = memoryview(encoded(written, rows))
        while frame:  # the disk is full, or the frame is larger than one write takes
            count = os.write(self._descriptor, frame)
            self.size += count
            frame = frame[count:]

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def remove(self) -> None:
        self.close()
        with contextlib.suppress(OSError):
            self.path.unlink()


def encoded(written: float, rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    sink.write(_WRITTEN.pack(written))
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        for batch in rows.to_batches():
            writer.write_batch(batch)
    body = memoryview(sink.getvalue())
    return b"".join((_HEAD.pack(len(body), zlib.crc32(body)), body))


def frames(data: bytes) -> Iterator[tuple[int, Frame]]:
    """(where the frame ends, the frame), as far as frames are whole."""
    view, at = memoryview(data), 0
    while len(view) >= at + _HEAD.size:
        size, checksum = _HEAD.unpack_from(view, at)
        body = view[at + _HEAD.size : at + _HEAD.size + size]
        if not _WRITTEN.size < size <= MOST_BODY or len(body) < size or zlib.crc32(body) != checksum:
            return
        at += _HEAD.size + size
        with pa.ipc.open_stream(pa.py_buffer(body[_WRITTEN.size :])) as reader:
            yield at, Frame(_WRITTEN.unpack_from(body)[0], reader.read_all())
