"""`DeadLetterBook`: the dead letters of a job, listed, found by id and counted."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

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
            raise WrongUse(
                "SW-LETTERS-UNKNOWN",
                f"job {self._job} has no dead letter {_some(missing)}",
                f"`streamwork dead-letters list {shlex.join(['--root', str(self._root), self._job])}` lists all ids",
            )
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


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:MOST_NAMED]) + (f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else "")
