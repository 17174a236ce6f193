"""Components that read or write a path."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Self


class Located:
    """A component with a path. A relative path is resolved against the folder of the job file.

    `path` is as given; `Job.graph` makes it absolute. Outside of a job it is relative to the working directory.
    """

    path: Path

    def located(self, home: Path) -> Self:
        """The component with its path resolved against `home`; itself if the path is absolute."""
        if self.path.is_absolute():
            return self
        moved = copy.copy(self)
        moved.path = home / self.path
        return moved
