"""Savepoints: copies of a checkpoint that a person asks for and owns. They are never pruned.

`record` is what a savepoint says of itself, `Savepoint` its reader, `SavepointWriter` its writer. Any folder can hold one: it needs
nothing of the job's folder that it was taken of.
"""

from streamwork.epoch.savepoints.graph_record import GraphRecord
from streamwork.epoch.savepoints.record import FOLDER, FORMAT, Begun, Expected, SavepointRecord
from streamwork.epoch.savepoints.savepoint import Savepoint
from streamwork.epoch.savepoints.writer import SavepointWriter

__all__ = [
    "FOLDER",
    "FORMAT",
    "Begun",
    "Expected",
    "GraphRecord",
    "Savepoint",
    "SavepointRecord",
    "SavepointWriter",
]
