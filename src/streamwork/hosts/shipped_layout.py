"""The layout of a job, sent to Spark's Python workers once."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from streamwork.connectors.address import SecretsFile
from streamwork.errors import JobFailed
from streamwork.job import Layout
from streamwork.job.params import pack


class ShippedLayout:
    def __init__(self, context: Any) -> None:
        """`context` is that of Spark."""
        self.layout: Layout | None = None
        self._context = context
        self._token = ""
        self._broadcast: Any = None
        self._secrets: SecretsFile | None = None

    def ship(self, layout: Layout, folder: Path) -> tuple[str, Any]:
        """Broadcast the layout to the workers, once. Its token identifies this layout object. `folder` is that of the job."""
        if self.layout is not layout:
            from pyspark import cloudpickle

            self.unship()
            self._secrets = SecretsFile(folder / "secrets")
            try:
                with self._secrets.collecting():
                    packed = pack(layout.graph.params, cloudpickle.dumps(_for_workers(layout)))
            except Exception as error:
                raise JobFailed(
                    "SW-OPERATOR-COPY",
                    f"the job cannot be sent to Spark's workers: {type(error).__name__}: {error}",
                    "open connections and the like in setup_instance of the operator that holds them, not in its constructor",
                    retryable=False,
                ) from error
            self._secrets.write()
            self.layout, self._token = layout, hashlib.sha256(packed).hexdigest()
            self._broadcast = self._context.broadcast(packed)
        return self._token, self._broadcast

    def unship(self) -> None:
        if self.layout is not None:
            self._broadcast.destroy()
            self.layout = None
        if self._secrets is not None:
            self._secrets.remove()
            self._secrets = None


def _for_workers(layout: Layout) -> Layout:
    """The layout without sinks that stay on the driver with their connections."""
    graph = layout.graph
    nodes = tuple(n if graph.travels(n) else replace(n, component=None) for n in graph.nodes)
    return Layout(replace(graph, nodes=nodes), layout.groups, layout.edges)
