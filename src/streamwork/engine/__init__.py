"""The way of an event: from a source, through the steps of a chain, into staged outputs.

`Chain` is the one executor of operators; every host feeds it. `Engine` runs all instances of a job in one process, `Attempt`
one instance at one epoch, connected with the others by parcels.
Knows no Spark; the disk is passed in.
"""

from streamwork.engine.assignment import Assignment
from streamwork.engine.attempt import Attempt, Worker
from streamwork.engine.chain import Chain
from streamwork.engine.engine import Abandoned, Engine, InstanceLost, Schedule
from streamwork.engine.extent import EndKnown, Extent, Extents
from streamwork.engine.report import Failure, Report, Reports
from streamwork.flow.parcel import Head, Kind, Parcel

__all__ = [
    "Abandoned",
    "Attempt",
    "Chain",
    "EndKnown",
    "Engine",
    "Extent",
    "Extents",
    "Failure",
    "Head",
    "InstanceLost",
    "Kind",
    "Parcel",
    "Report",
    "Reports",
    "Schedule",
    "Assignment",
    "Worker",
]
