"""State in memory, state in files, and the way between: records, Parquet deltas and snapshots, the worker's cache.

A chain of files (snapshots and deltas) is the state of one component's instance at one checkpoint.
Knows no Spark and no protocol; the disk is passed in.
"""

from streamwork.state.cache import StateCache
from streamwork.state.chain import FileChain, FileChains, epoch_of, essential, is_snapshot, ways
from streamwork.state.files import StateFiles
from streamwork.state.keyed import InstanceState, KeyedState, State
from streamwork.state.layered_table import LayeredTable
from streamwork.state.restore_plan import Change, ComponentPlan, Piece, RestorePlan
from streamwork.state.table import Table
from streamwork.state.view import StateView

__all__ = [
    "Change",
    "ComponentPlan",
    "FileChain",
    "FileChains",
    "InstanceState",
    "KeyedState",
    "LayeredTable",
    "Piece",
    "RestorePlan",
    "State",
    "StateCache",
    "StateFiles",
    "StateView",
    "Table",
    "epoch_of",
    "essential",
    "is_snapshot",
    "ways",
]
