"""Names of jobs, components, channels and partitions. They become file names, so few characters are allowed."""

from __future__ import annotations

import re

from streamwork.errors import WrongUse

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def check_name(name: str, what: str) -> str:
    if not isinstance(name, str) or not is_name(name):
        raise WrongUse("SW-JOB-NAME", f"{what} {name!r} is not a usable name", "use 1 to 64 of A-Z a-z 0-9 _ -")
    return name


def slug(name: str) -> str:
    """`AverageTicket` as `average-ticket`, for the id of a component that was given none."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower().strip("_")[:48] or "step"
