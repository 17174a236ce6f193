"""``LOG/consumers/UID.json``: who reads the log, and from where on each still needs it.

Retention removes nothing that a registered consumer needs. A job registers the position of its oldest checkpoint, so
that it can go back to it; so `offsets` may lag behind what it has read.
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

    def needs(self, partition: int) -> int:
        return min((offsets.get(str(partition), 0) for offsets in self.sources.values()), default=0)


class Consumers:
    def __init__(self, disk: Disk, clock: Clock, log: Path) -> None:
        self._disk = disk
        self._clock = clock
        self._folder = log / FOLDER

    def keep(self, uid: str, offsets: Mapping[int, int], source: str = "main") -> None:
        """Register, or move on: from now on everything below `offsets` may go, as far as this consumer is concerned.

        One process at a time registers for a uid.
        """
        path = self._path(uid)
        before = self._read(path).sources if self._disk.exists(path) else {}
        wanted = {str(partition): offset for partition, offset in offsets.items()}
        consumer = Consumer(uid, {**before, check_name(source, "source"): wanted}, self._clock.now())
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
