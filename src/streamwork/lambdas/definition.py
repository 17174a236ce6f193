"""`Lambda`: one definition of aggregates, from which a streaming job and batch runs are made."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from streamwork.components import Event, Located, OffsetSource, Position, Source, StatefulSource
from streamwork.errors import WrongUse
from streamwork.job import Job, Stream
from streamwork.job.job import folder_of
from streamwork.job.names import check_name
from streamwork.lambdas.partials import Partials
from streamwork.lambdas.plan import PartialPlan
from streamwork.operators.aggregates import Unbound
from streamwork.run.backfill import Whole

O = TypeVar("O", bound=Event)  # noqa: E741 (out)
Events = Callable[[Job], Stream[Any]]
More = Callable[[Stream[Any]], object]


class Lambda(Generic[O]):
    """Aggregates by key, computed twice: quickly by a streaming job, and exactly, from scratch, by batch runs.

    `events` adds sources, and perhaps filters and maps, to a job and returns the stream of events. Both jobs are made with it, so
    it must do the same each time. `to` is the type of answers; each of `aggregates` fills the field of its name.

    `streaming` and `batch` add more to one of the two jobs only: sinks with quick results, say, or components that compute what
    only a batch run can. What those keep as state is read at `View.batch`.

    Batch runs are kept in the folder of the streaming job, below its root.
    """

    def __init__(
        self,
        name: str,
        *,
        events: Events,
        key: str | Iterable[str],
        to: type[O],
        streaming: More | None = None,
        batch: More | None = None,
        parallelism: int = 1,
        **aggregates: Unbound,
    ) -> None:
        self.name = check_name(name, "name of a lambda")
        self.to = to
        self.key = (key,) if isinstance(key, str) else tuple(key)
        self.parallelism = parallelism
        self.home = folder_of(sys._getframe(1).f_globals.get("__file__"))
        self._events = events
        self._streaming, self._batch = streaming, batch
        self._given = tuple(aggregates.items())

    @property
    def component(self) -> str:
        """The id of the component that keeps partial aggregates, in both jobs."""
        return self.name

    def stream(self, **settings: Any) -> Job:
        """The streaming job. Its settings are those of `Job`; without others it is at-most-once: quick, and mostly accurate."""
        job = Job(self.name, **{"semantics": "at-most-once", "parallelism": self.parallelism, **settings})
        job.home = self.home
        events = self._apply(job, divides=True)
        if self._streaming is not None:
            self._streaming(events)
        _made[job] = self
        return job

    def recompute(self, end: Position) -> Job:
        """The job of a batch run over all input up to a position. It is exactly-once."""
        job = Job(self.name, parallelism=self.parallelism)
        job.home = self.home
        events = self._apply(job, divides=False)
        if self._batch is not None:
            self._batch(events)
        return job.with_components({id: Whole(source, end.of(id)) for id, source in self._sources(job).items()})

    def begins(self, end: Position) -> dict[str, int]:
        """Where the input begins now, by SOURCE/PARTITION, of the partitions that a position has."""
        job = Job(self.name)
        self._events(job)
        found = {}
        for id, source in self._sources(job).items():
            partitions = list(end.of(id))
            first = source.earliest(partitions)
            found.update({f"{id}/{partition}": first.get(partition, 0) for partition in partitions})
        return found

    def _sources(self, job: Job) -> dict[str, OffsetSource[Any]]:
        """The sources of a job of this lambda, with absolute paths."""
        found = {id: one for id, one in job.components.items() if isinstance(one, OffsetSource)}
        return {id: one.located(self.home) if isinstance(one, Located) else one for id, one in found.items()}

    def plan(self) -> PartialPlan:
        return self._plan(self._events(Job(self.name)).event)

    def _plan(self, event: type[Event]) -> PartialPlan:
        return PartialPlan(self.component, event, self.key, self.to, self._given)

    def _apply(self, job: Job, divides: bool) -> Stream[Any]:
        events = self._events(job)
        if not isinstance(events, Stream) or events.job is not job:
            raise WrongUse(
                "SW-LAMBDA-EVENTS",
                f"lambda {self.name}: events= returned {events!r}",
                "return the stream: lambda job: job.source(..., id=...).filter(...)",
            )
        for id, component in job.components.items():
            if isinstance(component, Source | StatefulSource):
                raise WrongUse(
                    "SW-LAMBDA-EVENTS",
                    f"lambda {self.name}: source {id} has no offsets, so a batch run cannot read it again up to a checkpoint",
                    "write its events to an EventLog or to Kafka first, and read them from there",
                )
        events.apply(Partials(self._plan(events.event), divides), key=self.key, id=self.component)
        return events


_made: WeakKeyDictionary[Job, Lambda[Any]] = WeakKeyDictionary()


def lambda_of(job: Job) -> Lambda[Any]:
    """The lambda whose streaming job this is. Refuses any other job."""
    found = _made.get(job)
    if found is None:
        raise WrongUse(
            "SW-LAMBDA-NONE",
            f"job {job.name} is not the streaming job of a lambda",
            "name a job file with job = Lambda(...).stream()",
        )
    return found
