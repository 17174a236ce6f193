"""The embedded event log: partitioned, durable, no server; Arrow files that any Arrow library can read.

`EventLog` appends and reads, `LogReader` only reads, in any number of processes. Bottom up: `frame` (a batch on disk),
`segment`, `partition` (what readers know), `writer` and `recovery`, `transactions` and `decisions`, `event_log`.
All files go through the `Disk` passed in, all time through the `Clock`.
"""

from streamwork.log.consumers import Consumer
from streamwork.log.cursor import Cursor
from streamwork.log.decisions import Ranges
from streamwork.log.event_log import EventLog
from streamwork.log.info import LogInfo, describe
from streamwork.log.lock import FileLocks, Holder, Lock, Locks, locked
from streamwork.log.modes import Fsync, Isolation
from streamwork.log.partition import Chunk
from streamwork.log.policy import Policy
from streamwork.log.reader import Located, LogReader
from streamwork.log.recovery import Recovery
from streamwork.log.settings import Settings
from streamwork.log.transaction import Transaction

__all__ = [
    "EventLog",
    "LogReader",
    "Cursor",
    "Chunk",
    "Located",
    "Ranges",
    "Transaction",
    "Policy",
    "Fsync",
    "Isolation",
    "Settings",
    "Consumer",
    "Recovery",
    "LogInfo",
    "describe",
    "Locks",
    "Lock",
    "FileLocks",
    "Holder",
    "locked",
]
