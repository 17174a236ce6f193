"""The job of job.py, with a writer that kills the driver once, in the middle of a write. `compare.py` runs it.

The crash is the same under all semantics: half of the rows of a write, or of a commit, have been written when the driver gets
SIGKILL. CRASH_AFTER is the number of transactions before the crash; CRASH_MARK is a file that records that it has happened.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from usage import settings
from usage.build import build
from usage.events import Usage
from usage.writers import WRITERS

from streamwork import LedgerEntry, LedgerRow, Sink

AFTER = int(os.environ.get("CRASH_AFTER", "1"))
MARK = Path(os.environ.get("CRASH_MARK", "crashed"))
DRIVER = int(os.environ.setdefault("CRASH_DRIVER", str(os.getpid())))  # Spark's workers inherit it


class CrashingOnce(Sink[Usage]):
    """Writes with another sink."""

    def __init__(self, writer: Sink[Usage]) -> None:
        self.writer: Any = writer
        self.kind = writer.kind  # type: ignore[misc]

    def write(self, batch: Any) -> None:
        for part in self._parts(batch):
            self.writer.write(part)

    def commit(self, entry: LedgerEntry, staged: Iterator[Any]) -> None:
        self.writer.commit(entry, (part for batch in staged for part in self._parts(batch)))

    def _parts(self, batch: Any) -> Iterator[Any]:
        """The batch; or its first half, and then the end."""
        if batch["transactions"][-1].as_py() <= AFTER or MARK.exists():
            yield batch
            return
        half = batch.num_rows // 2
        if half:
            yield batch.slice(0, half)
        MARK.touch()
        os.kill(DRIVER, signal.SIGKILL)
        os._exit(1)  # a worker of Spark

    def open(self, event: type[Usage]) -> None:
        self.writer.open(event)

    def check(self, event: type[Usage]) -> None:
        self.writer.check(event)

    def check_target(self, uid: str, sink_id: str) -> None:
        self.writer.check_target(uid, sink_id)

    def register(self, uid: str, sink_id: str, fence: int) -> None:
        self.writer.register(uid, sink_id, fence)

    def ledger(self, uid: str, sink_id: str) -> LedgerRow | None:
        row: LedgerRow | None = self.writer.ledger(uid, sink_id)
        return row

    def close(self) -> None:
        self.writer.close()


writer = CrashingOnce(WRITERS[settings.SINK](settings.DATABASE))
job = build(settings.LOG, settings.DECISIONS, writer, max_events=100, checkpoint_every=0)
