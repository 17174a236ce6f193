"""What a job chooses for itself, and the command line may override."""

from __future__ import annotations

import re

import msgspec

from streamwork.components.keys import GROUPS
from streamwork.errors import WrongUse

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}


def seconds(duration: str | float) -> float:
    """A duration in seconds: a number of seconds, or text such as ``"500ms"``, ``"1s"``, ``"10min"``."""
    if isinstance(duration, int | float) and not isinstance(duration, bool) and duration >= 0:
        return float(duration)
    found = _DURATION.fullmatch(duration.strip()) if isinstance(duration, str) else None
    if found is None:
        raise WrongUse(
            "SW-JOB-SETTING", f"{duration!r} is not a duration", 'write a number and a unit: "500ms", "1s", "10min"'
        )
    return float(found[1]) * _SECONDS[found[2]]


class Settings(msgspec.Struct, frozen=True):
    """Settings of a job, checked."""

    semantics: str = "exactly-once"
    checkpoint_every: float = 1.0  # seconds: the shortest time between two checkpoints
    checkpoint_timeout: float | None = None  # seconds after which an epoch that is not prepared is abandoned
    parallelism: int = 1  # instances of every component
    groups: int = GROUPS  # number of key groups; fixed when the job's folder is created

    def __post_init__(self) -> None:
        if not isinstance(self.parallelism, int) or not 1 <= self.parallelism <= self.groups:
            raise WrongUse(
                "SW-JOB-SETTING", f"parallelism={self.parallelism!r}", f"use a whole number from 1 to {self.groups}"
            )
        if self.semantics != "exactly-once":
            raise WrongUse(
                "SW-JOB-SEMANTICS",
                f"semantics {self.semantics!r} is not available",
                'leave it out, or write "exactly-once": the strongest one is the one that this version has',
            )
