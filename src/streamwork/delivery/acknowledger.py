"""The acknowledger: what becomes of events that are not done when their epoch ends. Pure.

An event of a source is *done* when every component that it came to has returned, or acknowledged it where it does so itself, and
none has failed it. What is not done waits:

    failed       it comes again when its time has come: `retry_after`, then twice as long, and so on. After `max_attempts` it is a
                 dead letter.
    pending      some component has not acknowledged it yet. When `ack_timeout` is over, it has failed.

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

from collections.abc import Callable, Iterable, Sequence

import msgspec

from streamwork.delivery.letters import Letter, letter_id

LONGEST_WAIT = 10 * 60 * 1_000_000
"""Microseconds: however often an event has failed, it does not wait longer."""


class Waiting(msgspec.Struct, frozen=True):
    """An event of a source that is not done."""

    id: str
    source: str
    instance: int  # of the source, by which it came in
    event: str  # JSON
    attempts: int  # that have failed
    due: int  # microseconds since 1970: when it comes again, or, if it is pending, has failed
    pending: bool
    component: str  # that has failed it, or has not acknowledged it
    error: str


class Trouble(msgspec.Struct, frozen=True):
    """An event that is not done after an epoch: who says so, and why. Without an error it is only pending."""

    root: int
    component: str
    error: str = ""


class Outcome(msgspec.Struct, frozen=True):
    """What waits after an epoch, and what is given up."""

    waiting: tuple[Waiting, ...]
    given_up: tuple[Waiting, ...]
    letters: tuple[Letter, ...]  # of those that are given up


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

    def settle(
        self,
        epoch: int,
        now: int,
        before: Sequence[Waiting],
        taken: Sequence[Waiting],
        troubles: Iterable[Trouble],
        acked: Iterable[str],
        found: Callable[[int], Waiting],
    ) -> Outcome:
        """After an epoch in which `taken` of those that waited `before` have come again.

        `found` is the event of a root, as it would wait: with the attempts that had failed before this epoch.
        """
        done, again = set(acked), {one.id for one in taken}
        kept = [one for one in before if one.id not in again and not (one.pending and one.id in done)]
        first: dict[int, Trouble] = {}
        for trouble in troubles:  # a failure counts more than a missing acknowledgement
            if trouble.root not in first or (trouble.error and not first[trouble.root].error):
                first[trouble.root] = trouble
        new = [
            self._pending(found(t.root), t, now) if not t.error else _failed(found(t.root), t) for t in first.values()
        ]
        late = [one for one in kept if one.pending and one.due <= now]
        failed = [one for one in new if not one.pending]
        failed += [msgspec.structs.replace(one, attempts=one.attempts + 1, error=self._late) for one in late]
        given_up = tuple(one for one in failed if one.attempts >= self._max_attempts)
        letters = tuple(
            Letter(
                letter_id(one.component, epoch, "given-up", number),
                one.component,
                one.instance,
                epoch,
                one.error,
                one.attempts,
                one.source,
                one.event,
            )
            for number, one in enumerate(given_up)
        )
        waiting = [one for one in kept if one not in late]
        waiting += [one for one in new if one.pending and one.id not in done]
        waiting += [
            msgspec.structs.replace(one, pending=False, due=now + self.delay(one.attempts))
            for one in failed
            if one.attempts < self._max_attempts
        ]
        return Outcome(tuple(waiting), given_up, letters)

    def delay(self, attempts: int) -> int:
        """Microseconds to wait after so many failed attempts."""
        return min(self._retry_after << min(attempts - 1, 60), max(LONGEST_WAIT, self._retry_after))

    @property
    def _late(self) -> str:
        return f"not acknowledged within {self._timeout / 1_000_000:g} s"

    def _pending(self, event: Waiting, trouble: Trouble, now: int) -> Waiting:
        return msgspec.structs.replace(
            event, pending=True, due=now + self._timeout, component=trouble.component, error="not acknowledged yet"
        )


def _failed(event: Waiting, trouble: Trouble) -> Waiting:
    return msgspec.structs.replace(
        event, attempts=event.attempts + 1, pending=False, component=trouble.component, error=trouble.error
    )
