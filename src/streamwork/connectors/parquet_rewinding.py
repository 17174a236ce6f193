"""How a ParquetSink removes what was committed after a checkpoint: see `connectors.parquet_sink` for what a crash leaves."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec
import pyarrow.parquet as pq

from streamwork.components import LedgerRow
from streamwork.connectors import parquet_commits as commits
from streamwork.connectors.folders import Folders
from streamwork.errors import Refused


class Rewinding:
    """The part of a ParquetSink that rewinds it."""

    path: Path
    _folders: Folders
    _swaps: bool  # True if folders can be exchanged and files linked here
    _mine: Path | None  # the staging folder of this driver

    @abstractmethod
    def _numbers(self) -> list[int]:
        """Of its folders."""

    @abstractmethod
    def _read(self, epoch: int) -> commits.Ledger: ...

    @abstractmethod
    def _files(self, number: int) -> list[tuple[Path, int]]: ...

    @abstractmethod
    def _others(self, number: int) -> Sequence[Path]: ...

    @abstractmethod
    def _adopt(self, mine: Path, newest: int, ledger: commits.Ledger) -> None: ...

    @abstractmethod
    def _write_ledger(self, path: Path, ledger: commits.Ledger) -> None: ...

    @abstractmethod
    def _check_fence(self, sink_id: str, fence: int) -> None: ...

    @abstractmethod
    def _mine_only(self, mine: Path) -> AbstractContextManager[None]: ...

    @abstractmethod
    def _turning_away(self, sink_id: str, fence: int) -> AbstractContextManager[None]: ...

    @abstractmethod
    def _failing(self) -> AbstractContextManager[None]: ...

    def cannot_rewind(self, uid: str, sink_id: str, to: LedgerRow) -> str:
        with self._failing():
            found = commits.cut(self._described(), to.manifest_sha256)
        return found if isinstance(found, str) else ""

    def _described(self) -> Iterator[commits.Folder]:
        """Its folders, newest first."""
        for number in sorted(self._numbers(), reverse=True):
            ledger = self._read(number)
            rows = sum(pq.read_metadata(path).num_rows for path, _ in self._files(number))
            others = [path.name for path in self._others(number)]
            yield commits.Folder(number, ledger.rows, ledger.commits, rows, others)

    def rewind(self, uid: str, sink_id: str, to: LedgerRow) -> int:
        assert to.position is not None and self._mine is not None, "a registered sink is rewound to a checkpoint"
        mine = self._mine
        with self._failing(), self._turning_away(sink_id, to.fence):
            self._check_fence(sink_id, to.fence)
            cut = commits.cut(self._described(), to.manifest_sha256)
            if not isinstance(cut, str) and cut.cuts and not self._swaps:
                cut = "this file system cannot exchange folders"
            if isinstance(cut, str):
                raise Refused(
                    "SW-SINK-AHEAD", f"sink {sink_id} cannot be rewound: {cut}", "bring back a copy of the target"
                )
            for number in cut.later:
                gone = mine / f"gone-{number}"
                with self._mine_only(mine):
                    self._folders.rename(self.path / f"epoch={number}", gone)
                self._folders.sync(self.path)
                self._folders.remove(gone)
            before = self._read(cut.number)
            ledger = msgspec.structs.replace(
                before,
                position=to.position,
                fence=to.fence,
                manifest_sha256=to.manifest_sha256,
                last=before.last or cut.number,
                rows=cut.rows,
                commits=cut.commits,
            )
            if cut.cuts:
                self._shorten(mine, cut.number, ledger)
            else:
                self._adopt(mine, cut.number, ledger)
        return cut.removed

    def _shorten(self, mine: Path, number: int, ledger: commits.Ledger) -> None:
        """Exchange a folder with one that has its first rows."""
        made, target, left = mine / f"epoch={number}", self.path / f"epoch={number}", ledger.rows
        self._folders.remove(made)
        with self._mine_only(mine):
            self._folders.make(made)
            for path, _ in self._files(number):
                rows = pq.read_metadata(path).num_rows
                if rows <= left:
                    self._folders.link(path, made / path.name)
                elif left:
                    first = iter(commits.first_rows(path, left))
                    self._folders.write_rows(made / path.name, pq.read_schema(path), first)
                left -= min(left, rows)
            self._write_ledger(made / commits.LEDGER, ledger)
            self._folders.sync(made)
            self._folders.exchange(made, target)
        self._folders.sync(self.path)
        self._folders.remove(made)
