"""State that a worker process keeps from one epoch to the next.

An entry is found by what it *is* (the hashes of the file chain that holds it), never by a number: a retry may run in
the
very process of a failed attempt, and must not meet that attempt's state. It is taken out while in use, and put back
under
its new name only when its files are written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from streamwork.state.files import FileRef
from streamwork.state.keyed import KeyedState

Owner = tuple[str, str, int]  # uid of the job, component, instance


class StateCache:
    """At most one state per owner: the newest that was put."""

    def __init__(self) -> None:
        self._entries: dict[Owner, tuple[str, KeyedState]] = {}

    def take(self, owner: Owner, chain: Sequence[FileRef]) -> KeyedState | None:
        """The state that `chain` holds, if it is here. It belongs to the caller now."""
        token, state = self._entries.pop(owner, ("", None))
        return state if token == token_of(chain) else None

    def put(self, owner: Owner, chain: Sequence[FileRef], state: KeyedState) -> None:
        self._entries[owner] = (token_of(chain), state)


def token_of(chain: Sequence[FileRef]) -> str:
    return hashlib.sha256(" ".join(ref.sha256 for ref in chain).encode()).hexdigest()
