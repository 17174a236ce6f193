"""Are the files that a manifest names whole? Each is compared with the hash that the manifest recorded. Looks only."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from streamwork.delivery import DeadLetters
from streamwork.engine.steps.staging import check_staged
from streamwork.epoch.manifest import Manifest
from streamwork.epoch.store import Store
from streamwork.errors import Refused
from streamwork.state import Chain, FileRef, StateFiles, ways


@dataclass(frozen=True)
class Problem:
    """A file that is not what its manifest recorded."""

    path: str
    what: str


class Verifier:
    """Looks at each file at most once, since manifests share most of their files."""

    def __init__(self, store: Store, dropped: Callable[[Manifest], Collection[str]] = lambda manifest: ()) -> None:
        """`dropped` tells the components whose state in a manifest is not needed."""
        self._store = store
        self._dropped = dropped
        self._files = StateFiles(store.disk, store.folder)
        self._letters = DeadLetters(store.disk, store.folder)
        self._known: dict[str, str] = {}  # path -> what is wrong with it; empty where nothing is

    def sound_chain(self, chain: Chain) -> Chain | None:
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
        return next((what for what in map(self._staged, [*manifest.failed, *unpublished]) if what), "")

    def staged_problem(self, manifest: Manifest, sink: str) -> str:
        """Why a sink cannot be given what a manifest staged for it; empty if it can."""
        if sink not in manifest.sinks:
            return f"checkpoint {manifest.epoch} was made without sink {sink}"
        return next((what for what in map(self._staged, manifest.sinks[sink].staged.values()) if what), "")

    def problems(self, manifest: Manifest) -> list[Problem]:
        """Everything that is wrong with the files of a manifest."""
        state = [ref for instances in manifest.components.values() for chain in instances.values() for ref in chain]
        staged = [ref for part in manifest.sinks.values() for ref in part.staged.values()]
        staged += [*manifest.failed, *(ref for letters in manifest.letters.values() for ref in letters.values())]
        looked = [(ref.path, self._state(ref)) for ref in state] + [(ref.path, self._staged(ref)) for ref in staged]
        return [Problem(path, what) for path, what in looked if what]

    def _state(self, ref: FileRef) -> str:
        return self._look(ref, self._files.check)

    def _staged(self, ref: FileRef) -> str:
        return self._look(ref, lambda ref: check_staged(self._store.disk, self._store.folder, ref))

    def _look(self, ref: FileRef, check: Callable[[FileRef], object]) -> str:
        if ref.path not in self._known:
            try:
                check(ref)
                self._known[ref.path] = ""
            except Refused as damaged:
                self._known[ref.path] = damaged.cause
        return self._known[ref.path]


def problems(store: Store, manifest: Manifest) -> list[Problem]:
    return Verifier(store).problems(manifest)
