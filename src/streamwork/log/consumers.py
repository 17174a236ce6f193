"""``LOG/consumers/UID.json``: who reads the log, how far each has read, and from where on each still needs it.

Retention removes nothing that a registered consumer needs. A job needs the log from the position of its oldest kept checkpoint
on, so that it can fall back to it; its lag counts from its newest completed one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from streamwork.errors import Refused
from streamwork.log.modes import check_name
from streamwork.world import Clock, Disk

FOLDER = "consumers"


class Consumer(msgspec.Struct, frozen=True):
    """One registered reader; per source of it, the lowest offset needed of each partition (a missing one is 0)."""

    uid: str
    sources: dict[str, dict[str, int]]
    at: float  # when it last registered
    job: str = ""  # its name, for people; empty if it is no job
    read: dict[str, dict[str, int]] = {}  # likewise by source, the offset that it has read up to; absent: as `sources`

    def read_up_to(self, source: str) -> dict[str, int]:
        """How far a source of it has read, by partition."""
        return self.read.get(source, self.sources[source])

    def needs(self, partition: int) -> int:
        return min((offsets.get(str(partition), 0) for offsets in self.sources.values()), default=0)


class Consumers:
    def __init__(self, disk: Disk, clock: Clock, log: Path) -> None:
        self._disk = disk
        self._clock = clock
        self._folder = log / FOLDER

    def keep(
        self,
        uid: str,
        offsets: Mapping[int, int],
        source: str = "main",
        read: Mapping[int, int] | None = None,
        job: str = "",
    ) -> None:
        """Register, or move on: from now on everything below `offsets` may go, as far as this consumer is concerned.

        `read` is how far it has read, if that is further. One process at a time registers for a uid.
        """
        path = self._path(uid)
        before = self._read(path) if self._disk.exists(path) else Consumer(uid, {}, 0.0)
        needed = {**before.sources, check_name(source, "source"): _by_name(offsets)}
        reached = {**before.read, source: _by_name(offsets if read is None else read)}
        consumer = Consumer(uid, needed, self._clock.now(), job or before.job, reached)
        self._disk.make_folder(self._folder)
        self._disk.replace(path, msgspec.json.encode(consumer) + b"\n")

    def forget(self, uid: str) -> None:
        """The consumer will not come back; fine if it is not registered."""
        self._disk.remove(self._path(uid))

    def all(self) -> list[Consumer]:
        names = [name for name in self._disk.names(self._folder) if name.endswith(".json")]
        return [self._read(self._folder / name) for name in names]

    def needed(self, partition: int) -> int | None:
        """The lowest offset that some consumer needs; None if there is no consumer."""
        return min((consumer.needs(partition) for consumer in self.all()), default=None)

    def _path(self, uid: str) -> Path:
        return self._folder / f"{check_name(uid, 'consumer')}.json"

    def _read(self, path: Path) -> Consumer:
        try:
            return msgspec.json.decode(self._disk.read(path), type=Consumer)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise Refused(
                "SW-LOG-DAMAGED",
                f"{path} is damaged, so nobody knows what this consumer needs; nothing is retained away meanwhile",
                "start the consumer, which writes it anew, or remove the file if the consumer is gone for good",
            ) from None


def _by_name(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in offsets.items()}
