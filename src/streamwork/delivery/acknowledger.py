"""The acknowledger: decides about events that are not done when their epoch ends. Pure.

An event of a source is *done* when every component that it came to has returned, or acknowledged it where it does so itself, and
none has failed it. What is not done waits:

    failed       it comes again when its time has come: `retry_after`, then twice as long, and so on. After `max_attempts` it is a
                 dead letter.
    pending      some component has not acknowledged it yet. When `ack_timeout` is over, it has failed.

Acknowledgements are counted by event and by the instance that owes them: an event is done when none is missing, for all of
its children. If it has failed anywhere, it is replayed as a whole, and its open acknowledgements are dropped.

    a new event ──► done
         │ failed                      pending ◄── no acknowledgement yet
         ▼                                │ ack ──► done
    waiting until due ──► comes again     │ timeout ──► failed
         │ the last attempt has failed
         ▼
    dead letter

Everything that waits is stored with each checkpoint; so attempts and times survive a restart.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from streamwork.delivery.letters import Letter, letter_id

LONGEST_WAIT = 10 * 60 * 1_000_000
"""Microseconds: however often an event has failed, it does not wait longer."""


class Waiting(msgspec.Struct, frozen=True):
    """An event that is not done."""

    id: str
    source: str  # that gave it; of a letter that was replayed, the component that it was given to
    instance: int  # of the source, by which it came in
    event: str  # JSON
    attempts: int  # that have failed
    due: int  # microseconds since 1970: when it comes again, or, if it is pending, has failed
    pending: bool
    component: str  # that has failed it, or has not acknowledged it
    error: str
    owed: tuple[str, ...] = ()  # if it is pending: component/instance, once for each acknowledgement that lacks

    @property
    def event_id(self) -> str:
        """What components know it by in its next attempt, or the one that is pending. Each attempt has an id of its own: an
        acknowledgement of one that has failed says nothing of the next, which may have come to others.
        """
        return f"{self.id}#{self.attempts}" if self.attempts else self.id


class Trouble(msgspec.Struct, frozen=True):
    """An event that is not done after an epoch: the instance that reported it, and why. Without an error it is only pending."""

    root: int
    component: str
    error: str = ""
    instance: int = 0
    owed: int = 1  # if it is pending: how many acknowledgements lack

    @property
    def by(self) -> str:
        return f"{self.component}/{self.instance}"


class Ack(msgspec.Struct, frozen=True):
    """An acknowledgement of an event that came in an earlier call."""

    event: str
    by: str  # component/instance


class Outcome(msgspec.Struct, frozen=True):
    """What waits after an epoch, what is given up, and how that changes what was counted."""

    waiting: tuple[Waiting, ...]
    letters: tuple[Letter, ...] = ()  # of those that are given up
    counts: Mapping[str, Mapping[str, int]] = {}  # component -> counter -> to be added


class Acknowledger:
    def __init__(self, max_attempts: int, retry_after: float, ack_timeout: float) -> None:
        """Times are in seconds."""
        self._max_attempts = max_attempts
        self._retry_after = round(retry_after * 1_000_000)
        self._timeout = round(ack_timeout * 1_000_000)

    @staticmethod
    def due(waiting: Iterable[Waiting], now: int, most: int) -> list[Waiting]:
        """What comes again in an epoch that is planned now."""
        return [one for one in waiting if not one.pending and one.due <= now][:most]

    @staticmethod
    def next_due(waiting: Iterable[Waiting]) -> int | None:
        """When something is next to be done."""
        return min((one.due for one in waiting), default=None)

    def bounded(self, waiting: Iterable[Waiting], now: int) -> list[Waiting]:
        """What was stored by an earlier driver. The clock may have been set back since: no event waits longer than it would have
        to if it had failed, or had been applied, just now.
        """
        return [
            msgspec.structs.replace(
                one, due=min(one.due, now + (self._timeout if one.pending else self.delay(one.attempts)))
            )
            for one in waiting
        ]

    def resolve(
        self,
        epoch: int,
        now: int,
        before: Sequence[Waiting],
        taken: Sequence[Waiting],
        troubles: Iterable[Trouble],
        acked: Iterable[Ack],
        found: Callable[[int], Waiting],
    ) -> Outcome:
        """After an epoch in which `taken` of those that waited `before` have come again.

        `found` is the event of a root, as it would wait: with the attempts that had failed before this epoch. If several
        components have failed an event, the first that is named stands for all.
        """
        by_root: dict[int, list[Trouble]] = defaultdict(list)
        for trouble in troubles:
            by_root[trouble.root].append(trouble)
        new = [self._not_done(found(root), mine, now) for root, mine in by_root.items()]
        again, acks = {one.id for one in taken}, _by_event(acked)
        kept = [one for one in before if one.id not in again]
        pending = [one for one in (*kept, *new) if one.pending]
        unsettled = [left for one in pending if (left := _acknowledged(one, acks.get(one.event_id))) is not None]
        late = [self._overdue(one) for one in unsettled if one.due <= now]
        refused = [one for one in new if not one.pending]
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for one in refused:
            if one.attempts >= self._max_attempts:  # it was counted as one that comes again
                counts[one.component].update({"failed": -1, "dead_letters": 1})
        for one in late:  # it was counted when it was applied: its end counts by itself
            end = "dead_letters" if one.attempts >= self._max_attempts else "failed"
            counts[one.component].update({"processed": 1, end: 1})
        failed = [*refused, *late]
        given_up = [one for one in failed if one.attempts >= self._max_attempts]
        waiting = [one for one in kept if not one.pending]
        waiting += [one for one in unsettled if one.due > now]
        waiting += [
            msgspec.structs.replace(one, due=now + self.delay(one.attempts))
            for one in failed
            if one.attempts < self._max_attempts
        ]
        letters = [_letter(one, epoch, number) for number, one in enumerate(given_up)]
        return Outcome(tuple(waiting), tuple(letters), {name: dict(mine) for name, mine in counts.items()})

    def delay(self, attempts: int) -> int:
        """Microseconds to wait after so many failed attempts."""
        return min(self._retry_after << min(max(attempts, 1) - 1, 60), max(LONGEST_WAIT, self._retry_after))

    def _not_done(self, event: Waiting, troubles: Sequence[Trouble], now: int) -> Waiting:
        """An event as it waits, by what was said of it in one epoch. A failure counts more than a missing acknowledgement."""
        failures: dict[str, str] = {}
        for trouble in troubles:
            if trouble.error:
                failures.setdefault(trouble.component, trouble.error)
        if failures:
            (component, error), *others = failures.items()
            error += "".join(f"; {name}: {why}" for name, why in others)
            return msgspec.structs.replace(
                event, attempts=event.attempts + 1, pending=False, component=component, error=error, owed=()
            )
        owed = tuple(trouble.by for trouble in troubles for _ in range(trouble.owed))
        return _pending(msgspec.structs.replace(event, due=now + self._timeout), owed)

    def _overdue(self, one: Waiting) -> Waiting:
        error = f"not acknowledged within {self._timeout / 1_000_000:g} s{_by(one.owed)}"
        return msgspec.structs.replace(one, attempts=one.attempts + 1, pending=False, error=error, owed=())


def owing(owed: Iterable[str]) -> list[str]:
    """The components of the instances that owe."""
    return list(dict.fromkeys(one.rpartition("/")[0] for one in owed))


def _by(owed: Sequence[str]) -> str:
    """Said only where the component that stands for the event is not the only one."""
    components = owing(owed)
    return f" by {', '.join(components)}" if len(components) > 1 else ""


def _pending(event: Waiting, owed: tuple[str, ...]) -> Waiting:
    component = owing(owed)[0]
    return msgspec.structs.replace(
        event, pending=True, component=component, error=f"not acknowledged yet{_by(owed)}", owed=owed
    )


def _by_event(acked: Iterable[Ack]) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for ack in acked:
        found[ack.event][ack.by] += 1
    return found


def _acknowledged(one: Waiting, acks: Counter[str] | None) -> Waiting | None:
    """A pending event after these acknowledgements; None if it is done."""
    if acks is None:
        return one
    left = tuple((Counter(one.owed) - acks).elements())
    return _pending(one, left) if left else None


def _letter(one: Waiting, epoch: int, number: int) -> Letter:
    name = letter_id(one.component, epoch, "given-up", number)
    return Letter(name, one.component, one.instance, epoch, one.error, one.attempts, one.source, one.event)
