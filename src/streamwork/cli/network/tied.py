"""``python tied.py PARENT NICE COMMAND...``: becomes COMMAND, which gets SIGTERM when the process PARENT ends, however it ends.

NICE is added to its niceness.

A file of its own that imports nothing else, so that it starts quickly. Elsewhere than on Linux it only becomes COMMAND.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != int(sys.argv[1]):
            sys.exit(1)  # it has ended already
    os.nice(int(sys.argv[2]))
    os.execv(sys.argv[3], sys.argv[3:])
