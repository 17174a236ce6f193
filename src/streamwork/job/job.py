"""`Job` and `Stream`: the surface that people write jobs with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from streamwork.components import (
    AnyOperator,
    AnySink,
    Event,
    Key,
    KeyedOperator,
    Observer,
    OffsetSource,
    Operator,
    Record,
    Sink,
)
from streamwork.errors import WrongUse
from streamwork.job import draw
from streamwork.job.graph import Graph, Node, NodeKind, check_types, duplicate_id
from streamwork.job.names import check_name, slug
from streamwork.job.settings import Settings, seconds


class Job:
    """A job under construction. Mistakes are refused at the line that makes them; `graph()` freezes the whole."""

    runner: ClassVar[Callable[..., Any] | None] = None
    """What `run` calls. The package's top level puts it here, because a job knows nothing of the hosts above it."""

    printer: ClassVar[Callable[[], Observer] | None] = None
    """Makes the observer behind `Stream.print`; put here likewise."""

    def __init__(
        self, name: str, semantics: str = "exactly-once", checkpoint_every: str | float = "1s", parallelism: int = 1
    ) -> None:
        self.name = check_name(name, "job name")
        self.settings = Settings(
            semantics=semantics, checkpoint_every=seconds(checkpoint_every), parallelism=parallelism
        )
        self._nodes: dict[str, Node] = {}

    def source(self, source: OffsetSource[Any], id: str) -> Stream:  # noqa: A002 (the word users know)
        """Begin a stream."""
        if not isinstance(source, OffsetSource):
            raise _not_a("source", source, "JsonLines, ListSource or another OffsetSource")
        return self._add(Node(id, NodeKind.SOURCE, source, gives=source.event))

    def graph(self) -> Graph:
        """The frozen, validated graph."""
        return Graph(self.name, tuple(self._nodes.values()))

    def describe(self) -> str:
        """The job as text, one line per component."""
        return draw.describe(self.graph())

    def to_mermaid(self) -> str:
        """The job as a Mermaid diagram."""
        return draw.to_mermaid(self.graph())

    def run(self, **options: Any) -> Any:
        """Run the job; the options are those of ``streamwork run`` (mode=, root=, until_caught_up=, ...)."""
        assert Job.runner is not None, "import streamwork, not a module inside it"
        return Job.runner(self, **options)

    def _add(self, node: Node) -> Stream:
        if node.id in self._nodes:
            raise duplicate_id(self.name, node.id)
        self._nodes[node.id] = node
        return Stream(self, node)

    def _free_id(self, wanted: str) -> str:
        """`wanted`, or `wanted-2`, `wanted-3`, ... if that is taken."""
        tries = [wanted, *(f"{wanted}-{n}" for n in range(2, len(self._nodes) + 3))]
        return next(name for name in tries if name not in self._nodes)


class Stream:
    """The events that one component gives. Every method adds a component behind it and leaves this stream as it is."""

    def __init__(self, job: Job, node: Node) -> None:
        self.job = job
        self._node = node

    @property
    def id(self) -> str:
        return self._node.id

    @property
    def event(self) -> type[Event]:
        if self._node.gives is None:
            raise WrongUse(
                "SW-JOB-EDGE", f"{self.id} is a sink: nothing comes out of it", "go on from the stream before it"
            )
        return self._node.gives

    def apply(self, operator: AnyOperator, key: str | Iterable[str] | None = None, id: str | None = None) -> Stream:  # noqa: A002
        """Put an operator behind this stream. A `KeyedOperator` needs `key=`, the field or fields of its key, and
        `id=`.
        """
        keeps: type[Record] | None = None
        if isinstance(operator, KeyedOperator):
            if id is None:
                raise WrongUse(
                    "SW-JOB-ID",
                    f"{type(operator).__name__} keeps state but has no id",
                    "add id=...: state belongs to the id",
                )
            if key is None:
                raise WrongUse(
                    "SW-JOB-KEY", f"{id} is a KeyedOperator but has no key", "add key=...: the field to keep state by"
                )
            takes, keeps, gives = operator.types()
        elif isinstance(operator, Operator):
            if key is not None:
                raise WrongUse(
                    "SW-JOB-KEY",
                    f"{type(operator).__name__} keeps no state, so key= has no meaning",
                    "leave key= out, or make it a KeyedOperator",
                )
            takes, gives = operator.types()
        else:
            raise _not_a("operator", operator, "an Operator or a KeyedOperator")
        name = id if id is not None else self.job._free_id(f"{self.id}-{slug(type(operator).__name__)}"[:60])
        check_types(name, takes, self.event, self.id)
        by = None if key is None else Key.of(self.event, key)
        return self.job._add(Node(name, NodeKind.OPERATOR, operator, (self.id,), takes, keeps, gives, by))

    def sink(self, sink: AnySink, id: str) -> Stream:  # noqa: A002
        """End this stream in a sink."""
        if not isinstance(sink, Sink | Observer):
            raise _not_a("sink", sink, "SqliteSink or another Sink")
        return self.job._add(Node(id, NodeKind.SINK, sink, (self.id,), takes=self.event))

    def print(self) -> Stream:
        """Show each event on the terminal, once its checkpoint is completed. Returns this stream, to go on from."""
        assert Job.printer is not None, "import streamwork, not a module inside it"
        self.sink(Job.printer(), id=self.job._free_id(f"{self.id}-print"[:60]))
        return self


def _not_a(what: str, thing: object, expected: str) -> WrongUse:
    shown = f"the class {thing.__name__}" if isinstance(thing, type) else f"a {type(thing).__name__}"
    hint = f"; write {thing.__name__}(...)" if isinstance(thing, type) else ""
    return WrongUse("SW-JOB-COMPONENT", f"{shown} is not a {what}", f"give {expected}{hint}")
