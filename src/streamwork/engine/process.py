"""Builds the executors of one process: the same way for every host.

`Engine` builds those of all instances, connected in memory; `Attempt` builds one, connected by parcels.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from streamwork.engine.assignment import Assignment
from streamwork.engine.chain import Chain
from streamwork.engine.executor import Executor, ReportTo
from streamwork.engine.instance import Instance, Restore
from streamwork.flow.dispatcher import Dispatcher
from streamwork.flow.needs import Needs
from streamwork.flow.transport import Transport
from streamwork.flow.wiring import ways
from streamwork.job import Layout
from streamwork.world import Clock, Disk


class Process:
    """What the executors of one process share."""

    def __init__(self, layout: Layout, disk: Disk, clock: Clock, align: bool = True) -> None:
        """`align=False` is for proving that alignment is needed."""
        self.layout = layout
        self._disk = disk
        self._clock = clock
        self._align = align

    def executor(
        self,
        work: Assignment,
        transport: Transport,
        new_attempt: Callable[[], str],
        report: ReportTo,
        restore: Restore | None = None,
        chain: Chain | None = None,
    ) -> Executor:
        """The executor of the instance that `work` names, with its states restored. `chain` is one that is set up already."""
        layout, place = self.layout, (work.chain, work.instance)
        nodes = layout.chains[work.chain].nodes
        if chain is None:
            chain = Chain(layout.graph, nodes, work.instance, Needs.of(layout, work.chain))
        instance = Instance(chain, self._disk, work, restore, self._clock)
        inputs, outputs = transport.inputs(place), transport.outputs(place)
        chain.progress.expect(channel.name for (before, _), channel in inputs.items() if layout.has_event_time(before))
        return Executor(
            f"{nodes[0]}[{work.instance}]",
            instance,
            new_attempt,
            Dispatcher(list(inputs.values()), self._align),
            ways(layout, place, outputs),
            list(outputs.values()),
            report,
            partial(transport.holds, place),
        )
