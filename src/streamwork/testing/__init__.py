"""The simulator: runs a job in milliseconds, with a seeded schedule and with crashes at chosen points.

    result = run(job, inputs={"payments": [Payment("a", 1), Crash(), Payment("a", 2)]}, seed=7)
    print(explore(job, inputs))           # searches for a schedule or a crash that changes the results

Time is virtual, the simulated disk loses unsynced data in a crash, the sinks are transactional tables in memory. A run is a
function of job, input and seed.
"""

from streamwork.testing.disk import DiskCrashed, SimulatedDisk, Survival
from streamwork.testing.explore import Explored, explore, newest_rows
from streamwork.testing.markers import Advance, Crash, Lose, Pause, SetClock
from streamwork.testing.simulation import Result, run

__all__ = [
    "Advance",
    "Crash",
    "DiskCrashed",
    "Explored",
    "Lose",
    "Pause",
    "Result",
    "SetClock",
    "SimulatedDisk",
    "Survival",
    "explore",
    "newest_rows",
    "run",
]
