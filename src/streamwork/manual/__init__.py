"""State by hand: a stateless job whose instances keep their own state in a store outside the job, each at its own interval.

It is how people worked before the engine kept state, and it is here to compare with: a job that uses it needs no checkpoint, and
its author decides how often state is stored. `by_hand` runs a `KeyedOperator` so, `RewindingSource` reads a source so. Imports
components and connectors.

What belongs together is found by the id of an event, its source partition and offset, never by a clock:

    1  the source stores at its interval how far it has emitted
    2  an operator stores at its interval the records that have changed, and the offset of the last event of each partition that
       they contain, in one transaction that is fenced
    3  a restart: the source goes back behind what it stored (`rewind`), and emits from there
    4  an operator ignores events up to its stored offset, and applies those behind it

Every operator by hand receives all events (`all_instances()`), and applies those of its keys. So an instance whose keys are rare
knows as well as the others how far it has come.

    a crash after an event was applied, before 2    its effect is lost; 3 and 4 apply it again
    a crash after 2, before 1                       3 goes back further than needed; 4 ignores the events
    a crash after 1, before 2                       3 must go back at least to the offset stored in 2: else SW-MANUAL-GAP
    a process that is gone and stores late          its fence is old: 2 refuses it

Outputs since the last store appear again after a crash. That is the price: only the engine's checkpoints commit outputs together
with state.
"""

from streamwork.manual.by_hand import by_hand
from streamwork.manual.memory_store import MemoryStore
from streamwork.manual.positioned import Positioned
from streamwork.manual.postgres_store import PostgresStore
from streamwork.manual.redis_store import RedisStore
from streamwork.manual.rewinding import RewindingSource
from streamwork.manual.sqlite_store import SqliteStore
from streamwork.manual.store import ManualStore

__all__ = [
    "ManualStore",
    "MemoryStore",
    "Positioned",
    "PostgresStore",
    "RedisStore",
    "RewindingSource",
    "SqliteStore",
    "by_hand",
]
