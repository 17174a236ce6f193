"""Dead letters as people handle them: found by id, checked, and let go in once more."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import msgspec

from streamwork.components import Event
from streamwork.delivery import DeadLetters, Inbox, Letter
from streamwork.delivery.text import from_text
from streamwork.epoch.history.history import totals
from streamwork.epoch.store import Store
from streamwork.errors import Refused, StreamworkError, WrongUse
from streamwork.job import Graph, NodeKind
from streamwork.observe.checkpoints import open_store

MOST_NAMED = 5


class Listed(msgspec.Struct, frozen=True):
    """A letter, and whether it has been let go in again."""

    letter: Letter
    replayed: bool


class Replayed(msgspec.Struct, frozen=True):
    job: str
    root: str
    letters: tuple[str, ...]
    files: tuple[int, ...]  # of the inbox


class Letterbox:
    """The dead letters of a job that has run, and its inbox."""

    def __init__(self, root: Path, job: str) -> None:
        self._root = root
        self._job = job
        self._store: Store = open_store(root, job)
        self._letters = DeadLetters(self._store.disk, self._store.folder)
        self._inbox = Inbox(self._store.disk, self._store.folder)

    def all(self, component: str | None = None) -> list[Listed]:
        """Oldest checkpoint first."""
        again = self._inbox.replayed()
        return [Listed(letter, letter.id in again) for letter in self._letters.all(component)]

    def check_component(self, component: str, others: Sequence[str] = ()) -> None:
        """Refuse a component that nobody knows: neither the job, as far as its file (`others`), its checkpoints and its history
        tell, nor the dead letters.
        """
        stored = [one.manifest for one in self._store.stored() if one.manifest is not None]
        counted = [one.counts.component for one in totals(self._store.folder / "history.sqlite")]
        known = {*others, *counted, *(name for manifest in stored for name in manifest.counters)}
        lettered = set(self._letters.sizes())
        if component not in known | lettered:
            raise WrongUse(
                "SW-USAGE",
                f"job {self._job} has no component {component!r}, and there are no dead letters of one",
                f"with dead letters: {', '.join(sorted(lettered)) or 'none'}; without: "
                f"{', '.join(sorted(known - lettered)) or 'none'}",
            )

    def find(self, letter_id: str) -> Listed:
        return self._found([letter_id])[0]

    def replay(self, graph: Graph, wanted: Sequence[str]) -> Replayed:
        """Let letters go in once more. All of them are checked before the first is written."""
        found = self._found(dict.fromkeys(wanted))
        for one in found:
            _check(graph, one.letter)
        return self._put([one.letter for one in found])

    def replay_all(self, graph: Graph, component: str | None = None) -> Replayed:
        """Those that have not gone in yet. What is no event stays where it is: there is nothing to replay."""
        found = [one.letter for one in self.all(component) if not one.replayed and one.letter.to]
        for letter in found:
            _check(graph, letter)
        return self._put(found)

    def _put(self, letters: Sequence[Letter]) -> Replayed:
        files = self._inbox.put(letters) if letters else ()
        return Replayed(self._job, str(self._root), tuple(letter.id for letter in letters), tuple(files))

    def _found(self, wanted: Sequence[str] | dict[str, None]) -> list[Listed]:
        components = {letter_id.partition("/")[0] for letter_id in wanted}
        known = {one.letter.id: one for component in sorted(components) for one in self.all(component)}
        if missing := [letter_id for letter_id in wanted if letter_id not in known]:
            raise WrongUse(
                "SW-LETTERS-UNKNOWN",
                f"job {self._job} has no dead letter {_some(missing)}",
                f"`streamwork dead-letters list {shlex.join(['--root', str(self._root), self._job])}` names those that there "
                "are",
            )
        return [known[letter_id] for letter_id in wanted]


def _check(graph: Graph, letter: Letter) -> None:
    """Refuse a letter that could not go in."""
    if not letter.to:
        raise _cannot(
            letter,
            "it is no event, but input that could not be read as one",
            f"correct the input of {letter.component} and let the source read it; leave this letter out",
        )
    node = next((node for node in graph.nodes if node.id == letter.to), None)
    if node is None:
        known = ", ".join(node.id for node in graph.nodes)
        raise _cannot(letter, f"the job has no {letter.to!r} (it has: {known})", "give the component its old id back")
    kind: type[Event] | None = node.gives if node.kind is NodeKind.SOURCE else node.takes
    assert kind is not None
    try:
        from_text(kind, letter.event)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise _cannot(
            letter,
            f"its event is no {kind.__name__} any more: {error}",
            f"give {kind.__name__} the fields that it had then (new ones need a default)",
        ) from None


def _cannot(letter: Letter, why: str, action: str) -> StreamworkError:
    return Refused(
        "SW-LETTERS-EVENT", f"letter {letter.id} cannot be replayed: {why}", f"{action}; nothing was written"
    )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:MOST_NAMED]) + (f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else "")
