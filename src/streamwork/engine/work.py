"""What a driver asks of one instance of one chain: its part of an epoch."""

from __future__ import annotations

import msgspec

from streamwork.state import FileRef


class Work(msgspec.Struct, frozen=True):
    """What one instance needs to know to compute its part of an epoch."""

    instance: int
    uid: str
    folder: str
    groups: int
    epoch: int
    fence: int
    ranges: dict[str, dict[str, tuple[int, int]]]  # source -> partition -> from, to
    states: dict[str, tuple[FileRef, ...]]  # component -> the chain of files at `from`
    watermarks: dict[str, int | None] = {}  # source/partition -> event time so far; None where nothing has come yet
    ticks: tuple[int, ...] = ()
    chain: int = 0  # which chain of the layout
    memory: int | None = None  # bytes that the records of one component may take; the rest stays in columns
