"""What may be left in the inbox when a job is at rest."""

from __future__ import annotations

import json
from pathlib import Path


def too_many(job: Path, source: str) -> set[str]:
    """Files of a source that should be gone: all but those that a start from an older kept checkpoint would need."""
    manifests = sorted(job.glob("checkpoints/" + "[0-9]" * 12 + ".json"))
    oldest, newest = (set(json.loads(path.read_bytes())["taken"]) for path in (manifests[0], manifests[-1]))
    found = {path.relative_to(job).as_posix() for path in (job / "inbox" / source).glob("*")}
    return found - (newest - oldest)
