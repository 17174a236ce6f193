"""Replaying dead letters: each is checked against the job, then all are put into the inbox."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from streamwork.components import Event
from streamwork.delivery import Inbox, Letter
from streamwork.delivery.text import from_text
from streamwork.epoch.store import Store
from streamwork.errors import Refused, StreamworkError
from streamwork.job import Graph, NodeKind


class Replayed(msgspec.Struct, frozen=True):
    """The letters that the job's next checkpoint takes in, and the inbox files that hold them."""

    job: str
    root: str
    letters: tuple[str, ...]
    files: tuple[int, ...]


def replay(store: Store, root: str, graph: Graph, letters: Sequence[Letter]) -> Replayed:
    """Put letters into the inbox. All are checked before the first is written."""
    for letter in letters:
        _check(graph, letter)
    files = Inbox(store.disk, store.folder).put(letters) if letters else ()
    return Replayed(graph.job, root, tuple(letter.id for letter in letters), tuple(files))


def _check(graph: Graph, letter: Letter) -> None:
    """Refuse a letter whose event does not fit the component that failed it."""
    if not letter.to:
        raise _refused(
            letter,
            "it holds no event, but input that could not be parsed",
            f"correct the input of {letter.component}, which the source then reads, and leave this letter out",
        )
    node = next((node for node in graph.nodes if node.id == letter.to), None)
    if node is None:
        known = ", ".join(node.id for node in graph.nodes)
        raise _refused(letter, f"the job has no {letter.to!r} (it has: {known})", "give the component its old id back")
    kind: type[Event] | None = node.gives if node.kind is NodeKind.SOURCE else node.takes
    assert kind is not None
    try:
        from_text(kind, letter.event)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise _refused(
            letter,
            f"its event no longer is a {kind.__name__}: {error}",
            f"give {kind.__name__} the fields of the event (new ones need a default)",
        ) from None


def _refused(letter: Letter, why: str, action: str) -> StreamworkError:
    return Refused(
        "SW-LETTERS-EVENT", f"letter {letter.id} cannot be replayed: {why}", f"{action}; nothing was written"
    )
