"""The number of an instance, as its component is told it."""

from __future__ import annotations


class Instance(int):
    """The number of an instance, counted from 0. It is an int that also knows `count`: how many instances its component has.

    So an instance can take its share of something: ``range(instance, n, instance.count)``.
    """

    count: int

    def __new__(cls, number: int, count: int) -> Instance:
        made = super().__new__(cls, number)
        made.count = count
        return made

    def __reduce__(self) -> tuple[type[Instance], tuple[int, int]]:  # copies and pickles have the count, too
        return Instance, (int(self), self.count)
