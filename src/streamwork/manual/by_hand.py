"""`by_hand`: runs a `KeyedOperator` whose records are kept in a store outside the job."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self, TypeVar
from zlib import crc32

from streamwork.components import (
    Event,
    EventCollector,
    Instance,
    KeyedCollector,
    KeyedOperator,
    Located,
    Operator,
    Record,
)
from streamwork.components.duration import seconds
from streamwork.components.grouping import all_instances
from streamwork.components.keys import GROUPS, Key, instance_of
from streamwork.delivery.text import from_text, to_text
from streamwork.errors import JobFailed, WrongUse
from streamwork.job import Stream
from streamwork.manual.positioned import NOWHERE, Positioned
from streamwork.manual.rewinding import at_home
from streamwork.manual.store import ManualStore

E = TypeVar("E", bound=Positioned)
R = TypeVar("R", bound=Record)
O = TypeVar("O", bound=Event)  # noqa: E741 (out)


def by_hand(
    stream: Stream[E],
    operator: KeyedOperator[E, R, O],
    *,
    key: str | Iterable[str],
    store: ManualStore,
    id: str,
    every: str | float = "1s",
    parallelism: int | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Stream[O]:
    """Apply a keyed operator whose state is kept by hand.

    Each `every`, each instance stores the records that have changed and the offsets that they contain. `stream` is that of a
    `RewindingSource`, perhaps behind operators without state that keep `partition` and `offset`. Timers and `apply_batch` are not
    available to the operator. The parallelism cannot change while the store has state.
    """
    wrapped = ByHand(operator, key, store, every, clock)
    return stream.apply(wrapped, grouping=all_instances(), id=id, parallelism=parallelism)


class ByHand(Located, Operator[E, O]):
    """An operator without state to the engine. Its instances keep records and offsets themselves.

    An event is applied to a copy of its record, which replaces the record when `apply` returns: an event that fails has no effect.
    """

    long_lived = True

    def __init__(
        self,
        operator: KeyedOperator[E, R, O],
        key: str | Iterable[str],
        store: ManualStore,
        every: str | float,
        clock: Callable[[], float],
    ) -> None:
        takes, self._record, _ = operator.types()
        if operator.uses_timers or hasattr(operator, "apply_batch"):
            raise WrongUse(
                "SW-MANUAL-OPERATOR",
                f"{type(operator).__name__} uses timers or apply_batch, which state by hand does not have",
                "let the engine keep its state: apply it with key= instead of by_hand",
            )
        if not issubclass(takes, Positioned):
            raise WrongUse(
                "SW-MANUAL-POSITION",
                f"{type(operator).__name__} takes {takes.__name__}, which has no partition and offset",
                f"write class {takes.__name__}(Positioned), and read it with a RewindingSource",
            )
        self._operator = operator
        self._key = Key.of(takes, key)
        self._store = store
        self._every = seconds(every)
        self._clock = clock
        self.deterministic = operator.deterministic
        self.channels = operator.channels
        self.path = Path()

    def located(self, home: Path) -> Self:
        moved = copy.copy(self)
        moved._store = at_home(self._store, home)
        return moved

    def types(self) -> tuple[type[Event], type[Event]]:
        takes, _, gives = self._operator.types()
        return takes, gives

    def setup_instance(self, instance: Instance) -> None:
        self._instance = instance
        self._seat, saved = self._store.begin(instance.component, int(instance), instance.count)
        self._loaded = saved.offsets  # events up to there are in the records
        self._seen = dict[str, int]()  # in this life
        self._done = dict(saved.offsets)
        self._records = {name: from_text(self._record, text.decode()) for name, text in saved.records.items()}
        self._changed: set[bytes] = set()
        self._unsaved = False
        self._collector: KeyedCollector | None = None
        self._saved_at = self._clock()
        self._operator.setup_instance(instance)

    def apply(self, event: E, collector: EventCollector) -> None:
        if self._unsaved and self._clock() >= self._saved_at + self._every:
            self._save()
        place, offset = event.partition, event.offset
        if offset <= self._seen.get(place, NOWHERE):
            raise self._out_of_order(event)
        if offset <= self._loaded.get(place, NOWHERE):
            self._seen[place] = offset
            return
        values = self._key.values([event])
        (name,) = self._key.names(values)
        if instance_of(crc32(name) % GROUPS, self._instance.count) == self._instance:
            self._apply(event, name, values[0], collector)
        self._seen[place] = self._done[place] = offset
        self._unsaved = True

    def _apply(self, event: E, name: bytes, key: Any, collector: EventCollector) -> None:
        hand = self._collector
        if hand is None or hand.emit is not collector.emit:
            hand = self._collector = KeyedCollector(collector.emit, collector.times)
        hand.forget_wishes()
        hand.key = key
        before = self._records.get(name)
        record: Any = self._record() if before is None else copy.deepcopy(before)
        self._operator.apply(event, record, hand)
        hand.check()
        if hand.timers:
            raise WrongUse(
                "SW-MANUAL-OPERATOR",
                f"{self._seat.component} sets a timer, which state by hand does not have",
                "let the engine keep its state: apply it with key= instead of by_hand",
            )
        if hand.cleared:
            self._records.pop(name, None)
        else:
            self._records[name] = record
        self._changed.add(name)

    def _save(self) -> None:
        changes = {
            name: to_text(self._records[name]).encode() if name in self._records else None for name in self._changed
        }
        self._store.save(self._seat, self._done, changes)
        self._changed.clear()
        self._unsaved, self._saved_at = False, self._clock()

    def close(self) -> None:
        if getattr(self, "_unsaved", False):
            self._save()
        self._operator.close()
        self._store.close()

    def _out_of_order(self, event: E) -> Exception:
        if event.offset == NOWHERE:
            return WrongUse(
                "SW-MANUAL-POSITION",
                f"an event of {type(event).__name__} came to {self._seat.component} without partition and offset",
                "read it with a RewindingSource; operators between must copy the two fields, and must not be by hand themselves",
            )
        return JobFailed(
            "SW-MANUAL-ORDER",
            f"offset {event.offset:,} of {event.partition} came to {self._seat.component} behind offset "
            f"{self._seen[event.partition]:,}: then a stored offset does not say what the state contains",
            "leave out what changes the order before it (shuffle, a larger parallelism, another key), and emit at most one "
            "event for each event",
            retryable=False,
        )
