"""Claims: how far instances that read all the time may have read, under at-most-once.

    claims/live-FENCE-TASK.json     SOURCE/PARTITION -> offset

    1  a source task makes a claim durable that is ahead of what it reads (`engine.claiming`)
    2  it processes events below the claim, and writes them at once
    3  before it reaches the claim, it replaces it by one that is further ahead

After a crash the next start reads on behind all claims, so no event is processed twice. What lies between the checkpoint and
the claims is in doubt. A claim may be beyond the end of the input: then the next start reads on where the input ends, and replaces
the claims by that, since what comes later was never read:

    claims/live-FENCE-driver.json
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from streamwork.components import Position
from streamwork.errors import Refused
from streamwork.job import Graph
from streamwork.world import Disk

FOLDER = "claims"
PREFIX = "live-"


def within_input(graph: Graph, claimed: Position) -> Position:
    """Claims, as far as there is input: what is added later was never read."""
    found: dict[str, int] = {}
    for node in graph.planned:
        mine = claimed.of(node.id)
        for partition, end in node.component.latest(list(mine)).items() if mine else ():
            found[f"{node.id}/{partition}"] = min(mine[partition], end)
    return Position(found)


class Claims:
    def __init__(self, disk: Disk, folder: Path) -> None:
        """`folder` is that of the job."""
        self._disk = disk
        self._folder = folder

    def furthest(self) -> Position:
        """How far any task has claimed. Refuses a claim that cannot be read: its events may have been written."""
        found = Position()
        for path in self._paths():
            try:
                found = found.furthest(Position(msgspec.json.decode(self._disk.read(path), type=dict[str, int])))
            except FileNotFoundError:
                continue
            except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
                raise Refused(
                    "SW-CLAIM-DAMAGED",
                    f"{path} says how far the input may have been processed, and cannot be read: {error}",
                    "restore the file from a backup; or remove it: events that it covers may then be processed twice",
                ) from error
        return found

    def settle(self, graph: Graph, fence: int) -> Position:
        """To be called when all tasks that have made claims have ended. Limits the claims, durably, to the input that is there now,
        and returns them: input that comes later was not read.
        """
        paths = self._paths()
        if not paths:
            return Position()
        claimed = self.furthest()
        found = within_input(graph, claimed)
        mine = self._folder / FOLDER / f"{PREFIX}{fence}-driver.json"
        self._disk.replace(mine, msgspec.json.encode(dict(claimed.moved(found))))
        for path in paths:
            if path != mine:
                self._disk.discard(path)
        return found

    def _paths(self) -> list[Path]:
        folder = self._folder / FOLDER
        return [folder / name for name in self._disk.names(folder) if name.startswith(PREFIX)]
