"""The location of a batch in its segment, and the content of its header."""

from __future__ import annotations

import msgspec

from streamwork.log.frame import Frame


class Entry(msgspec.Struct, frozen=True):
    """One batch of a segment; `position` and `size` are bytes in the file, `base` and `end` are offsets."""

    base: int
    rows: int
    position: int
    size: int
    time: int
    synced: int
    transaction: str

    @classmethod
    def of(cls, frame: Frame) -> Entry:
        info = frame.info
        return cls(
            info.base, info.rows, frame.position, frame.end - frame.position, info.time, info.synced, info.transaction
        )

    @property
    def end(self) -> int:
        return self.base + self.rows

    @property
    def next_position(self) -> int:
        return self.position + self.size
