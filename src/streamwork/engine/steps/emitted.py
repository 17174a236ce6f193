"""The events that a component emits while it works through one batch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from types import CodeType
from typing import Any

import numpy as np

from streamwork.components.collector import MAIN
from streamwork.components.schema import holds_mutable
from streamwork.components.validation import check_fits, fitting
from streamwork.flow.batch import Batch
from streamwork.flow.lineage import Array, Lineage
from streamwork.job import Input, Node

Events = list[Any]
Outputs = Mapping[str, Batch]


class Output:
    """How a component emits: the same for every batch."""

    def __init__(self, node: Node) -> None:
        self.channels = {name: node.emits(name) for name in (MAIN, *node.channels)}
        self.where = [str(Input(node.id, name)) for name in self.channels]
        self.copies = any(holds_mutable(kind) for kind in self.channels.values() if kind is not None)
        main = self.channels[MAIN]
        # A filter emits what it was given: the component that made it is responsible for it.
        self.checked = not getattr(node.component, "preserves_events", False)
        self.fits: Callable[[Any], bool] = _never
        if not self.checked:
            self.fits = _always
        elif main is not None and len(self.channels) == 1:
            self.fits = fitting(main)


class Emitted:
    """Collects what is emitted, by channel. The events of one call are kept or undone together.

    emit       the function for the collector
    count()    how many events were emitted so far
    fits       a quick check of one event, for the most common case: a single channel, and one event emitted in a call
    check(n)   refuse events that do not fit, among those of the current call; `n` events were emitted before it
    undo(n)    the call has failed: remove its events
    keep()     the call has succeeded; needed where there are `several` channels
    """

    __slots__ = ("_ends", "_lists", "_output", "_parents", "came", "count", "emit", "first", "fits", "several")

    def __init__(self, output: Output, with_parents: bool = False) -> None:
        """`with_parents`: note which event of the batch each emitted one comes from (`came`, `applying`)."""
        self._output = output
        self._lists: list[Events] = [[] for _ in output.channels]
        self._ends = [0] * len(self._lists)
        self._parents: list[list[int]] | None = [[] for _ in self._lists] if with_parents else None
        self.first = self._lists[0]
        self.several = len(self._lists) > 1
        self.fits = output.fits
        self.count: Callable[[], int] = self._total if self.several else self.first.__len__
        self.came: Callable[[], None] = self._note if self.several else self._note_one
        """One more event of the batch has been applied."""
        self.emit = _emit(dict(zip(output.channels, self._lists, strict=True)), output.copies)

    def _total(self) -> int:
        return sum(map(len, self._lists))

    def check(self, before: int) -> None:
        if self._output.checked:
            kinds, ends = self._output.channels.values(), self._ends if self.several else [before]
            for events, end, kind, where in zip(self._lists, ends, kinds, self._output.where, strict=True):
                if kind is not None:
                    check_fits(kind, events[end:], where)

    def undo(self, before: int) -> None:
        for events, end in zip(self._lists, self._ends if self.several else [before], strict=True):
            del events[end:]

    def keep(self) -> None:
        self._ends = [*map(len, self._lists)]

    def _note(self) -> None:
        assert self._parents is not None
        for noted, events in zip(self._parents, self._lists, strict=True):
            noted.append(len(events))

    def _note_one(self) -> None:
        assert self._parents is not None
        self._parents[0].append(len(self.first))

    def applying(self, events: Events) -> Iterator[Any]:
        """The events, one by one; each has been applied when the next is requested."""
        assert self._parents is not None
        if not self.several:
            note, count = self._parents[0].append, self.count
            for event in events:
                yield event
                note(count())
        else:
            for event in events:
                yield event
                self.came()

    def outputs(self, lineage: Lineage | None = None) -> Outputs:
        """What was emitted, by channel; with the lineage that descends from that of the batch, if parents were noted."""
        found = zip(self._output.channels, self._lists, strict=True)
        if self._parents is None or lineage is None:
            return {channel: Batch(events) for channel, events in found if events}
        return {
            channel: Batch(events, lineage.descend(_parents(ends)))
            for (channel, events), ends in zip(found, self._parents, strict=True)
            if events
        }


def _parents(ends: list[int]) -> Array:
    """From how many events there were after each event of the batch: the place of the one that each comes from."""
    counts: Array = np.diff(np.array([0, *ends], np.int64))
    return np.repeat(np.arange(len(ends)), counts)


class _Copies:
    """Appends copies to a list."""

    def __init__(self, to: Events) -> None:
        self._to = to

    def append(self, event: Any) -> None:
        self._to.append(copy.deepcopy(event))


def _emit(lists: Mapping[str, Any], copies: bool = False) -> Callable[..., None]:
    """The fastest function that takes an event to its list."""
    if copies:  # an event may hold a list of the state's: what was emitted must not change with it
        lists = {name: _Copies(events) for name, events in lists.items()}
    if len(lists) == 1:
        return lists[MAIN].append  # type: ignore[no-any-return]

    def emit(event: Any, channel: str = MAIN) -> None:
        lists[channel].append(event)

    return emit


_emit_code = _emit({MAIN: [], "": []}).__code__


def is_emit(code: CodeType) -> bool:
    """True for the function that a collector emits with."""
    return code is _emit_code


def _always(event: Any) -> bool:
    return True


def _never(event: Any) -> bool:
    return False
