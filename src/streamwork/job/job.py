"""`Job`: a job under construction."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from streamwork.components import (
    Event,
    Located,
    Observer,
    OffsetSource,
    Source,
    StatefulSource,
)
from streamwork.components.duration import duration_in_microseconds, seconds
from streamwork.components.operator import isolates_failures
from streamwork.errors import WrongUse
from streamwork.job import draw, params
from streamwork.job.backoff import Backoff
from streamwork.job.backpressure import BackpressureName, known_backpressure
from streamwork.job.graph import Graph, duplicate_id
from streamwork.job.names import check_name
from streamwork.job.node import Input, Node, NodeKind, ids
from streamwork.job.operators import not_a
from streamwork.job.parallelism import instances
from streamwork.job.retry import Retry
from streamwork.job.running import ModeName, RunSummary
from streamwork.job.semantics import Promise, SemanticsName, TrackingName
from streamwork.job.settings import Settings
from streamwork.job.size import size
from streamwork.job.stream import Stream

E = TypeVar("E", bound=Event)


class Job:
    """A job under construction. A mistake raises an error at the line that makes it; `graph()` freezes the job.

    `home` is the folder of the job file: relative paths of sources and sinks, and the default root, are resolved against it. It is
    the folder of the file that calls `Job(...)`, unless the job is started through another file.

    Order: the events of one key and source partition are applied in offset order, as long as each exchange routes them by fields
    that the next key contains; behind a re-keying, in the order of each sending instance. Only `shuffle()` distributes events round
    robin.
    """

    runner: ClassVar[Callable[..., RunSummary] | None] = None
    """Called by `run`. The package `streamwork` sets it, because a job imports nothing of the packages above it."""

    printer: ClassVar[type[Observer] | None] = None
    """The observer behind `Stream.print`; set likewise."""

    def __init__(
        self,
        name: str,
        *,
        semantics: SemanticsName = "exactly-once",
        checkpoint_every: str | float = "1s",
        checkpoint_timeout: str | float | None = None,
        target_epoch: str | float | None = None,
        parallelism: int = 1,
        retain: int = 3,
        lease: str | float = "10s",
        state_memory: str | int = "1GB",
        restart: Backoff | None = Backoff(),  # noqa: B008 (a frozen value)
        tracking: TrackingName | None = None,
        max_attempts: int = 3,
        retry_after: str | float = "1s",
        ack_timeout: str | float = "30s",
        backpressure: BackpressureName = "sources",
    ) -> None:
        self.name = check_name(name, "job name")
        self.settings = Settings(
            semantics=semantics,
            checkpoint_every=seconds(checkpoint_every),
            checkpoint_timeout=None if checkpoint_timeout is None else seconds(checkpoint_timeout),
            target_epoch=None if target_epoch is None else seconds(target_epoch),
            parallelism=parallelism,
            retain=retain,
            lease=seconds(lease),
            state_memory=size(state_memory),
            restart=restart,
            tracking=tracking,
            max_attempts=max_attempts,
            retry_after=seconds(retry_after),
            ack_timeout=seconds(ack_timeout),
            backpressure=backpressure,
        )
        self.home = folder_of(sys._getframe(1).f_globals.get("__file__"))
        self._nodes: dict[str, Node] = {}
        self._asked: dict[str, int] = {}  # component -> the parallelism set for it
        self.params: dict[str, Any] = {}
        """The parameters that the job file has asked for, with their values."""

    def param(self, name: str, *, default: params.T) -> params.T:
        """A value that ``--param NAME=VALUE`` gives, or the default, whose type it has: int, float, bool, str, Decimal, timedelta
        or `Duration`. Ask at the top level of the job file: Spark's workers import it with the same values.
        """
        check_name(name, "parameter")
        if name in self.params:
            raise WrongUse("SW-JOB-PARAM", f"parameter {name!r} is declared twice", "keep its value in a variable")
        value = params.ask(name, default, sys._getframe(1).f_globals.get("__name__", ""))
        self.params[name] = value
        return value

    def source(
        self,
        source: OffsetSource[E] | Source[E] | StatefulSource[E, Any],
        *,
        id: str,
        time: str | None = None,
        idle_after: str | float | None = None,
        max_ahead: str | float | None = None,
        parallelism: int | None = None,
        renamed_from: str | Sequence[str] = (),
    ) -> Stream[E]:
        """Add a source and return its stream. `time` names the field with the time of an event: it is event time, for timers and
        watermarks.

        `idle_after`: a partition that brings no event for so long, by processing time, no longer holds event time back until its
        next event. Without it, a silent partition holds it back.

        `max_ahead`: an event whose time is further ahead of processing time does not advance the watermark. The source's `on_error`
        applies to it, with the error SW-TIME-AHEAD. The default is one day: no clock that is merely wrong, or set to local time, is
        that far ahead, but a wrong year or unit is.

        Without `parallelism=`, a source with offsets has as many instances as the job's parallelism, but no more than it has
        partitions. A `Source` or `StatefulSource` has one; with more, each instance must read its own part of the input
        (`setup_instance` gets their number).

        `renamed_from` is the id that the source had, or several, newest first: its positions go on under the new one.
        """
        if not isinstance(source, OffsetSource | Source | StatefulSource):
            raise not_a("source", source, "JsonLines, ListSource or another source")
        return self._add(
            Node(
                id,
                NodeKind.SOURCE,
                source,
                keeps=source.record if isinstance(source, StatefulSource) else None,
                gives=source.event,
                time=time,
                idle_after=None if idle_after is None else duration_in_microseconds(idle_after),
                max_ahead=None if max_ahead is None else duration_in_microseconds(max_ahead),
                renamed_from=ids(renamed_from),
            ),
            parallelism,
        )

    def graph(
        self,
        settings: Settings | None = None,
        instead: Mapping[str, Any] | None = None,
        parallelism: Mapping[str, int] | None = None,
    ) -> Graph:
        """The frozen, validated graph, with these settings or the job's own. Refuses semantics that cannot hold.

        `instead` replaces components, by id; `parallelism` their number of instances.
        """
        chosen = settings or self.settings
        asked = {name: self._checked(count) for name, count in {**self._asked, **(parallelism or {})}.items()}
        nodes: dict[str, Node] = {}
        for node in self._nodes.values():
            component = (instead or {}).get(node.id, node.component)
            node = resolved(_located(replace(node, component=component), self.home), chosen.promise)
            before = [nodes[one.node] for one in node.inputs]
            count = instances(node, asked.get(node.id), chosen.parallelism, before)
            nodes[node.id] = replace(node, parallelism=count)
        values = tuple((name, params.stored(value)) for name, value in self.params.items())
        policy = known_backpressure(chosen.backpressure)
        return Graph(self.name, tuple(nodes.values()), chosen.promise, values, policy)

    def fork(self, name: str, targets: Mapping[str, str]) -> Job:
        """The same job under another name, with other targets of its sinks: id -> what `Sink.with_target` takes."""
        forked = copy.copy(self)
        forked.name = check_name(name, "job name")
        now = {was: id for id, node in self._nodes.items() for was in node.renamed_from}
        targets = {now.get(id, id): target for id, target in targets.items()}
        forked._nodes = {id: _retargeted(node, targets.get(id)) for id, node in self._nodes.items()}
        sinks = [node.id for node in self._nodes.values() if node.kind is NodeKind.SINK]
        for unknown in targets.keys() - set(sinks):
            raise WrongUse(
                "SW-FORK-TARGET",
                f"job {self.name} has no sink {unknown!r}",
                f"use one of: {', '.join(sinks) or 'none'}",
            )
        return forked

    def with_components(self, others: Mapping[str, Any]) -> Job:
        """The same job with other components in some places: id -> component, of the same types."""
        changed = copy.copy(self)
        changed._nodes = {
            id: replace(node, component=others[id]) if id in others else node for id, node in self._nodes.items()
        }
        return changed

    @property
    def components(self) -> dict[str, Any]:
        """Id -> component, in the order of their addition."""
        return {node.id: node.component for node in self._nodes.values()}

    def describe(self) -> str:
        """The job as text, one line per component."""
        return draw.describe(self.graph())

    def to_mermaid(self) -> str:
        """The job as a Mermaid diagram."""
        return draw.to_mermaid(self.graph())

    def run(
        self,
        *,
        mode: ModeName = "local",
        root: str | Path | None = None,
        until_caught_up: bool = False,
        checkpoint_every: str | float | None = None,
        retain: int | None = None,
        lease: str | float | None = None,
        restart: bool = True,
        take_over: bool = False,
        standby: bool = False,
        accept_divergence: bool = False,
        semantics: SemanticsName | None = None,
        tracking: TrackingName | None = None,
        backpressure: BackpressureName | None = None,
        change_semantics: bool = False,
        drop_state: Sequence[str] = (),
        on_error: Mapping[str, str | Retry] | None = None,
        refill: Sequence[str] = (),
        from_: str | None = None,
        input: Mapping[str, str] | None = None,  # noqa: A002 (the name of the option)
        accept_input: bool = False,
        rewind_output: bool = False,
        queryable_latest: bool = False,
        master: str | None = None,
        spark_log: bool = False,
    ) -> RunSummary:
        """Run the job in this process until it ends, is stopped, or fails. The arguments are the options of ``streamwork run``.

        mode                where to run: "local", or on Spark "microbatch", "live" or "batch"
        root                the folder of checkpoints and state; `.streamwork` beside the job file
        until_caught_up     end when all input that was there at the start has been processed
        checkpoint_every, retain, lease, semantics, tracking, backpressure
                            override the settings of the job for this run
        restart             False: a failure ends the run
        take_over           do not wait until another driver of this root is taken for dead
        standby             wait while another driver runs the job, and take it over when that driver is gone
        accept_divergence   catch up also where results may differ from those in a sink
        change_semantics    confirm semantics other than those that the root was written with
        drop_state          ids of components whose stored state is not used
        on_error            component id -> what to do with events that fail, in this run
        refill              ids of sinks that may be filled again if their target is lost
        from_               begin with the state and the positions of "savepoint:NAME", "checkpoint:N" or a savepoint's folder
        input               with from_, source id -> where it is read from instead: "earliest", "latest" or "time:..."
        accept_input        with input, confirm that events may be skipped or counted twice
        rewind_output       with from_, remove what sinks have beyond that checkpoint, where they can
        queryable_latest    with mode="live", let state behind the newest checkpoint be queried
        master              the Spark master; all cores of this machine if None
        spark_log           show Spark's own log
        """
        assert Job.runner is not None, "import streamwork, not a module inside it"
        return Job.runner(
            self,
            mode=mode,
            root=root,
            until_caught_up=until_caught_up,
            checkpoint_every=checkpoint_every,
            retain=retain,
            lease=lease,
            restart=restart,
            take_over=take_over,
            standby=standby,
            accept_divergence=accept_divergence,
            semantics=semantics,
            tracking=tracking,
            backpressure=backpressure,
            change_semantics=change_semantics,
            drop_state=drop_state,
            on_error=on_error,
            refill=refill,
            from_=from_,
            input=input,
            accept_input=accept_input,
            rewind_output=rewind_output,
            master=master,
            queryable_latest=queryable_latest,
            spark_log=spark_log,
        )

    def _add(self, node: Node, asked: int | None = None) -> Stream[Any]:
        """Add a component; `asked` is the parallelism set for it."""
        if node.id in self._nodes:
            raise duplicate_id(self.name, node.id)
        if asked is not None:
            self._asked[node.id] = self._checked(asked)
        self._nodes[node.id] = node
        return Stream(self, (Input(node.id),), node.gives)

    def _checked(self, parallelism: int) -> int:
        return Settings(parallelism=parallelism, groups=self.settings.groups).parallelism

    def _free_id(self, wanted: str) -> str:
        """`wanted`, or `wanted-2`, `wanted-3`, ... if that is taken."""
        tries = [wanted, *(f"{wanted}-{n}" for n in range(2, len(self._nodes) + 3))]
        return next(name for name in tries if name not in self._nodes)


def folder_of(file: str | None) -> Path:
    """The folder of the file that creates a job; the working directory in an interactive session."""
    return Path(file).absolute().parent if file else Path.cwd()


def _retargeted(node: Node, target: str | None) -> Node:
    if target is None:
        return node
    try:
        return replace(node, component=node.component.with_target(target))
    except (NotImplementedError, AttributeError):
        raise WrongUse(
            "SW-FORK-TARGET",
            f"sink {node.id} ({node.title}) cannot be given another target",
            "give it its own target in the job file of the fork, or implement with_target() of the sink",
        ) from None


def _located(node: Node, home: Path) -> Node:
    component = node.component
    return replace(node, component=component.located(home)) if isinstance(component, Located) else node


def resolved(node: Node, promise: Promise) -> Node:
    """The node with defaults that depend on the semantics. An error in `print()` never stops a job."""
    if isinstance(node.component, Observer):
        return replace(node, on_error="drop")
    if node.kind is NodeKind.SOURCE:
        return replace(node, component=node.component.with_on_error(promise.on_error))
    if node.on_error:
        return node
    return replace(node, on_error=promise.on_error if isolates_failures(node.component) else "fail")
