"""What an instance reports to the driver about an attempt."""

from __future__ import annotations

import msgspec

from streamwork.delivery import Trouble
from streamwork.delivery.counts import Counts
from streamwork.engine.idleness import Idleness
from streamwork.errors import JobFailed, Refused, StreamworkError, WrongUse, writable
from streamwork.world import FileRef


class Report(msgspec.Struct, frozen=True):
    """One component's instance has processed its slice, and its files are durable."""

    component: str
    instance: int
    attempt: str
    counters: dict[str, int]
    state: tuple[FileRef, ...] = ()  # the files that hold its state now
    staged: FileRef | None = None  # of a sink: the outputs to commit
    consumed: tuple[str, ...] = ()  # the upstream attempts whose output it has seen
    watermarks: dict[str, int] = {}  # of a source: partition -> event time, in microseconds since 1970
    idle: dict[str, Idleness] = {}  # of a source with `idle_after`: by partition
    floor: int | None = None  # where partitions may be idle, behind an exchange: the minimum
    next_tick: int | None = None  # when processing time is next waited for
    letters: FileRef | None = None  # events that failed permanently, to be kept as dead letters
    troubles: tuple[Trouble, ...] = ()  # under acknowledging: events that are not done
    again: tuple[int, ...] = ()  # of a source, under acknowledging: the roots of events that it has replayed at once
    acked: tuple[str, ...] = ()  # under acknowledging: earlier events that it is done with, as often as it said so
    ends: dict[str, int] = {}  # of a source: partition -> where it was read to, of those whose ends are known by report
    taken: FileRef | None = None  # of a source without offsets, under acknowledging: what it gave


class Failure(msgspec.Struct, frozen=True):
    """The error of an attempt, as data: no host has to parse a traceback."""

    code: str
    cause: str
    action: str
    exit_code: int
    component: str
    retryable: bool
    about_one_event: bool
    about_setup: bool
    raised_in: str = ""
    in_epoch: int | None = None
    trace: str = ""

    @classmethod
    def of(cls, error: StreamworkError) -> Failure:
        found = {name: getattr(error, name) for name in cls.__struct_fields__}
        return cls(**found | {"trace": writable(error.full_trace())})

    def to_error(self) -> StreamworkError:
        kind = {2: WrongUse, 3: Refused}.get(self.exit_code, JobFailed)
        error = kind(
            self.code,
            self.cause,
            self.action,
            retryable=self.retryable,
            about_one_event=self.about_one_event,
            about_setup=self.about_setup,
            component=self.component,
        )
        error.raised_in, error.in_epoch, error.trace = self.raised_in, self.in_epoch, self.trace
        return error


class Reports(msgspec.Struct, frozen=True):
    """What one attempt sends to the driver: the reports of all its components, or its failure."""

    reports: tuple[Report, ...] = ()
    failure: Failure | None = None
    counts: tuple[Counts, ...] = ()  # of an attempt that failed: what it had counted by then

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, text: str | bytes) -> Reports:
        return msgspec.json.decode(text, type=cls)
