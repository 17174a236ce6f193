"""`Instance`: the number of an instance, as `setup_instance` gets it."""

from __future__ import annotations

from pathlib import Path


class Instance(int):
    """The number of an instance, counted from 0. `count` is the number of instances of its component, `component` its id, and
    `folder` that of the job, in which the engine keeps its own files.

    An instance can select its part of an input: ``range(instance, n, instance.count)``.
    """

    count: int
    component: str
    folder: Path

    def __new__(cls, number: int, count: int, component: str = "", folder: Path = Path()) -> Instance:
        made = super().__new__(cls, number)
        made.count = count
        made.component = component
        made.folder = folder
        return made

    def __reduce__(
        self,
    ) -> tuple[type[Instance], tuple[int, int, str, Path]]:  # copies and pickles have the attributes, too
        return Instance, (int(self), self.count, self.component, self.folder)
