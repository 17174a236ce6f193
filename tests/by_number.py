"""A job that fails now and then when a part of it is computed already, with the worker's cache as it is, or by number.

The cache by number is the negative control: it takes a state for the one that is wanted because its number is high enough. When
an epoch has failed, what it had computed lies in the very processes that compute its input again, under a higher number.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sample import Payment, Seen, Summing
from streamwork import Backoff, Job, ListSource, Operator, SqliteSink, shuffle
from streamwork.state import StateCache, epoch_of


class ByNumber(StateCache):
    """Finds a state by its epoch's number alone."""

    def __init__(self) -> None:
        super().__init__()
        self._numbered: dict[Any, tuple[int, Any]] = {}

    def check_out(self, owner: Any, chain: Any) -> tuple[Any, Any]:
        number, state = self._numbered.pop(owner, (-1, None))
        if number >= max((epoch_of(ref) for ref in chain), default=0):
            return state, ()
        return None, chain

    def put(self, owner: Any, chain: Any, state: Any) -> None:
        self._numbered[owner] = max(epoch_of(ref) for ref in chain), state


class SummingByNumber(Summing):
    """Sums; where it is unpacked, the other cache is put in place, so that every process that sums has it."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        from streamwork.hosts import spark_task

        if not isinstance(spark_task._worker.states, ByNumber):
            spark_task._worker.states = ByNumber()

    def __getstate__(self) -> dict[str, Any]:
        return {"by_number": True, **self.__dict__}  # an empty state would not be unpacked


class FailingOnce(Operator[Seen, Seen]):
    """At some events it raises, the first time that it meets them."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def apply(self, event: Seen, collector: Any) -> None:
        if event.card == "card-0" and event.number % 2 == 0:
            try:
                os.close(os.open(f"{self.folder}/failed-{event.number}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                pass
            else:
                raise ValueError(f"failed at {event.number}")
        collector.emit(event)


def failing(folder: Path, events: list[Payment], by_number: bool) -> Job:
    job = Job("lost", checkpoint_every=0, restart=Backoff(max_restarts=100, within="1h", first="10ms", most="10ms"))
    stream = job.source(ListSource(events, Payment, max_events=20), id="payments")
    sums = stream.apply(SummingByNumber() if by_number else Summing(), key="card", id="sums", parallelism=2)
    # Behind an exchange: when this fails, the sums of the epoch are computed, and kept by the processes that did it.
    told = sums.apply(FailingOnce(str(folder)), id="failing", grouping=shuffle(), parallelism=1)
    told.sink(SqliteSink(folder / "out.db", "journal"), id="journal")
    told.sink(SqliteSink(folder / "out.db", "latest", key="card"), id="latest")
    return job
