"""What people test their jobs with: a simulator that runs a job in milliseconds, under any schedule, crashing where they like.

    result = run(job, inputs={"payments": [Payment("a", 1), Crash(), Payment("a", 2)]}, seed=7)
    print(explore(job, inputs))           # searches for a schedule or a crash that changes the results

Time is virtual, the disk forgets what was not synced, the sinks are transactional tables in memory. A run is a function of job,
input and seed.
"""

from streamwork.testing.disk import DiskCrashed, SimulatedDisk, Survival
from streamwork.testing.explore import Explored, explore
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
    "run",
]
