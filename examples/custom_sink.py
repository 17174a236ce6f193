"""A sink of your own for exactly-once: one JSON file that holds the rows and the ledger row.

Both change together: the file is replaced by one rename, under a lock. `settle` decides what to do with a checkpoint that a driver
offers, `registered` and `advanced` give the ledger row afterwards. They refuse a driver that a newer one has replaced.
"""

import fcntl
import json
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import streamwork as sw


class Reading(sw.Event):
    sensor: str
    celsius: float


class JsonFileSink(sw.Sink[sw.Event]):
    kind = sw.SinkKind.TRANSACTIONAL

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self, event: type[sw.Event]) -> None: ...

    def write(self, batch: Any) -> None:
        raise NotImplementedError("this sink is for exactly-once only")

    def register(self, uid: str, sink_id: str, fence: int) -> None:
        with self._changing() as content:
            if content.setdefault("owner", [uid, sink_id]) != [uid, sink_id]:
                raise sw.Refused(
                    "SW-SINK-OWNED", f"{self.path} belongs to another job", "give this job a file of its own"
                )
            content["ledger"] = sw.registered(self.ledger(uid, sink_id), sink_id, fence).to_json()

    def ledger(self, uid: str, sink_id: str) -> sw.LedgerRow | None:
        content = self._read()
        return sw.LedgerRow.from_json(content["ledger"]) if content.get("owner") == [uid, sink_id] else None

    def commit(self, entry: sw.LedgerEntry, staged: Iterator[Any]) -> None:
        with self._changing() as content:
            row = self.ledger(entry.uid, entry.sink)
            verdict = sw.settle(row, entry)
            if verdict is sw.Verdict.APPLY:
                content["rows"] += [one for batch in staged for one in batch.to_pylist()]
            content["ledger"] = sw.advanced(row, entry, verdict).to_json()

    @contextmanager
    def _changing(self) -> Generator[dict[str, Any], None, None]:
        """The content, for one process at a time. After the block it is the new content of the file."""
        with self.path.with_suffix(".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            content = self._read()
            yield content
            new = self.path.with_suffix(".new")
            with new.open("w") as file:
                json.dump(content, file)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)
            folder = os.open(self.path.parent, os.O_RDONLY)
            os.fsync(folder)  # makes the rename durable
            os.close(folder)

    def _read(self) -> dict[str, Any]:
        return json.loads(self.path.read_text()) if self.path.exists() else {"rows": []}


job = sw.Job("custom-sink")
readings = job.source(sw.JsonLines("readings.jsonl", Reading), id="readings")
readings.sink(JsonFileSink(Path(__file__).parent / "out.json"), id="file")
