"""Keeps `views.sql` (`state.sql_views`) and `graph.json` in the job's folder as the running job needs them.

They say which components there are and what their columns are, so that the state can be read without the job's code. They change
at a start, never at a checkpoint. A driver writes them when it has recovered, and now and then looks whether they are still there;
both only while no newer driver has come. Where an older driver's last write falls between that check and the newer one's write, the
newer one finds the difference at its next look.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from streamwork.engine.instance import row_format
from streamwork.epoch.fences import Fences
from streamwork.epoch.participant import Participant
from streamwork.epoch.savepoints.graph_record import GraphRecord
from streamwork.epoch.savepoints.record import GRAPH
from streamwork.epoch.sealed import to_bytes
from streamwork.epoch.store import Store
from streamwork.job import Graph
from streamwork.state.sql_views import FILE, FOLDER, defaults_file, script

if TYPE_CHECKING:
    from streamwork.epoch.footing import Footing


class Views(Participant):
    def __init__(self, graph: Graph, store: Store, fences: Fences) -> None:
        self._graph = graph
        self._store = store
        self._fences = fences
        self._fence = 0
        self._wanted: dict[str, bytes] = {}

    def resume(self, footing: Footing) -> Sequence[str]:
        self._fence = footing.fence
        formats = [row_format(self._graph, node, footing.identity.groups) for node in self._graph.stateful]
        text = script(self._graph.job, self._store.folder, formats, self._fences.starts.dropped_by())
        self._wanted = {f"{FOLDER}/{rows.component}.parquet": defaults_file(rows) for rows in formats}
        self._wanted[GRAPH] = to_bytes(GraphRecord.of(self._graph))
        self._wanted[FILE] = text.encode()  # last: the others are there when it is
        self.restore()
        return ()

    def restore(self) -> None:
        """Write the files that are missing or differ."""
        disk, folder = self._store.disk, self._store.folder
        for name, data in self._wanted.items():
            path = folder / name
            if not (disk.exists(path) and disk.read(path) == data):
                self._fences.check(self._fence)
                disk.make_folder(path.parent)
                disk.replace(path, data)
