"""State that a worker process keeps from one epoch to the next.

An entry is found by what it *is* (the file chain that holds it, by hashes), never by a number: a retry may run in the very
process of a failed attempt, and must not meet that attempt's state. It is taken out while in use, and put back under its
new chain only when its files are written.

Which worker computes which instance is up to Spark. So an entry may be some epochs old; if what it was made of is the
beginning of a way to read the chain that is wanted, only the deltas after it have to be read.
"""

from __future__ import annotations

from collections.abc import Sequence

from streamwork.state.chain import FileChain, ways
from streamwork.state.keyed import State
from streamwork.world import FileRef

Owner = tuple[str, str, int]  # uid of the job, component, instance


class StateCache:
    """At most one state per owner: the newest that was put."""

    def __init__(self) -> None:
        self._entries: dict[Owner, tuple[tuple[str, ...], State]] = {}

    def check_out(self, owner: Owner, chain: FileChain) -> tuple[State | None, FileChain]:
        """A state that belongs to the caller now, if there is one to begin with, and the deltas still to be read into it."""
        left = self._left(owner, chain)
        _, state = self._entries.pop(owner, ((), None))
        return (None, chain) if left is None else (state, left)

    def unread(self, owner: Owner, chain: FileChain) -> int:
        """How many rows would have to be read to have this state."""
        left = self._left(owner, chain)
        return sum(ref.rows for ref in (next(ways(chain), ()) if left is None else left))

    def _left(self, owner: Owner, chain: FileChain) -> FileChain | None:
        """The deltas that an entry lacks; None where there is no entry to begin with."""
        if owner in self._entries:
            have, _ = self._entries[owner]
            for way in ways(chain):
                if have == _hashes(way[: len(have)]):
                    return way[len(have) :]
        return None

    def put(self, owner: Owner, chain: FileChain, state: State) -> None:
        self._entries[owner] = (_hashes(next(ways(chain))), state)


def _hashes(way: Sequence[FileRef]) -> tuple[str, ...]:
    return tuple(ref.sha256 for ref in way)
