"""``streamwork checkpoints``: what is stored of a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streamwork.epoch import Manifest, Store
from streamwork.errors import StreamworkError, WrongUse
from streamwork.world import Clock, RealDisk


def list_checkpoints(root: Path, job: str, clock: Clock) -> list[dict[str, Any]]:
    """Newest first: number, state, age, events, keys, bytes of state. A damaged one is listed as such."""
    store = Store(RealDisk(), root, job)
    if store.identity() is None:
        raise WrongUse(
            "SW-ROOT-EMPTY",
            f"{root} holds nothing of a job {job!r}",
            "check --root and the job's name; has it run yet?",
        )
    completed, prepared = store.completed(), store.prepared()
    rows = []
    for number in sorted({*completed, *prepared}, reverse=True):
        done = number in completed
        try:
            manifest = store.read_completed(number) if done else store.read_prepared(number)
            row = {"state": "completed" if done else "prepared", **_facts(manifest)}
        except StreamworkError as error:
            row = {"state": "damaged", "error": error.to_dict()}
        rows.append({"checkpoint": number, "age_seconds": round(clock.now() - store.written_at(number), 1), **row})
    return rows


def _facts(manifest: Manifest) -> dict[str, Any]:
    files = [ref for instances in manifest.components.values() for chain in instances.values() for ref in chain]
    return {
        "parent": manifest.parent,
        "fence": manifest.fence,
        "events": manifest.events,
        "keys": sum(counters.get("keys", 0) for counters in manifest.counters.values()),
        "state_files": len(files),
        "state_bytes": sum(ref.bytes for ref in files),
        "positions": manifest.positions,
        "sha256": manifest.sha256,
    }
