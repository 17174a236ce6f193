"""The clock, the disk and the processes of the machine, as objects that are passed in.

Code that needs the time, files or processes takes a `Clock`, a `Disk` or `Processes`, so that tests and the simulator can
replace the real ones.
"""

from streamwork.world.clock import Clock, PatientClock, RealClock, SteadyClock
from streamwork.world.disk import Disk, DiskFile, RealDisk
from streamwork.world.file_ref import FileKind, FileRef, damaged, read_whole
from streamwork.world.inside import check_relative, inside
from streamwork.world.names import EPOCH_DIGITS, OFFSET_DIGITS, number_of
from streamwork.world.priority import step_back
from streamwork.world.processes import Processes, ProcessId, RealProcesses
from streamwork.world.terminal import print_anything

__all__ = [
    "EPOCH_DIGITS",
    "OFFSET_DIGITS",
    "Clock",
    "Disk",
    "DiskFile",
    "FileKind",
    "FileRef",
    "PatientClock",
    "ProcessId",
    "Processes",
    "RealClock",
    "RealDisk",
    "RealProcesses",
    "SteadyClock",
    "check_relative",
    "damaged",
    "inside",
    "number_of",
    "print_anything",
    "read_whole",
    "step_back",
]
