"""Affinity: a task of the first stage computes an instance whose state its process already has.

Spark gives a task to any idle Python worker. If a task were fixed to the instance of its number, instances would move from process
to process: each process would read the state that another one has written, and in the end hold the state of all. A task that reads
its slices itself can compute any instance of its stage, so it binds its partition to one whose state its process has.

1. For each epoch that it computes, the driver makes a folder, ``exchange/FENCE/EPOCH-RANDOM``.
2. A task looks there for the instance that its partition is bound to: there is one if the task is run again.
3. Otherwise it goes through the instances, the one with the fewest rows to read first, and binds the first that is free: a link
   ``INSTANCE -> PARTITION``, which the file system creates only once. It is never changed.
4. When the epoch's job has ended, the driver removes the folder.

So partitions and instances are bound one to one, and a partition has the same instance however often it is computed.

A crash ...                  leaves                                      then
of a task, before 3          nothing                                     it is run again, and binds an instance
of a task, after 3           its link                                    it is run again, and finds the link (2)
of an executor               links, as above; what it had sent is lost   the lost partitions are computed again, as they are bound
of the driver                the folder                                  the next driver's first epoch removes it

Two attempts at one partition that begin at the same moment, as with Spark's speculation, could bind two instances. Then a task
finds none, fails, and with it the epoch, which is computed again. The links are not durable and do not need to be.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from streamwork.engine import Assignment
from streamwork.world import number_of


@contextlib.contextmanager
def affinity_folder(works: Sequence[Assignment]) -> Iterator[str]:
    """The folder of an epoch's links, for as long as the epoch is computed."""
    fence, epoch = works[0].fence, works[0].epoch
    mine = Path(works[0].folder) / "exchange" / str(fence)
    if not mine.exists():
        _remove_older(mine.parent, fence)
    folder = mine / f"{epoch:012d}-{secrets.token_hex(4)}"
    folder.mkdir(parents=True)
    try:
        yield str(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def bind_instance(
    folder: str, partition: int, works: Sequence[Assignment], unread: Callable[[Assignment], int]
) -> Assignment:
    """The assignment that the task of a partition computes. `unread` counts the rows of its state that this process lacks."""
    for link in Path(folder).iterdir():
        if str(link.readlink()) == str(partition):
            return works[int(link.name)]
    order = sorted(range(len(works)), key=lambda place: (unread(works[place]), place != partition, place))
    for place in order:
        try:
            (Path(folder) / str(place)).symlink_to(str(partition))
        except FileExistsError:
            continue
        return works[place]
    raise RuntimeError(f"no instance is left for partition {partition} of {len(works)}")


def _remove_older(exchange: Path, fence: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        for folder in exchange.iterdir():
            if (number := number_of(folder.name)) is not None and number < fence:
                shutil.rmtree(folder, ignore_errors=True)
