"""All partitions of a log, as one reader or one writer sees them.

The reader and the writer of one `EventLog` have separate views, so that a thread that reads and a thread that appends
share only the files.
"""

from __future__ import annotations

from pathlib import Path

from streamwork.errors import WrongUse
from streamwork.log.decisions import FOLDER, SCHEMA, Decisions
from streamwork.log.partition import Partition
from streamwork.log.schemas import Schemas
from streamwork.log.segment import Format, OneSchema
from streamwork.log.settings import Settings
from streamwork.world import Disk


class Views:
    def __init__(self, disk: Disk, path: Path, settings: Settings, verify: bool) -> None:
        self.schemas = Schemas(disk, path, settings)
        shape = Format(self.schemas, verify)
        self.partitions = [Partition(disk, path / str(n), n, shape) for n in range(settings.partitions)]
        control = Partition(disk, path / FOLDER, -1, Format(OneSchema(SCHEMA), verify))
        self.decisions = Decisions(control, self.partitions)

    def partition(self, number: int) -> Partition:
        if 0 <= number < len(self.partitions):
            return self.partitions[number]
        last = len(self.partitions) - 1
        raise WrongUse("SW-LOG-SEEK", f"the log has no partition {number}", f"use a partition from 0 to {last}")
