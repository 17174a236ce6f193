"""`JobFiles`: the files that define jobs of the root, as they were named when the console was started."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Sequence

from streamwork.console.commands import printed
from streamwork.errors import Refused

LOAD_SECONDS = 120.0


class JobFiles:
    """A process of its own finds out which job a file defines, when that is first needed: it imports the file."""

    def __init__(self, targets: Sequence[str] = ()) -> None:
        """Each is JOBFILE or JOBFILE:NAME."""
        self._targets = tuple(targets)
        self._lock = threading.Lock()
        self._jobs: dict[str, str] | None = None  # job -> target

    def of(self, job: str, command: Sequence[str]) -> str:
        """The file of a job. Refuses with SW-CONSOLE-JOBFILE if none was named; `command`, with JOBFILE in it, does the same."""
        with self._lock:
            if self._jobs is None:
                found = [
                    (printed(("run", target, "--explain", "--json"), LOAD_SECONDS)["job"], target)
                    for target in self._targets
                ]
                self._jobs = dict(found)
        target = self._jobs.get(job)
        if target is None:
            raise Refused(
                "SW-CONSOLE-JOBFILE",
                f"this needs the code of job {job}, and the console was started without its job file",
                f"start the console with --jobfile JOBFILE, or run `{shlex.join(['streamwork', *command])}`",
            )
        return target
