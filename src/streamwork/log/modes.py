"""The options of the log that have named values, and the rule for names."""

from __future__ import annotations

import re
from enum import Enum
from typing import TypeVar

from streamwork.errors import WrongUse

M = TypeVar("M", bound=Enum)
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Fsync(Enum):
    """When appended events are synced to disk, and which acknowledged events a failure can lose.

    | mode | lost with a killed process | lost in a system crash or power failure | cost |
    |---|---|---|---|
    | always | nothing | nothing | one sync per append |
    | interval | nothing | the appends of the last `sync_every` seconds | one sync per interval |
    | never | nothing | what the system had not written yet, at most the active segment | none |

    A prefix of each partition survives: never a later event without the earlier ones. Finished segments
    and transactions are synced in every mode. Readers see events before they are synced, so they may have seen events that a
    power failure loses. A reader that stores a position calls `EventLog.sync()` first.
    """

    ALWAYS = "always"
    INTERVAL = "interval"
    NEVER = "never"


class Isolation(Enum):
    """Which events of transactions a reader sees.

    read-committed: those of committed transactions. The reader stops before an open transaction, and skips the events of
    an aborted one (their offsets stay empty). read-uncommitted: every event, immediately.
    An append outside a transaction is committed when it returns.
    """

    READ_COMMITTED = "read-committed"
    READ_UNCOMMITTED = "read-uncommitted"


def choose(kind: type[M], value: M | str, name: str) -> M:
    """The member of `kind` with this value."""
    try:
        return value if isinstance(value, kind) else kind(value)
    except ValueError:
        known = ", ".join(repr(member.value) for member in kind)
        raise WrongUse("SW-LOG-SETTING", f"{name}={value!r} is not known", f"use one of {known}") from None


def check_name(name: str, what: str) -> str:
    """Check a name that becomes a file name."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise WrongUse("SW-LOG-NAME", f"{name!r} is not a valid {what} name", "use 1 to 64 of A-Z a-z 0-9 _ -")
    return name
