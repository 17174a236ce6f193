"""`Verifier`: compares the files that manifests name with their recorded hashes. It changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from streamwork.delivery import DeadLetters
from streamwork.delivery.inbox import INBOX_FILE
from streamwork.delivery.letters import STAGED_LETTERS
from streamwork.engine.steps.staging import STAGED_OUTPUT
from streamwork.epoch.manifest import Manifest
from streamwork.epoch.store import Store
from streamwork.errors import Refused
from streamwork.state import FileChain, ways
from streamwork.state.files import STATE_FILE
from streamwork.world import FileKind, FileRef


@dataclass(frozen=True)
class Problem:
    """A file that is not what its manifest recorded."""

    path: str
    what: str


class Verifier:
    """Reads each file at most once, since manifests share most of their files."""

    def __init__(self, store: Store, dropped: Callable[[Manifest], Collection[str]] = lambda manifest: ()) -> None:
        """`dropped` gives the components whose state in a manifest is not needed."""
        self._store = store
        self._dropped = dropped
        self._letters = DeadLetters(store.disk, store.folder)
        self._known: dict[str, str] = {}  # path -> what is wrong with it; empty where nothing is

    def sound_chain(self, chain: FileChain) -> FileChain | None:
        """The part of a chain to go on with: all of it, or the first way to read it whose files are whole. None: no way."""
        if not any(self._state(ref) for ref in chain):
            return chain
        return next((way for way in ways(chain) if not any(self._state(ref) for ref in way)), None)

    def state_problem(self, manifest: Manifest) -> str:
        """Why a manifest cannot be built on: its state, events that wait, or letters that are not published; empty if it can."""
        dropped = self._dropped(manifest)
        for chains in (chains for name, chains in manifest.components.items() if name not in dropped):
            for chain in chains.values():
                if self.sound_chain(chain) is None:
                    return next(what for what in map(self._state, chain) if what)
        unpublished = [
            ref
            for component, letters in manifest.letters.items()
            if not self._letters.published(component, manifest.epoch)
            for ref in letters.values()
        ]
        waiting = [self._problem(ref, INBOX_FILE) for ref in manifest.failed]
        letters = [self._problem(ref, STAGED_LETTERS) for ref in unpublished]
        return next(filter(None, [*waiting, *letters]), "")

    def staged_problem(self, manifest: Manifest, sink: str) -> str:
        """Why a sink cannot be given what a manifest staged for it; empty if it can."""
        if sink not in manifest.sinks:
            return f"checkpoint {manifest.epoch} was made without sink {sink}"
        staged = manifest.sinks[sink].staged.values()
        return next(filter(None, (self._problem(ref, STAGED_OUTPUT) for ref in staged)), "")

    def problems(self, manifest: Manifest) -> list[Problem]:
        """Everything that is wrong with the files of a manifest."""
        named = [(ref, STATE_FILE) for c in manifest.components.values() for chain in c.values() for ref in chain]
        named += [(ref, STAGED_OUTPUT) for part in manifest.sinks.values() for ref in part.staged.values()]
        named += [(ref, INBOX_FILE) for ref in manifest.failed]
        named += [(ref, STAGED_LETTERS) for letters in manifest.letters.values() for ref in letters.values()]
        found = [(ref.path, self._problem(ref, kind)) for ref, kind in named]
        return [Problem(path, what) for path, what in found if what]

    def keep(self, paths: Collection[str]) -> None:
        """Forget what is known about other files."""
        self._known = {path: what for path, what in self._known.items() if path in paths}

    def _state(self, ref: FileRef) -> str:
        return self._problem(ref, STATE_FILE)

    def _problem(self, ref: FileRef, kind: FileKind) -> str:
        if ref.path not in self._known:
            try:
                ref.map(self._store.disk, self._store.folder, kind)
                self._known[ref.path] = ""
            except Refused as refused:
                self._known[ref.path] = refused.cause
        return self._known[ref.path]


def problems(store: Store, manifest: Manifest) -> list[Problem]:
    return Verifier(store).problems(manifest)
