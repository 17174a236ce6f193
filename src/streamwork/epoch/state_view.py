"""The state of one component at one checkpoint, for readers: see `state.view`."""

from __future__ import annotations

from streamwork.engine.instance import row_format
from streamwork.epoch.manifest import Manifest
from streamwork.epoch.store import Store
from streamwork.job import Graph
from streamwork.state import StateFiles, StateView


def state_view(graph: Graph, store: Store, manifest: Manifest, component: str, groups: int) -> StateView:
    """The state of a component of `graph` at `manifest`; empty if the manifest does not name the component."""
    rows = row_format(graph, graph[component], groups)
    return StateView(StateFiles(store.disk, store.folder), rows, manifest.components.get(component, {}))
