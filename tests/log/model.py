"""A log beside a plain list: whatever happens to the log, it must tell of it what the list knows.

A case is a list of operations, a seed and an fsync mode: data, so that a failing one can be printed and played again.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from log.world import PATH, HandClock, Payment, open_log, payments
from streamwork.errors import StreamworkError
from streamwork.log import EventLog, LogReader, Policy
from streamwork.testing.disk import DiskCrashed, SimulatedDisk, Survival

PARTITIONS = 2
POLICY = Policy(segment_bytes=2500, segment_age=100, retain_bytes=6000, retain_age=1000)


class Case(msgspec.Struct, frozen=True):
    fsync: str
    seed: int
    operations: list[tuple[str, int]]
    honest: bool = True


class Known:
    """What the model knows of one partition."""

    def __init__(self) -> None:
        self.events: list[Payment] = []  # by offset, from 0
        self.times: list[float] = []
        self.durable = 0  # must survive a power cut
        self.needed: int | None = None  # by the registered consumer


class Play:
    """Plays a case, comparing at every step."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.disk = SimulatedDisk(case.seed, honest=case.honest)
        self.clock = HandClock()
        self.known = [Known() for _ in range(PARTITIONS)]
        self.next_id = 0
        EventLog.create(PATH, Payment, key="card", partitions=PARTITIONS, policy=POLICY, disk=self.disk)
        self.disk.crash(Survival.EVERYTHING)
        self.log = self.opened()

    def opened(self) -> EventLog[Payment]:
        return open_log(self.disk, self.clock, fsync=self.case.fsync, sync_every=1e9)

    def run(self) -> None:
        for name, number in self.case.operations:
            getattr(self, name)(number)
            self.clock.time += 1
        self.power_cut(0)

    # Operations. Each takes one number, which it makes of it what it can.

    def append(self, number: int) -> None:
        batch = payments(*range(self.next_id, self.next_id + 1 + number % 12))
        self.next_id += len(batch)
        parts = self.split(batch)
        before = [len(k.events) for k in self.known]
        try:
            offsets = self.log.append(batch)
        except StreamworkError as error:
            assert error.code == "SW-LOG-FULL", error
            self.settle(parts, must_have=before)
            return
        except DiskCrashed:
            self.restart(parts, Survival.SEEDED)
            return
        assert offsets == {p: range(before[p], before[p] + len(part)) for p, part in enumerate(parts) if part}
        for known, part in zip(self.known, parts, strict=True):
            known.events += part
            known.times += [self.clock.time] * len(part)
            if self.case.fsync == "always":
                known.durable = len(known.events)

    def full(self, number: int) -> None:
        self.disk.capacity = self.disk.used + number % 3000
        self.append(number)
        self.disk.capacity = None

    def die(self, number: int) -> None:
        """A power cut in one of the next steps."""
        self.disk.crash_at(self.disk.steps + 1 + number % 9)
        for operation in (self.append, self.retain, self.append):
            if self.disk_is_doomed():
                operation(number)
        self.disk.crash_at(None)

    def disk_is_doomed(self) -> bool:
        return self.disk._crash_at is not None

    def power_cut(self, number: int) -> None:
        self.restart([[], []], list(Survival)[number % 3])

    def close(self, number: int) -> None:
        self.log.close()
        if self.case.fsync != "never":
            self.all_durable()
        self.log = self.opened()
        self.compare()

    def sync(self, number: int) -> None:
        (self.log if number % 2 else LogReader(PATH, disk=self.disk)).sync()
        self.all_durable()

    def wait(self, number: int) -> None:
        self.clock.time += number % 500

    def retain(self, number: int) -> None:
        try:
            self.log.retain()
            self.compare()  # readers write missing indexes, so this too may be where the power goes
        except DiskCrashed:
            self.restart([[], []], Survival.SEEDED)

    def consume(self, number: int) -> None:
        for partition, known in enumerate(self.known):
            wanted = len(known.events) * (number % 11) // 10
            known.needed = max(known.needed or 0, wanted, self.log.start(partition))
        self.log.consumers.keep("job", {p: k.needed or 0 for p, k in enumerate(self.known)})

    def seek_offset(self, number: int) -> None:
        partition = number % PARTITIONS
        known, start = self.known[partition], self.log.start(partition)
        self.log.seek("end")
        if number % 5 == 0 and start > 0:
            self.log.seek(start - 1, partition)
            with pytest.raises(StreamworkError, match="SW-LOG-GONE"):
                self.log.pull()
            return
        offset = start + number % (len(known.events) - start + 1)
        self.log.seek(offset, partition)
        assert self.log.pull(7) == known.events[offset : offset + 7]

    def seek_time(self, number: int) -> None:
        time = self.clock.time - number % 700
        for partition, known in enumerate(self.known):
            start = self.log.start(partition)
            expected = next((o for o, t in enumerate(known.times) if t >= time and o >= start), len(known.events))
            assert self.log.offset_at(partition, datetime.fromtimestamp(time, UTC)) == expected

    # Comparing.

    @staticmethod
    def split(batch: list[Payment]) -> list[list[Payment]]:
        """The partitions by the rule of the design, written down once more."""
        parts: list[list[Payment]] = [[] for _ in range(PARTITIONS)]
        for event in batch:
            parts[zlib.crc32(event.card.encode()) % 256 * PARTITIONS // 256].append(event)
        return parts

    def all_durable(self) -> None:
        for known in self.known:
            known.durable = len(known.events)

    def restart(self, under_way: list[list[Payment]], survival: Survival) -> None:
        self.disk.crash(survival)
        possible = [known.events + part for known, part in zip(self.known, under_way, strict=True)]
        for partition in range(PARTITIONS):  # a reader may come before the next writer
            try:
                self.check_prefix(partition, possible[partition])
            except StreamworkError as error:
                assert error.code == "SW-LOG-DAMAGED", error
        self.log = self.opened()
        self.log.retain()  # opens every partition for writing
        self.settle(under_way, [known.durable for known in self.known])
        self.all_durable()  # a new writer syncs what it finds

    def settle(self, under_way: list[list[Payment]], must_have: list[int]) -> None:
        """Events of an append that was not acknowledged may be there; then they are part of the truth."""
        for partition, (known, part) in enumerate(zip(self.known, under_way, strict=True)):
            end = self.check_prefix(partition, known.events + part)
            assert end >= must_have[partition], f"acknowledged events are gone: {end} < {must_have[partition]}"
            known.events = (known.events + part)[:end]
            known.times = (known.times + [self.clock.time] * len(part))[:end]
            known.durable = min(known.durable, end)

    def compare(self) -> None:
        for partition, known in enumerate(self.known):
            assert self.check_prefix(partition, known.events) == len(known.events)

    def check_prefix(self, partition: int, possible: list[Payment]) -> int:
        """Whatever a new reader sees is a prefix of what was appended, at the right offsets; where it ends."""
        reader = LogReader(PATH, Payment, disk=self.disk, clock=self.clock)
        start, end = reader.start(partition), reader.end(partition)
        needed = self.known[partition].needed
        assert needed is None or start <= needed, f"retention removed {start} > {needed}"
        seen = [one for chunk in reader.read_chunks(partition, start, end) for one in reader.locate(chunk)]
        assert [one.offset for one in seen] == list(range(start, end))
        assert [one.event for one in seen] == possible[start:end]
        return end


OPERATIONS = [
    n for n, f in vars(Play).items() if isinstance(f, Callable) and n[0] != "_" and "number" in f.__annotations__
]


def play(case: Case) -> None:
    """Run a case; a failure says how to play it again."""
    try:
        Play(case).run()
    except Exception as error:
        text = msgspec.json.encode(case).decode()
        error.add_note(f"play it again: LOG_CASE='{text}' pytest tests/log/test_model.py -k replay")
        raise


def as_case(text: str) -> Any:
    return msgspec.json.decode(text, type=Case)
