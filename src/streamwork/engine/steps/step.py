"""A step of a chain: one component at work in one instance. What all kinds of steps share.

A step takes a list of events and gives the lists that go on, by channel. It works through a whole list before the next step
sees any of it. Along a line this is the same as going event by event, since each step meets the same events in the same order;
where it is not, the chain feeds single events.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import repeat
from typing import Any, cast

from streamwork.components import Event, Instance
from streamwork.components.acknowledging import EventFailed
from streamwork.components.collector import MAIN, Times
from streamwork.components.columns import Columns
from streamwork.components.schema import holds_mutable, show
from streamwork.components.sink import RowsRejected
from streamwork.components.validation import check_fits, fitting
from streamwork.engine.steps.retrying import Tries
from streamwork.errors import JobFailed, StreamworkError, described, is_retryable, raised_at, writable
from streamwork.flow.blame import Blame
from streamwork.flow.lineage import UNMARKED, UNTRACKED, Following, Tracked, marks_of, roots_of
from streamwork.job import Input, Node, NodeKind

MOST_TEXT = 1_000  # characters of an error
RETURNED = "apply returned a value, which nobody gets: send it with collector.emit(event)"
Events = list[Any]
Given = Events | Columns
Outputs = Mapping[str, Given]


class Step(ABC):
    """One component at work in one instance. It has a copy of the operator of its own."""

    takes_columns = False
    """True if `process` is to be given columns as they are, and not the events in them."""

    def __init__(self, node: Node, instance: int, tracked: bool = False) -> None:
        self.node = node
        self.instance = Instance(instance, node.parallelism)
        self.operator = own_copy(node)
        self.blame = Blame(node.id)  # for what it is given
        self.times: Times  # of the instance; the chain gives them
        self.following: Following | None = None  # under acknowledging
        self.tries = Tries(node, instance) if node.retry is not None else None
        self.reset()
        self.marked = tracked  # True if what it emits is to carry the marks of what it came from
        self._copies = any(holds_mutable(kind) for kind in (node.gives, *node.channels.values()) if kind is not None)
        # Where the job goes on after an error, an event is applied wholly or not at all. Then each is asked at once whether what it
        # has emitted and kept fits; else that shows when columns are built, and the job stops.
        self._atomic = node.on_error != "fail" or tracked or node.retry is not None
        # What a filter emits is what it was given: whoever made it answers for it.
        self._checked = not getattr(node.component, "preserves_events", False)

    @property
    def answers(self) -> bool:
        """True if what it gives is sure to fit."""
        return self._atomic and self._checked

    @abstractmethod
    def process(self, events: Any) -> Outputs: ...

    @abstractmethod
    def set_up(self) -> None:
        """Called before the first event, when the state has been given."""

    def counters(self) -> dict[str, int]:
        """Every event that was processed was delivered (it gave something), ended early (it gave nothing), was dropped, became a
        dead letter, or has failed and comes again. `replayed` are those that came again, or out of the inbox; `retried` are
        the tries at events that had failed before, in place.
        """
        failed = len(self.following.failed) if self.following is not None else 0
        lost = self.dropped + len(self.letters) + failed
        return {
            "processed": self.processed,
            "delivered": self.delivered,
            "ended_early": self.processed - self.delivered - lost,
            "dropped": self.dropped,
            "dead_letters": len(self.letters),
            "failed": failed,
            "replayed": self.replayed,
            "retried": self.retried,
        }

    def drain(self) -> Outputs:
        """Before a checkpoint: do what waits, if anything does."""
        return {}

    def count(self, processed: int, left_out: int) -> None:
        """Of a filter that was applied elsewhere: what it has seen, and what it has not let through."""
        self.processed += processed
        self.delivered += processed - left_out

    def reset(self) -> None:
        self.processed = self.delivered = self.dropped = self.replayed = self.retried = 0
        self.rest: Callable[[], Outputs] | None = None  # what is left to do, when the pause of `tries` is over
        self.letters: list[tuple[Any, str]] = []  # events to be kept as dead letters, and why

    def follow(self, name: Callable[[int], str]) -> None:
        """Begin an epoch whose events are acknowledged."""
        self.following = Following(getattr(self.node.component, "manual_ack", False), name)

    def give_up(self, event: Any, root: int, error: Exception) -> bool:
        """Apply `on_error` to a failed event. Raises if that ends the job. True: it is to be tried again later (`tries`).

        An event that does not fit is not this component's to set aside, but that of whoever emitted it.
        """
        if isinstance(event, Event):
            self.blame.check([event])
        if self.tries is not None and self.tries.failed(event, error, told(error)):
            if self.following is not None:
                self.following.take_back()
            return True
        self._end(event, root, error)
        return False

    def _end(self, event: Any, root: int, error: Exception) -> None:
        if self.node.on_error == "fail":
            failed = applying_failed(self, event, error)
            if self.tries is not None:
                failed.cause += self.tries.story
            raise failed from error
        if self.following is not None:
            self.following.take_back()
        if self.node.on_error == "drop":
            self.dropped += 1
        elif self.following is not None and root != UNTRACKED:
            self.following.end(root, told(error))
        else:
            self.letters.append((event, told(error)))

    def hold(self, events: Events, place: int) -> None:
        """Keep the event at this place, which is to be tried again, and those behind it."""
        self.rest = partial(self._go_on, events[place:])
        self.processed -= len(events) - place  # `process` counts all that it was given

    def _go_on(self, events: Events) -> Outputs:
        """Try the first of these events again; if it is done, the others are what is left to do."""
        assert self.tries is not None
        if self.tries.marks.ended() and (error := self.tries.error) is not None:
            self.tries.over()
            self._end_held(events[0], roots_of(events)[0], error)
            outputs: Outputs = {}
        else:
            self.retried += 1
            outputs = self.process(events[:1])
            if self.rest is not None:  # it has failed again
                self.rest = partial(self._go_on, events)
                return outputs
            self.tries.over()
        if len(events) > 1:
            self.rest = partial(self.process, events[1:])
        return outputs

    def _end_held(self, event: Any, root: int, error: Exception) -> None:
        """Apply `then` to an event that waits, without another try."""
        if self.following is not None:
            self.following.begin(root)
        self._end(event, root, error)
        self.processed += 1

    def _emit(self, outputs: dict[str, Events]) -> Callable[..., None]:
        """The fastest function that takes an event to where it goes."""
        if self._copies:  # an event may hold a list of the state's: what was emitted must not change with it
            return _emit({name: _Copies(events) for name, events in outputs.items()})
        return _emit(outputs)

    def _outputs(self) -> dict[str, Events]:
        kind: Callable[[], Events] = Tracked if self.marked else list
        return {MAIN: kind(), **{name: kind() for name in self.node.channels}}

    def _followed(self, events: Events, outputs: Mapping[str, Events]) -> Iterable[Any]:
        """The events, one by one; what was emitted for one is marked when the next is asked for."""
        return _marking(events, list(outputs.values())) if self.marked else events

    def _each(
        self, events: Events, outputs: dict[str, Events], apply: Callable[[int, Any], None], undo: Callable[[], None]
    ) -> None:
        """Apply the events one by one, each wholly or not at all: what a failed one has emitted is taken back, and `undo` takes
        back the rest. `apply` is told the event's place.
        """
        following, emitted = self.following, list(outputs.values())
        marks = marks_of(events) if self.marked else repeat(UNMARKED)
        given, so_far, delivered, ends = counter(outputs), 0, 0, several(emitted)
        check, fits, newest = *self._check(outputs), emitted[0]
        for place, (event, mark) in enumerate(zip(events, marks, strict=False)):
            if following is not None:
                following.begin(mark.root)
            try:
                apply(place, event)
                if (now := given()) != so_far and not (now == so_far + 1 and fits(at(newest, -1))):
                    check(ends or [so_far])
            except Exception as error:
                cut(emitted, ends or [so_far])
                if self.give_up(event, mark.root, error):
                    self.hold(events, place)
                    break
                undo()
                continue
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                raise applying_failed(self, event, error) from error
            if now != so_far:
                delivered, so_far = delivered + 1, now
                if ends:
                    ends = [*map(len, emitted)]
                if self.marked:
                    for out in emitted:
                        cast(Tracked, out).came_from(mark)
        self.delivered += delivered

    def _check(self, outputs: dict[str, Events]) -> tuple[Callable[[list[int]], None], Callable[[Any], bool]]:
        """(what refuses events that do not fit, among those emitted beyond these ends; a quick test, for the most common case: an
        operator that has one output, and has emitted one event)
        """
        if not self._checked:
            return _nothing, _always
        emitted = [(events, self.node.emits(name), str(Input(self.node.id, name))) for name, events in outputs.items()]
        main = self.node.gives

        def check(ends: list[int]) -> None:
            for (events, kind, where), end in zip(emitted, ends, strict=True):
                if kind is not None:
                    check_fits(kind, at(events, slice(end, None)), where)

        return check, fitting(main) if main is not None and len(emitted) == 1 else _never

    def _guarded_set_up(self, *state: Any) -> None:
        try:
            self.operator.setup_instance(self.instance, *state)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise JobFailed(
                "SW-OPERATOR-SETUP",
                f"{self.node.id} (instance {self.instance}) could not be set up: {described(error)}",
                f"mend setup_instance of {self.node.title}, or what it connects to, and start again",
            ) from error


at = list.__getitem__
"""Of a `Tracked` list, too, which would be slow to look whether it is asked for a part."""


def _nothing(ends: list[int]) -> None: ...


def _always(event: Any) -> bool:
    return True


def _never(event: Any) -> bool:
    return False


def _marking(events: Events, emitted: list[Events]) -> Iterator[Any]:
    for event, mark in zip(events, marks_of(events), strict=True):
        yield event
        for out in emitted:
            cast(Tracked, out).came_from(mark)


def cut(emitted: list[Events], ends: list[int]) -> None:
    """Take back what was emitted beyond."""
    for out, end in zip(emitted, ends, strict=True):
        del out[end:]


def several(emitted: list[Events]) -> list[int]:
    """How long the lists are in the beginning, if there are several; of one alone the number of events emitted tells."""
    return [0] * len(emitted) if len(emitted) > 1 else []


def counter(outputs: dict[str, Events]) -> Callable[[], int]:
    """How many events have been emitted so far."""
    if len(outputs) == 1:
        return outputs[MAIN].__len__
    return lambda: sum(map(len, outputs.values()))


class _Copies:
    """Appends copies to a list."""

    def __init__(self, to: Events) -> None:
        self._to = to

    def append(self, event: Any) -> None:
        self._to.append(copy.deepcopy(event))


def _emit(outputs: Mapping[str, Any]) -> Callable[..., None]:
    if len(outputs) == 1:
        return outputs[MAIN].append  # type: ignore[no-any-return]

    def emit(event: Any, channel: str = MAIN) -> None:
        outputs[channel].append(event)

    return emit


def own_copy(node: Node) -> Any:
    """Instances in one process must not share an object: each may hold temporary data."""
    if node.kind is NodeKind.SINK:
        return None  # it is the driver's; here its input is only staged
    try:
        return copy.deepcopy(node.component)
    except Exception as error:
        raise JobFailed(
            "SW-OPERATOR-COPY",
            f"{node.id} cannot be copied, but every instance needs an object of its own: {described(error)}",
            f"open connections and the like in setup_instance of {node.title}, not in its constructor",
            retryable=False,
        ) from error


def told(error: BaseException) -> str:
    """An error as a dead letter tells of it."""
    text = str(error) if isinstance(error, EventFailed | RowsRejected) else described(error)
    if isinstance(error, StreamworkError):
        text = f"{error.code}: {error.cause}"
    text = writable(text)
    return text if len(text) <= MOST_TEXT else text[:MOST_TEXT] + " ..."


def applying_failed(step: Step, event: Any, error: BaseException, is_one: bool = True) -> StreamworkError:
    """The error of an operator that raised, or whose output or state does not fit. The chain adds the epoch. `is_one`: it is about
    one event or timer, which another `on_error` would set aside.
    """
    if isinstance(error, StreamworkError):
        if error.about_one_event and is_one and not error.component:
            error.cause += f", while applying {show(event)}"
            error.component = step.node.id
        return error
    frame, place = raised_at(error)
    who, what = f"{step.node.id} (instance {step.instance})", described(error)
    in_emit = frame is not None and frame.f_code is _emit_code
    undeclared = isinstance(error, KeyError | TypeError) and ("append" in what or in_emit)
    hint = "; a channel must be declared: channels = {...}" if undeclared else ""
    about_one_event = is_one and isinstance(error, Exception)  # nothing sets SystemExit and its like aside
    return JobFailed(
        "SW-OPERATOR-FAILED",
        f"{who} raised {what}{place} while applying {show(event)}{hint}",
        "mend the operator or the input and start again: the last checkpoint is good, and the job resumes there",
        retryable=is_retryable(error),
        about_one_event=about_one_event,
        component=step.node.id if about_one_event else "",
    )


_emit_code = _emit({MAIN: [], "": []}).__code__
