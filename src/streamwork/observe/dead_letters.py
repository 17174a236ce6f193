"""`DeadLetterBook`: the dead letters of a job, listed, found by id and counted."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from streamwork.delivery import DeadLetters, Inbox, Letter
from streamwork.epoch.history.reading import totals
from streamwork.epoch.job_folder import open_store
from streamwork.epoch.store import Store
from streamwork.errors import Refused, WrongUse

MOST_NAMED = 5


class ListedLetter(msgspec.Struct, frozen=True):
    """A dead letter, and whether it has been replayed."""

    letter: Letter
    replayed: bool


class LetterCounts(msgspec.Struct, frozen=True):
    """The numbers of dead letters."""

    count: int = 0
    by_component: dict[str, int] = {}
    problem: str = ""
    replayed: int = 0


class LetterFacts(msgspec.Struct, frozen=True):
    """A dead letter in a list."""

    id: str
    component: str
    instance: int
    epoch: int
    attempts: int
    replayed: bool
    to: str
    error: str

    @classmethod
    def of(cls, one: ListedLetter) -> LetterFacts:
        letter = one.letter
        return cls(
            letter.id,
            letter.component,
            letter.instance,
            letter.epoch,
            letter.attempts,
            one.replayed,
            letter.to,
            letter.error,
        )


class LetterPage(msgspec.Struct, frozen=True):
    """Some dead letters, the newest checkpoint first."""

    job: str
    root: str
    count: int  # of all, or of all of the component
    replayed: int
    dead_letters: list[LetterFacts]
    next: str | None  # older ones are behind this id; None: there are none


class LetterDetails(LetterFacts, frozen=True):
    job: str
    root: str
    event: Any  # the event; or, if it is none, its text


def read_letters(root: Path, job: str, last: int, component: str | None = None, after: str | None = None) -> LetterPage:
    """At most `last` letters, behind the one with the id `after`."""
    found = DeadLetterBook(root, job).all(component)[::-1]
    places = {one.letter.id: place for place, one in enumerate(found)}
    if after is not None and after not in places:
        raise _unknown(root, job, [after])
    first = 0 if after is None else places[after] + 1
    shown = found[first : first + last]
    more = first + last < len(found)
    return LetterPage(
        job,
        str(root),
        len(found),
        sum(one.replayed for one in found),
        [LetterFacts.of(one) for one in shown],
        shown[-1].letter.id if more else None,
    )


def read_letter(root: Path, job: str, letter_id: str) -> LetterDetails:
    (found,) = DeadLetterBook(root, job).find([letter_id])
    facts = msgspec.structs.asdict(LetterFacts.of(found))
    return LetterDetails(**facts, job=job, root=str(root), event=event_of(found.letter))


def event_of(letter: Letter) -> Any:
    """The event of a letter; or, if it is none, its text."""
    try:
        return msgspec.json.decode(letter.event) if letter.to else letter.event
    except msgspec.DecodeError:
        return letter.event


class DeadLetterBook:
    """The dead letters of a job that has run. Reads only; `run.replaying` replays them."""

    def __init__(self, root: Path, job: str) -> None:
        self.store: Store = open_store(root, job)
        self._root = root
        self._job = job
        self._letters = DeadLetters(self.store.disk, self.store.folder)
        self._inbox = Inbox(self.store.disk, self.store.folder)

    def all(self, component: str | None = None) -> list[ListedLetter]:
        """All letters, or those of one component; the oldest checkpoint first."""
        replayed = self._inbox.replayed()
        return [ListedLetter(letter, letter.id in replayed) for letter in self._letters.all(component)]

    def replayable(self, component: str | None = None) -> list[Letter]:
        """The letters that have not been replayed and hold an event. Input that could not be parsed has none."""
        return [one.letter for one in self.all(component) if not one.replayed and one.letter.to]

    def find(self, wanted: Iterable[str]) -> list[ListedLetter]:
        """The letters with these ids, each once. Refuses unknown ids."""
        ids = list(dict.fromkeys(wanted))
        components = {letter_id.partition("/")[0] for letter_id in ids}
        known = {one.letter.id: one for component in sorted(components) for one in self.all(component)}
        if missing := [letter_id for letter_id in ids if letter_id not in known]:
            raise _unknown(self._root, self._job, missing)
        return [known[letter_id] for letter_id in ids]

    def check_component(self, component: str, others: Sequence[str] = ()) -> None:
        """Refuse a component that occurs neither in the job (its file, as `others`, its checkpoints, its history) nor in a
        dead letter.
        """
        stored = [one.manifest for one in self.store.stored() if one.manifest is not None]
        counted = [one.counts.component for one in totals(self.store.folder / "history.sqlite")]
        known = {*others, *counted, *(name for manifest in stored for name in manifest.counters)}
        lettered = set(self._letters.sizes())
        if component not in known | lettered:
            raise WrongUse(
                "SW-USAGE",
                f"job {self._job} has no component {component!r}, and no dead letters of one",
                f"with dead letters: {', '.join(sorted(lettered)) or 'none'}; without: "
                f"{', '.join(sorted(known - lettered)) or 'none'}",
            )


def count_letters(store: Store) -> LetterCounts:
    """The numbers of dead letters; files that cannot be read are reported as a problem."""
    try:
        sizes = DeadLetters(store.disk, store.folder).sizes()
    except Refused as damaged:
        return LetterCounts(problem=damaged.cause)
    try:
        replayed = len(Inbox(store.disk, store.folder).replayed())
    except Refused as damaged:
        return LetterCounts(sum(sizes.values()), sizes, damaged.cause)
    return LetterCounts(sum(sizes.values()), sizes, replayed=replayed)


def _unknown(root: Path, job: str, ids: Sequence[str]) -> WrongUse:
    return WrongUse(
        "SW-LETTERS-UNKNOWN",
        f"job {job} has no dead letter {_some(ids)}",
        f"`streamwork dead-letters list {shlex.join(['--root', str(root), job])}` lists all ids",
    )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:MOST_NAMED]) + (f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else "")
