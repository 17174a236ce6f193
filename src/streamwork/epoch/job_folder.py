"""Opening the folder of a job that has run, for commands and readers."""

from __future__ import annotations

from pathlib import Path

from streamwork.epoch.store import Store
from streamwork.errors import WrongUse
from streamwork.world import RealDisk


def open_store(root: Path, job: str) -> Store:
    """The store of a job. Refuses a folder in which no job has run."""
    store = Store(RealDisk(), root, job)
    if store.identity() is None:
        raise WrongUse(
            "SW-ROOT-EMPTY",
            f"{root} has no folder of a job {job!r}",
            "check --root and the job's name; has the job run yet?",
        )
    return store
