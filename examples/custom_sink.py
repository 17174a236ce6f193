"""A sink of your own that takes part in exactly-once: one JSON file, which holds the rows and the ledger row.

Both change together because the file is replaced by one rename. `settle` decides what to do with a checkpoint that is offered.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from streamwork import Event, Job, JsonLines, LedgerEntry, LedgerRow, Sink, SinkKind, Verdict, settle


class Reading(Event):
    sensor: str
    celsius: float


class JsonFileSink(Sink[Reading]):
    kind = SinkKind.TRANSACTIONAL

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self, event: type[Reading]) -> None:
        if not self.path.exists():
            self._replace({"rows": [], "ledger": {}})

    def write(self, batch: Any) -> None:
        raise NotImplementedError("this sink is for exactly-once only")

    def register(self, uid: str, sink_id: str, fence: int) -> None:
        content, row = self._read(), self.ledger(uid, sink_id) or LedgerRow(0, None, "")
        kept = LedgerRow(max(fence, row.fence), row.position, row.manifest_sha256)
        self._replace({**content, "ledger": {**content["ledger"], f"{uid}/{sink_id}": _plain(kept)}})

    def ledger(self, uid: str, sink_id: str) -> LedgerRow | None:
        found = self._read()["ledger"].get(f"{uid}/{sink_id}")
        return LedgerRow(**found) if found else None

    def commit(self, entry: LedgerEntry, staged: Iterator[Any]) -> None:
        content, row = self._read(), self.ledger(entry.uid, entry.sink)
        verdict = settle(row, entry)  # raises if a newer driver has registered, or if the ledger does not fit
        if verdict is Verdict.SKIP or row is None:
            return
        rows = [one for batch in staged for one in batch.to_pylist()] if verdict is Verdict.APPLY else []
        position = entry.end if verdict is Verdict.APPLY else row.position
        moved = LedgerRow(entry.fence, position, entry.manifest_sha256)
        ledger = {**content["ledger"], f"{entry.uid}/{entry.sink}": _plain(moved)}
        self._replace({"rows": content["rows"] + rows, "ledger": ledger})

    def _read(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.path.read_text())
        return content

    def _replace(self, content: dict[str, Any]) -> None:
        new = self.path.with_suffix(".new")
        with new.open("w") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        os.fsync(folder)  # or the rename may be lost in a power cut
        os.close(folder)


def _plain(row: LedgerRow) -> dict[str, Any]:
    return {"fence": row.fence, "position": row.position, "manifest_sha256": row.manifest_sha256}


HERE = Path(__file__).parent
job = Job("custom-sink")
job.source(JsonLines("readings.jsonl", Reading), id="readings").sink(JsonFileSink(HERE / "out.json"), id="file")
