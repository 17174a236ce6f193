"""Events whose way is followed, under acknowledging: each is known by the source event that it comes from, its root.

A root is a number: which lane of the epoch's input it came by, and which event of that lane it was. What an operator emits while
it applies an event has the root of that event. What a timer emits has none.

Where something behind is spread by position, lists carry the origin of each event in the same way (`flow.origins`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, SupportsIndex, overload

from streamwork.components.columns import Columns, as_events
from streamwork.flow.origins import NONE, derived

UNTRACKED = -1
_LANE = 1 << 40  # events of one lane in one epoch: more than any source gives


def root_of(lane: int, number: int) -> int:
    return lane * _LANE + number


def came_again(roots: Iterable[int]) -> int:
    """How many of these events come again: lane 0 is theirs."""
    return sum(0 <= root < _LANE for root in roots)


def lane_of(root: int) -> tuple[int, int]:
    """(lane, number of the event in it)"""
    return divmod(root, _LANE)


class Mark(NamedTuple):
    """Where an event comes from."""

    root: int = UNTRACKED  # under acknowledging
    origin: int = NONE  # where something behind is spread by position


class Tracked(list[Any]):
    """A list of events, and beside it their marks."""

    __slots__ = ("marks",)

    def __init__(self, events: Iterable[Any] = (), marks: Iterable[Mark] = ()) -> None:
        super().__init__(events)
        self.marks = list(marks)

    @overload
    def __getitem__(self, at: SupportsIndex) -> Any: ...
    @overload
    def __getitem__(self, at: slice) -> Tracked: ...
    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        return Tracked(found, self.marks[at]) if isinstance(at, slice) else found

    def came_from(self, mark: Mark) -> None:
        """Whatever was emitted since the last call comes from the event with this mark."""
        new = len(self) - len(self.marks)
        if new == 1:
            self.marks.append(mark)
        else:
            self.marks += [Mark(mark.root, derived(mark.origin, number)) for number in range(new)]


UNMARKED = Mark()


def marks_of(events: Sequence[Any]) -> list[Mark]:
    return events.marks if isinstance(events, Tracked) else [UNMARKED] * len(events)


def roots_of(events: Sequence[Any]) -> list[int]:
    return [mark.root for mark in marks_of(events)]


def with_marks(given: list[Any] | Columns) -> list[Any]:
    """The events as a list, with their marks if they have any."""
    if isinstance(given, Columns) and given.origins is not None:
        return Tracked(given.events, [Mark(UNTRACKED, origin) for origin in given.origins.tolist()])
    return as_events(given)


def one_by_one(given: list[Any] | Columns) -> list[list[Any]]:
    """Lists of one event each."""
    events = with_marks(given)
    if isinstance(events, Tracked):
        return [events[place : place + 1] for place in range(len(events))]
    return [[event] for event in events]


class Following:
    """What one component's instance says of the events that it is given in one epoch. It is the `Acknowledgement` of its collector.

    Acknowledgements are counted: of an event that came as two children, or that was applied twice, two are owed.
    """

    def __init__(self, manual: bool, name: Callable[[int], str]) -> None:
        """`manual`: an event is done when the component says so, not when it returns. `name` gives a root its event id."""
        self.failed: list[tuple[int, str]] = []
        self.owed: dict[int, int] = {}  # root -> how many acknowledgements lack
        self.acked: list[str] = []  # events that came before the call at hand, as often as they were acknowledged
        self._manual = manual
        self._name = name
        self._root = UNTRACKED
        self._owes = False  # True until the call at hand is acknowledged
        self._before = 0  # what was owed, and how much was acknowledged, before the call at hand
        self._acked_before = 0

    def begin(self, root: int) -> None:
        """This root's event is applied next; or a timer fires, which has none."""
        self._root = root
        if self._manual:
            self._acked_before = len(self.acked)
            self._owes = root != UNTRACKED
            if self._owes:
                self._before = self.owed.get(root, 0)
                self.owed[root] = self._before + 1

    def take_back(self) -> None:
        """The call at hand has failed: nothing of it counts, and nobody acknowledges it any more."""
        if self._manual:
            del self.acked[self._acked_before :]
            if self._root != UNTRACKED:
                self._owe(self._before)
            self._owes = False

    def end(self, root: int, error: str) -> None:
        """The event of a root has failed here."""
        self.failed.append((root, error))

    @property
    def event_id(self) -> str:
        return "" if self._root == UNTRACKED else self._name(self._root)

    def ack(self, event_id: str | None) -> None:
        if not self._manual or (event_id is None and not self._owes):  # of one call, once is enough
            return
        if event_id is None or (self._root != UNTRACKED and event_id == self.event_id):
            self._owes = False
            self._owe(self.owed.get(self._root, 0) - 1)
        else:
            self.acked.append(event_id)

    def _owe(self, count: int) -> None:
        if count > 0:
            self.owed[self._root] = count
        else:
            self.owed.pop(self._root, None)
