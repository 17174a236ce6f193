"""The processes of a simulated machine."""

from __future__ import annotations

from streamwork.world import ProcessId


class SimulatedProcesses:
    """Processes that all end at a `restart`."""

    def __init__(self) -> None:
        self.life = 1

    def me(self) -> ProcessId:
        return ProcessId("simulated", self.life, 0.0)

    def gone(self, process: ProcessId) -> bool:
        return process.pid < self.life

    def restart(self) -> None:
        self.life += 1
