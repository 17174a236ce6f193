"""Run a command several times beside a busy loop on each core, and stop at its first failure: busy.py TIMES COMMAND..."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence

LOOP = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): pass"
"""Ends with the process that has started it."""


def main(times: int, command: Sequence[str]) -> int:
    """The exit code of the first run that fails, or 0."""
    loops = [subprocess.Popen([sys.executable, "-c", LOOP, str(os.getpid())]) for _ in range(os.cpu_count() or 1)]
    try:
        for number in range(1, times + 1):
            began = time.monotonic()
            code = subprocess.run(command, check=False).returncode
            print(
                f"run {number} of {times}, beside {len(loops)} busy loops: {time.monotonic() - began:.0f} s, exit code {code}"
            )
            if code:
                return code
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
