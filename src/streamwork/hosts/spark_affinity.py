"""Seats: which instance a task of the first stage computes.

Spark gives a task to any Python worker that is idle. Were a task bound to the instance of its number, instances would wander from
process to process: each would read again and again what another has written, and in the end hold the state of all. But a task that
reads its slices itself may compute any instance of its stage, so it takes one whose state its process has.

1. For each epoch that it computes, the driver makes a folder, ``exchange/FENCE/EPOCH-RANDOM``.
2. A task looks for the seat of its own partition there: it has one if it is run again.
3. Else it goes through the instances, that with the fewest rows to read first, and takes the first seat that is free: a link
   ``INSTANCE -> PARTITION``, which the file system makes for one only. It is never changed.
4. When the epoch's job has ended, the driver removes the folder.

So partitions and instances belong together one to one, and a partition has the same instance however often it is computed.

A crash ...                  leaves                                      then
of a task, before 3          nothing                                     it is run again, and takes a seat
of a task, behind 3          its seat                                    it is run again, and finds the seat (2)
of an executor               seats, as above; what it had sent is lost   the lost partitions are computed again, each in its seat
of the driver                the folder                                  the next driver's first epoch removes it

Two attempts at one partition that begin at the same moment, as Spark's speculation may have it, could take two seats; then a task
finds none, fails, and with it the epoch, which is computed again. Nothing of this is durable, or has to be.
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
def seats(works: Sequence[Assignment]) -> Iterator[str]:
    """A folder for the seats of an epoch's works, as long as they are computed."""
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


def take_seat(
    folder: str, partition: int, works: Sequence[Assignment], unread: Callable[[Assignment], int]
) -> Assignment:
    """The work that the task of a partition does. `unread` tells how many rows of its state would have to be read here."""
    for seat in Path(folder).iterdir():
        if str(seat.readlink()) == str(partition):
            return works[int(seat.name)]
    order = sorted(range(len(works)), key=lambda place: (unread(works[place]), place != partition, place))
    for place in order:
        try:
            (Path(folder) / str(place)).symlink_to(str(partition))
        except FileExistsError:
            continue
        return works[place]
    raise RuntimeError(f"no seat is left for partition {partition} of {len(works)}")


def _remove_older(exchange: Path, fence: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        for folder in exchange.iterdir():
            if (number := number_of(folder.name)) is not None and number < fence:
                shutil.rmtree(folder, ignore_errors=True)
