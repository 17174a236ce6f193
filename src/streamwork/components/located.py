"""Components that read or write a path."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Self


class Located:
    """A component with a path. A relative path belongs to the folder of the job file, wherever the job is started from.

    `path` is as it was given; `Job.graph` makes it absolute. Outside of a job it follows the working directory.
    """

    path: Path

    def located(self, home: Path) -> Self:
        """The component with its path resolved against `home`; itself if the path is absolute."""
        if self.path.is_absolute():
            return self
        moved = copy.copy(self)
        moved.path = home / self.path
        return moved
