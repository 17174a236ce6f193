"""The way of an event: from a source, through the steps of a chain, into staged outputs.

`Chain` is the one executor of operators; every host feeds it. `run_attempt` is one try at one epoch, by one instance.
Knows no Spark; the disk is passed in. Imports components, job and state.
"""

from streamwork.engine.attempt import Worker
from streamwork.engine.chain import Chain
from streamwork.engine.engine import Abandoned, Engine, InstanceLost, Schedule
from streamwork.engine.report import Failure, Report, Reports
from streamwork.engine.work import Work

__all__ = [
    "Abandoned",
    "Chain",
    "Engine",
    "Failure",
    "InstanceLost",
    "Report",
    "Reports",
    "Schedule",
    "Work",
    "Worker",
]
