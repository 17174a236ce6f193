"""Starts a host on Spark: Spark itself, the probe of a cluster, and `SparkEpochs` or a gang on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from streamwork.epoch.host import Host
from streamwork.hosts.master import is_remote, with_slots
from streamwork.hosts.session import start_spark
from streamwork.hosts.spark_life import forget_spark, spark_is_gone
from streamwork.job import Graph
from streamwork.world import Clock


def start_spark_host(
    graph: Graph,
    root: Path,
    master: str,
    log: Path | None,
    module_folder: Path | None,
    clock: Clock,
    check: Callable[[], None] = lambda: None,
    live: bool = False,
    publishes: bool = False,
) -> Host:
    """A host on the Spark of this process, which is started if there is none. A cluster is first probed for this job.

    `check` is called often meanwhile; if it raises, the start is given up. `live`: a gang of tasks, which run all the time;
    `publishes`: their changes behind the newest checkpoint can be asked for.
    """
    from streamwork.hosts.probe import probe
    from streamwork.hosts.spark_epochs import SparkEpochs

    if spark_is_gone():
        forget_spark()
    if live:
        master = with_slots(master, max(node.parallelism for node in graph.nodes))
    spark = start_spark(master, log, [module_folder] if module_folder else [], check)
    if is_remote(spark.sparkContext.master):
        nodes = [node for node in graph.nodes if graph.travels(node)]
        kinds = [kind for node in nodes for kind in (type(node.component), node.takes, node.gives) if kind is not None]
        probe(spark, root, sorted({kind.__module__ for kind in kinds}), check)
    if live:
        from streamwork.hosts.gang import GangHost
        from streamwork.hosts.spark_gang import SparkLauncher

        return GangHost(SparkLauncher(spark), clock, publishes)
    return SparkEpochs(spark, clock)
