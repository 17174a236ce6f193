"""The files that each step of an epoch has written."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

from streamwork.epoch import Manifest, Phase, Store
from streamwork.epoch.store import COMPLETED, PLAN, PREPARED
from streamwork.observe.explained.model import StepFile
from streamwork.state import is_snapshot
from streamwork.world import FileRef


class EpochFiles:
    """The files of one epoch. `manifest` is its own, if there is one; `parent` that of the checkpoint before it, if it is kept."""

    def __init__(self, store: Store, epoch: int, manifest: Manifest | None, parent: Manifest | None) -> None:
        self._store = store
        self._epoch = epoch
        self._manifest = manifest
        self._parent = parent

    def of(self, phase: Phase) -> tuple[StepFile, ...]:
        """The files that a step has written."""
        if phase is Phase.PLAN:
            return tuple(self._json(PLAN, "the plan"))
        if phase is Phase.PREPARE:
            return tuple(self._json(PREPARED, "the manifest, prepared"))
        if phase is Phase.COMPLETE:
            return tuple(self._json(COMPLETED, "the manifest, completed: the same bytes"))
        return tuple(self._computed()) if phase is Phase.COMPUTE else ()

    def _json(self, suffix: str, content: str) -> Iterator[StepFile]:
        path = f"checkpoints/{self._epoch:012d}{suffix}"
        try:
            data = self._store.disk.read(self._store.folder / path)
        except FileNotFoundError:
            return
        yield self._file(path, content, len(data), hashlib.sha256(data).hexdigest())

    def _computed(self) -> Iterator[StepFile]:
        """What the manifest names and its parent does not; without a manifest, what is there under the number of the epoch."""
        if self._manifest is None:
            for path in self._store.files_of(self._epoch):
                yield self._file(path, f"{_content(path)}; no manifest names it")
            return
        before: Mapping[str, FileRef] = {} if self._parent is None else self._parent.files
        for path, ref in sorted(self._manifest.files.items()):
            if path not in before and (self._parent is not None or f"/{self._epoch:012d}-" in path):
                content = "a snapshot that replaces older files" if is_snapshot(ref) else _content(path)
                yield self._file(path, content, ref.bytes, ref.sha256, ref.rows)

    def _file(
        self, path: str, content: str, size: int | None = None, sha256: str | None = None, rows: int | None = None
    ) -> StepFile:
        try:
            found = (self._store.folder / path).stat()
        except OSError:
            return StepFile(
                path=path, content=content, there=False, bytes=size, sha256=sha256, rows=rows, written_at=None
            )
        size = found.st_size if size is None else size
        return StepFile(
            path=path, content=content, there=True, bytes=size, sha256=sha256, rows=rows, written_at=found.st_mtime
        )


def _content(path: str) -> str:
    """What a file holds, by its path."""
    folder, _, rest = path.partition("/")
    owner = rest.partition("/")[0]
    if folder == "state":
        return f"changed records of {owner}, instance {rest.split('/')[1]}"
    if folder == "outputs":
        return f"dead letters of {owner}" if "letters" in rest else f"rows staged for {owner}"
    return "events that wait for another attempt"
