"""``LOG/consumers/UID.json``: the registered consumers of the log, the offsets they have read up to, and the offsets they need.

Retention removes nothing that a registered consumer needs. A job needs the events after the position of its oldest retained
checkpoint, so that it can fall back to that checkpoint. Its lag counts from its newest completed checkpoint.
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
    """One registered consumer. `sources`: for each of its sources, partition -> lowest offset needed (a missing one is 0)."""

    uid: str
    sources: dict[str, dict[str, int]]
    at: float  # time of the last registration
    job: str = ""  # the job's name, for display; empty if the consumer is not a job
    read: dict[str, dict[str, int]] = {}  # source -> partition -> offset read up to; absent: as in `sources`

    def read_up_to(self, source: str) -> dict[str, int]:
        """Partition -> offset that a source has read up to."""
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
        """Register a consumer, or move it forward: it no longer needs the events below `offsets`.

        `read` holds the offsets that it has read up to, if they are higher. One process at a time registers a uid.
        """
        path = self._path(uid)
        before = self._read(path) if self._disk.exists(path) else Consumer(uid, {}, 0.0)
        needed = {**before.sources, check_name(source, "source"): _by_name(offsets)}
        reached = {**before.read, source: _by_name(offsets if read is None else read)}
        consumer = Consumer(uid, needed, self._clock.now(), job or before.job, reached)
        self._disk.make_folder(self._folder)
        self._disk.replace(path, msgspec.json.encode(consumer) + b"\n")

    def forget(self, uid: str) -> None:
        """Remove a consumer. Does nothing if it is not registered."""
        self._disk.remove(self._path(uid))

    def all(self) -> list[Consumer]:
        names = [name for name in self._disk.names(self._folder) if name.endswith(".json")]
        return [self._read(self._folder / name) for name in names]

    def needed(self, partition: int) -> int | None:
        """The lowest offset that any consumer needs; None without consumers."""
        return min((consumer.needs(partition) for consumer in self.all()), default=None)

    def _path(self, uid: str) -> Path:
        return self._folder / f"{check_name(uid, 'consumer')}.json"

    def _read(self, path: Path) -> Consumer:
        try:
            return msgspec.json.decode(self._disk.read(path), type=Consumer)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise Refused(
                "SW-LOG-DAMAGED",
                f"{path} is damaged: which events this consumer needs is unknown, and retention is suspended",
                "start the consumer, which rewrites the file, or remove the file if the consumer no longer exists",
            ) from None


def _by_name(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in offsets.items()}
