"""State in memory, state in files, and the way between: records, Parquet deltas and snapshots, the worker's cache.

A chain of files (snapshots and deltas) is the state of one component's instance at one checkpoint.
Knows no Spark and no protocol; the disk is passed in.
"""

from streamwork.state.cache import StateCache
from streamwork.state.files import Chain, FileRef, StateFiles, essential, ways
from streamwork.state.keyed import InstanceState, KeyedState, State

__all__ = [
    "Chain",
    "FileRef",
    "InstanceState",
    "KeyedState",
    "State",
    "StateCache",
    "StateFiles",
    "essential",
    "ways",
]
