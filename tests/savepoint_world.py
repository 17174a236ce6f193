"""A small keyed job on a simulated machine, for tests of savepoints: driver, store, recovery and local host are real."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sample import Payment, Summing, payments
from streamwork import Job, ListSource, SqliteSink
from streamwork.epoch import Driver, Store
from streamwork.epoch.savepoints import Begun
from streamwork.epoch.savepoints.saving import Saver
from streamwork.hosts.local import LocalHost
from streamwork.job import Graph
from streamwork.testing.clock import VirtualClock
from streamwork.testing.disk import SimulatedDisk
from streamwork.testing.memory import MemorySink, Table
from streamwork.testing.processes import SimulatedProcesses
from streamwork.testing.script import Script
from streamwork.world import Disk

ROOT = Path("/root")
JOB = "saved"


class World:
    """The machine: it may lose its power; then every driver is gone, and `restart` brings it back."""

    def __init__(self, seed: int = 0, events: Sequence[Payment] | None = None, slices: int = 4) -> None:
        self.disk = SimulatedDisk(seed)
        self.clock = VirtualClock()
        self.processes = SimulatedProcesses()
        self.table = Table()
        self.events = payments(24, cards=5) if events is None else list(events)
        self._slices = slices
        self._ids = itertools.count(1)

    @property
    def store(self) -> Store:
        return Store(self.disk, ROOT, JOB)

    @property
    def folder(self) -> Path:
        return ROOT / JOB / "savepoints"

    def new_uid(self) -> str:
        return f"{next(self._ids):032x}"

    def graph(self, parallelism: int = 2) -> Graph:
        job = Job(JOB, checkpoint_every=0, parallelism=parallelism)
        seen = job.source(ListSource([], Payment), id="in").apply(Summing(), key="card", id="sums")
        seen.sink(SqliteSink("/nowhere/out.db", "out"), id="out")
        graph = job.graph()
        parts: dict[str, Any] = {
            "in": Script(Payment, self.events, 1, self._slices, lambda: False, self.clock.sleep, self.clock.sleep),
            "out": MemorySink(self.table),
        }
        return replace(
            graph, nodes=tuple(replace(node, component=parts.get(node.id, node.component)) for node in graph.nodes)
        )

    def driver(self, **options: Any) -> Driver:
        job = Job(JOB, checkpoint_every=0, retain=2)
        return Driver(
            self.graph(),
            job.settings,
            self.store,
            LocalHost(self.disk, clock=self.clock),
            self.clock,
            self.new_uid,
            processes=self.processes,
            **options,
        )

    def run(self, epochs: int, **options: Any) -> Driver:
        """A driver that has started and has completed so many epochs."""
        driver = self.driver(**options)
        driver.start()
        for _ in range(epochs):
            driver.run_epoch()
        return driver

    def save(self, driver: Driver, name: str = "one", note: str = "") -> Path:
        """A savepoint of the newest checkpoint, in one go."""
        identity = self.store.identity()
        assert identity is not None
        saver = Saver(self.graph(), self.store, lambda: f"9-{self.new_uid()[-8:]}")
        captured = saver.capture(identity, driver.at)
        folder = self.folder / name
        writer = saver.begin(folder, Begun(name, self.clock.now(), "a@b", note), captured)
        saver.write(writer, captured)
        return folder


def every_file(disk: Disk, folder: Path) -> dict[str, bytes]:
    """Path below the folder -> content."""
    found: dict[str, bytes] = {}
    for name in disk.names(folder):
        try:
            found[name] = disk.read(folder / name)
        except IsADirectoryError:
            found.update((f"{name}/{path}", data) for path, data in every_file(disk, folder / name).items())
    return found


def put_all(disk: Disk, folder: Path, files: Mapping[str, bytes]) -> Path:
    """Write files, as `cp -r` onto another machine does."""
    for path, data in files.items():
        disk.make_folder((folder / path).parent)
        disk.create(folder / path, data)
    return folder
