"""State that a worker process keeps from one epoch to the next.

An entry is found by what it *is* (the file chain that holds it, by hashes), never by a number: a retry may run in the very
process of a failed attempt, and must not meet that attempt's state. It is taken out while in use, and put back under its
new chain only when its files are written.

Which worker computes which instance is up to Spark. So an entry may be some epochs old; if its chain is the beginning of the
one that is wanted, only the files after it have to be read.
"""

from __future__ import annotations

from collections.abc import Sequence

from streamwork.state.files import FileRef
from streamwork.state.keyed import State

Owner = tuple[str, str, int]  # uid of the job, component, instance


class StateCache:
    """At most one state per owner: the newest that was put."""

    def __init__(self) -> None:
        self._entries: dict[Owner, tuple[tuple[str, ...], State]] = {}

    def take(self, owner: Owner, chain: Sequence[FileRef]) -> tuple[State | None, Sequence[FileRef]]:
        """A state that belongs to the caller now, if there is one to begin with, and the files still to be read into it."""
        have, state = self._entries.pop(owner, ((), None))
        if state is not None and have == tuple(ref.sha256 for ref in chain[: len(have)]):
            return state, chain[len(have) :]
        return None, chain

    def put(self, owner: Owner, chain: Sequence[FileRef], state: State) -> None:
        self._entries[owner] = (tuple(ref.sha256 for ref in chain), state)
