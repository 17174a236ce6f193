"""The choices that a user of the log makes."""

from __future__ import annotations

import re
from enum import Enum
from typing import TypeVar

from streamwork.errors import WrongUse

M = TypeVar("M", bound=Enum)
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Fsync(Enum):
    """When an appended event is forced onto the disk, and so what a failure can cost.

    | mode | killed process | crashed system, power cut | cost |
    |---|---|---|---|
    | always | nothing that was acknowledged | nothing that was acknowledged | one sync per append |
    | interval | nothing that was acknowledged | the appends of the last `sync_every` seconds | one sync per interval |
    | never | nothing that was acknowledged | all since the segment began: whatever the system had not written yet | none |

    What survives is always a prefix: never a later event without the earlier ones of its partition. Finished segments
    and transactions are synced in every mode. Readers see events at once, so after a power cut they may have seen
    more than survived; `EventLog.sync()`, which readers may call too, closes that gap before a position is kept.
    """

    ALWAYS = "always"
    INTERVAL = "interval"
    NEVER = "never"


class Isolation(Enum):
    """What a reader sees of transactions.

    read-committed: only committed ones; the reader waits in front of one that is open, and passes over the events of
    one that was given up (their offsets stay empty). read-uncommitted: every event, at once.
    Appends outside a transaction are committed by themselves.
    """

    READ_COMMITTED = "read-committed"
    READ_UNCOMMITTED = "read-uncommitted"


def choose(kind: type[M], value: M | str, name: str) -> M:
    """The member of `kind` that a person meant."""
    try:
        return value if isinstance(value, kind) else kind(value)
    except ValueError:
        known = ", ".join(repr(member.value) for member in kind)
        raise WrongUse("SW-LOG-SETTING", f"{name}={value!r} is not known", f"use one of {known}") from None


def check_name(name: str, what: str) -> str:
    """Names from people become file names, so they are kept plain."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise WrongUse("SW-LOG-NAME", f"{what} {name!r} is not a usable name", "use 1 to 64 of A-Z a-z 0-9 _ -")
    return name
