"""`Instance`: the number of an instance, as `setup_instance` gets it."""

from __future__ import annotations


class Instance(int):
    """The number of an instance, counted from 0. `count` is the number of instances of its component, `component` its id.

    An instance can select its part of an input: ``range(instance, n, instance.count)``.
    """

    count: int
    component: str

    def __new__(cls, number: int, count: int, component: str = "") -> Instance:
        made = super().__new__(cls, number)
        made.count = count
        made.component = component
        return made

    def __reduce__(self) -> tuple[type[Instance], tuple[int, int, str]]:  # copies and pickles have the attributes, too
        return Instance, (int(self), self.count, self.component)
