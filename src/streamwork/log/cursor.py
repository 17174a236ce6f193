"""A reader's place in a log: seek, pull, wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Literal, Protocol

from streamwork.errors import StreamworkError, WrongUse
from streamwork.log.partition import Chunk
from streamwork.world import Clock

Where = int | datetime | Literal["start", "end"] | Mapping[int, int]

# Waits grow from 0.05 to 3 ms: a reader sees an event within a few milliseconds, and an idle reader uses little CPU.
_FIRST_WAIT = 0.000_05
_LONGEST_WAIT = 0.003


class Readable(Protocol):
    """The methods of a log that a cursor uses."""

    def partitions(self) -> list[int]: ...

    def start(self, partition: int) -> int: ...

    def ends(self) -> dict[int, int]: ...

    def offset_at(self, partition: int, time: datetime) -> int: ...

    def read_chunks(self, partition: int, start: int, end: int) -> Iterator[Chunk]: ...


class Cursor:
    """Reads all partitions of a log, each in offset order. Not thread-safe."""

    def __init__(self, log: Readable, clock: Clock, where: Where = "start") -> None:
        self._log = log
        self._clock = clock
        self._turn = 0
        self.positions: dict[int, int] = {}
        self.seek(where)

    def seek(self, where: Where, partition: int | None = None) -> None:
        """Move to the start, the end, a time (the first event appended at that time or later) or an offset.

        Without `partition` all partitions move. An offset applies to one partition: in a log with several, pass `partition`,
        or offsets as ``{partition: offset}``.
        """
        known = self._log.partitions()
        if isinstance(where, Mapping):
            for number, offset in where.items():
                self.seek(offset, number)
            return
        chosen = known if partition is None else [partition]
        if any(number not in known for number in chosen):
            partitions = ", ".join(map(str, known))
            raise WrongUse("SW-LOG-SEEK", f"the log has no partition {partition}", f"use one of {partitions}")
        ends = self._log.ends() if where == "end" else {}
        for number in chosen:
            self.positions[number] = self._target(where, number, len(chosen), ends)

    def _target(self, where: object, partition: int, chosen: int, ends: Mapping[int, int]) -> int:
        if where == "start":
            return self._log.start(partition)
        if where == "end":
            return ends[partition]
        if isinstance(where, datetime):
            return self._log.offset_at(partition, where)
        if isinstance(where, int) and not isinstance(where, bool) and where >= 0 and chosen == 1:
            return where
        raise WrongUse(
            "SW-LOG-SEEK",
            f"cannot seek to {where!r}" + (" in several partitions at once" if isinstance(where, int) else ""),
            'seek to "start", "end", a datetime with a time zone, an offset with partition=, or {partition: offset}',
        )

    def pull(self, max_events: int, timeout: float = 0.0) -> list[Chunk]:
        """The next events, at most `max_events`; empty if none arrived within `timeout` seconds."""
        deadline = self._clock.monotonic() + timeout
        wait = _FIRST_WAIT
        while not (chunks := self._pull_now(max_events)):
            left = deadline - self._clock.monotonic()
            if left <= 0:
                break
            self._clock.sleep(min(wait, left))
            wait = min(wait * 1.5, _LONGEST_WAIT)
        return chunks

    def _pull_now(self, max_events: int) -> list[Chunk]:
        ends, chunks, left = self._log.ends(), [], max_events
        order = list(self.positions)
        self._turn = (self._turn + 1) % len(order)  # so that a busy partition does not starve the others
        for partition in order[self._turn :] + order[: self._turn]:
            position, end = self.positions[partition], ends[partition]
            if left <= 0 or position == end:
                continue
            try:
                for chunk in self._log.read_chunks(partition, position, end):
                    chunks.append(_head(chunk, left))
                    left -= chunks[-1].batch.num_rows
                    self.positions[partition] = chunks[-1].end
                    if left <= 0:
                        break
                else:  # the remaining events before `end` belong to aborted transactions
                    self.positions[partition] = max(position, end)
            except StreamworkError:
                if not chunks:
                    raise
                break  # return the chunks read so far; the next pull raises the error again
        return chunks

    def follow(self, max_events: int, stop: Callable[[], bool]) -> Iterator[list[Chunk]]:
        """Pull until `stop` returns True. While no events arrive, `stop` is called about ten times a second."""
        while not stop():
            if chunks := self.pull(max_events, timeout=0.1):
                yield chunks


def _head(chunk: Chunk, rows: int) -> Chunk:
    if chunk.batch.num_rows <= rows:
        return chunk
    return Chunk(chunk.partition, chunk.offset, chunk.time, chunk.batch.slice(0, rows))
