"""`Publisher`: appends what the instances of a task have changed behind their last checkpoint, for readers that ask with
`consistency="latest"` (`state.tail`).

It is called often, between two turns, and takes at most `SHARE` of the task's time: the more an addition costs, the later is the
next one. Files of an epoch are removed when a checkpoint at or beyond it is complete. What changed between the last addition of
an epoch and its end can be read with its checkpoint.

Answers never depend on these files alone, so a task that cannot write them goes on without.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from streamwork.engine.instance import Instance
from streamwork.flow.blame import Blame
from streamwork.job import NodeKind
from streamwork.state.changes import changes_of
from streamwork.state.rows import RowFormat
from streamwork.state.tail import FOLDER, TailName, TailWriter
from streamwork.world import Clock, Disk, number_of

EVERY = 0.05
"""Shortest time between two additions, in seconds."""
SHARE = 0.05
CLEAN_EVERY = 0.25
"""Seconds between two looks for checkpoints that are complete."""
LARGE = 8 << 20
"""A file from this size on is replaced by one that has each row once, unless that is not much smaller."""
_log = logging.getLogger(__name__)


def tail_folder(gang: Path) -> Path:
    """Where the tasks of a gang publish. The driver makes this folder if they are to."""
    return gang.parent / FOLDER / gang.name


class Publisher:
    def __init__(self, folder: Path, job: Path, instances: Sequence[Instance], disk: Disk, clock: Clock) -> None:
        self._folder, self._checkpoints = folder, job / "checkpoints"
        self._disk, self._clock = disk, clock
        self._tails = [
            Tail(folder, instance, name, rows)
            for instance in instances
            for name, rows in instance.formats.items()
            if instance.chain.graph[name].kind is not NodeKind.SOURCE
        ]
        for instance in instances:
            mine = [tail for tail in self._tails if tail.instance is instance]
            instance.before_checkpoint = lambda mine=mine: [tail.give_back() for tail in mine]  # type: ignore[misc]
        self._next = self._clean_at = clock.monotonic()

    def publish(self) -> None:
        """Append what has changed, if it is time."""
        began = self._clock.monotonic()
        if began < self._next:
            return
        try:
            for tail in self._tails:
                tail.publish(self._clock.now())
            if began >= self._clean_at:
                self._clean_at = began + CLEAN_EVERY
                self._clean()
        except OSError as error:
            _log.warning("changes behind the checkpoint can no longer be asked for: %s", error)
            self.close()
            self._tails = []
        done = self._clock.monotonic()
        self._next = done + max(EVERY, (done - began) * (1 / SHARE - 1))

    def close(self) -> None:
        """The files stay: the checkpoint that has their rows may not be complete yet."""
        for tail in self._tails:
            tail.close()

    def _clean(self) -> None:
        oldest = min((tail.oldest for tail in self._tails if tail.files), default=None)
        if oldest is None:
            return
        if self._disk.exists(self._checkpoints / f"{oldest:012d}.json"):
            completed = oldest
        else:  # it is not complete yet, or pruned
            names = (name.partition(".") for name in self._disk.names(self._checkpoints))
            numbers = (number_of(stem, digits=12) for stem, _, rest in names if rest == "json")
            completed = max((number for number in numbers if number is not None), default=0)
        for tail in self._tails:
            tail.remove_until(completed)


class Tail:
    """The changes of one component's instance. `files`: by epoch, the oldest first."""

    def __init__(self, folder: Path, instance: Instance, component: str, rows: RowFormat) -> None:
        self.instance = instance
        self.files: dict[int, TailWriter] = {}
        self._folder, self._component, self._rows = folder, component, rows
        self._changes = changes_of(rows, instance.states[component])
        self._columns = [name for name in rows.schema.names if name in rows.fields or name == "__deleted"]
        self._first = 0  # size of the first frame of the file
        self._part = 0

    @property
    def oldest(self) -> int:
        return next(iter(self.files))

    def give_back(self) -> None:
        self._changes.give_back()

    def publish(self, now: float) -> None:
        epoch = self.instance.epoch
        if not epoch or self.instance.chain.waiting is not None:
            return
        file = self.files.get(epoch)
        if file is not None and file.size > max(LARGE, 4 * self._first):
            self._changes.give_back()
            self._append(epoch, self._part + 1, now)
            if self.files[epoch] is not file:
                file.remove()
        elif file is not None:
            self._append(epoch, self._part, now)
        else:
            for older in self.files.values():
                older.close()
            self._append(epoch, 0, now)

    def _append(self, epoch: int, part: int, now: float) -> None:
        self.instance.chain.store_states(self._component)
        with Blame.of_state(self.instance.chain.graph, self._component).blaming():
            rows = self._changes.take(epoch)
        if rows is None or not rows.num_rows:
            return
        file = self.files.get(epoch)
        if file is None or part != self._part:
            name = TailName(self._component, self.instance.chain.instance, epoch, part)
            file = self.files[epoch] = TailWriter(self._folder / str(name))
            self._part = part
            self._first = 0
        file.append(now, rows.select(self._columns))
        self._first = self._first or file.size

    def remove_until(self, epoch: int) -> None:
        for one in [one for one in self.files if one <= epoch]:
            self.files.pop(one).remove()

    def close(self) -> None:
        for file in self.files.values():
            file.close()
