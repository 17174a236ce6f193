"""A program that runs a command and is killed, for real, before its n-th change of a file: ``python failpoint.py N COMMAND...``."""

from __future__ import annotations

FAILPOINT = """
import os, signal, sys
from streamwork.world import disk
left = int(sys.argv[1])
def fatal(name):
    real = getattr(disk.RealDisk, name)
    def counted(self, *args, **more):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(self, *args, **more)
    setattr(disk.RealDisk, name, counted)
for name in ("create", "replace", "remove", "discard", "move"):
    fatal(name)
from streamwork.cli.main import main
main(sys.argv[2:])
"""
