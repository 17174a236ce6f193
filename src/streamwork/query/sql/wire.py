"""Messages between a process and its SQL child: a JSON head, then blocks of bytes, each with its length before it."""

from __future__ import annotations

from typing import BinaryIO

import msgspec

MOST_HEAD = 8 << 20


class SqlLimits(msgspec.Struct, frozen=True):
    """Of one statement."""

    rows: int = 1_000_000
    bytes: int = 256 << 20  # of the result
    memory: int = 2 << 30  # of the tables and of DuckDB, together
    seconds: float = 30.0


class Sent(msgspec.Struct, frozen=True):
    """A table that the child is to have: one that follows as a block, or one that it has kept."""

    names: tuple[str, ...]
    token: str
    follows: bool


class Asked(msgspec.Struct, frozen=True):
    sql: str
    tables: tuple[Sent, ...]
    limits: SqlLimits


class Answered(msgspec.Struct, frozen=True):
    """A result, which follows as a block, or why there is none: code, cause, action."""

    error: tuple[str, str, str] | None = None


def write(pipe: BinaryIO, head: Asked | Answered, *blocks: memoryview | bytes) -> None:
    for block in (msgspec.json.encode(head), *blocks):
        pipe.write(len(block).to_bytes(8, "little"))
        pipe.write(block)
    pipe.flush()


def read_block(pipe: BinaryIO, most: int) -> bytes:
    """Raises EOFError at the end of the pipe, ValueError for more than `most` bytes."""
    size = int.from_bytes(_exactly(pipe, 8), "little")
    if size > most:
        raise ValueError(f"a block of {size} bytes")
    return _exactly(pipe, size)


def _exactly(pipe: BinaryIO, size: int) -> bytes:
    found = pipe.read(size)
    if len(found) < size:
        raise EOFError
    return found
