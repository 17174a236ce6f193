"""Failures that travel back to the sources, under acknowledging in live mode: a failed event is replayed at once.

    1  a component fails an event. It stays in the report of that component's instance
    2  the task that reads the event's source partition is informed: directly, or through the mailbox of the failing task
    3  if the event's epoch is still under way at the source, the source reads the event again and emits it under another root,
       which its report names (`Report.again`). The driver then leaves the failure of 1 out (`epoch.redelivery`)

Only the driver's record is durable. A failure that comes after the checkpoint event of its source, or a second failure of the same
event, is handled by the driver: the event waits for `retry_after`, and comes again in a later epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from streamwork.engine.executor import Executor
from streamwork.flow.lineage import first, lane_of
from streamwork.world.mailbox import MailReader, MailWriter


class Failed(msgspec.Struct, frozen=True, array_like=True):
    epoch: int
    root: int


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Failed).decode


class Failures:
    def __init__(self, folder: Path, task: int, tasks: int, executors: Sequence[Executor], max_attempts: int) -> None:
        """`folder` is that of the gang."""
        self._executors = executors
        self._replays = max_attempts > 1
        self._sources = [one for one in executors if one.instance.chain.reads]
        self._out = MailWriter(folder / f"failed-{task}") if tasks > 1 else None
        self._in = [MailReader(folder / f"failed-{other}") for other in range(tasks) if other != task]
        self._seen: dict[int, set[int]] = {}  # epoch -> roots that were replayed

    def pass_back(self) -> bool:
        """2 and 3, for everything that has failed since the last call. True if an event was replayed."""
        found = [Failed(one.epoch, root) for one in self._executors for root in one.instance.chain.new_failures()]
        if found and self._out is not None:
            for failed in found:
                self._out.send(_encode(failed))
        return self._replay((*found, *(_decode(message) for box in self._in for message in box.receive())))

    def _replay(self, failures: Iterable[Failed]) -> bool:
        replayed = False
        for epoch, root in ((one.epoch, one.root) for one in failures):
            source = next(
                (one for one in self._sources if one.epoch == epoch and one.reads_lane(lane_of(root)[0])), None
            )
            seen = self._seen.setdefault(epoch, set())
            if source is None or first(root) is not None or root in seen or not self._replays:
                continue
            seen.add(root)
            source.replay(root)
            replayed = True
        self._seen = {epoch: seen for epoch, seen in self._seen.items() if epoch >= max(self._seen) - 1}
        return replayed

    def close(self) -> None:
        if self._out is not None:
            self._out.close()
        for box in self._in:
            box.close()
