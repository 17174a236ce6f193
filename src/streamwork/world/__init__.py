"""The world outside a program: the clock and the disk, as values that are passed in.

Everything that touches time or files takes a `Clock` or a `Disk`, so that tests and the simulator can put their own
in place
of the real ones. Imports nothing of ours.
"""

from streamwork.world.clock import Clock, RealClock
from streamwork.world.disk import Disk, DiskFile, RealDisk

__all__ = ["Clock", "Disk", "DiskFile", "RealClock", "RealDisk"]
