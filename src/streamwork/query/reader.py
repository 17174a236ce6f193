"""`Reader`: the state of a job, read from its folder, as of the newest manifest that counts.

Any number of readers follow a job, anywhere that sees its root; none adds work to the driver. One request is answered from one
manifest:

    1  look      which manifests count now; nothing more if nothing has changed (`query.following`)
    2  advance   the version of the newest one is made of the version before (`query.version`)
    3  answer    from that version, which never changes

A file that vanishes in 2 was pruned because there are newer manifests: 1 and 2 again. If it is still missing then, it is lost: the
reader goes on answering from the version that it has, whose epoch and age say so, and reports the problem.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from streamwork.components import Record
from streamwork.epoch.manifest import Manifest
from streamwork.epoch.savepoints import Savepoint
from streamwork.epoch.savepoints.record import FOLDER as SAVEPOINTS
from streamwork.errors import JobFailed, Refused, WrongUse
from streamwork.job.names import check_name
from streamwork.query.answer import NEWEST, Consistency, Selection, Stamp
from streamwork.query.cache import Cache, default_folder
from streamwork.query.component import ComponentState, Files
from streamwork.query.following import Following, Known, Look
from streamwork.query.making import Maker
from streamwork.query.shape import shape_of, stateful
from streamwork.query.tail import Tail
from streamwork.query.version import Version
from streamwork.state.files import STATE_FILE
from streamwork.world import Clock, RealClock, RealDisk, number_of

FOLLOW_EVERY = 0.05
"""Seconds between two readings of the folder."""
OLDER = 4
"""Versions of older checkpoints and savepoints that are kept in memory."""
READS = 5
"""How often files that vanish are looked for again."""
T = TypeVar("T")


@dataclass(frozen=True)
class Current:
    """The version that answers, and what is to be said about it."""

    version: Version
    committed: bool
    regressed: bool
    possibly_undone: bool = False


class Reader:
    def __init__(
        self,
        folder: Path,
        *,
        types: Mapping[str, type[Record]] | None = None,
        cache: Path | None = None,
        clock: Clock | None = None,
        follow_every: float = FOLLOW_EVERY,
        eager: bool = False,
        driven: bool = False,
    ) -> None:
        """`types`: component -> the class of its records; without it one is made of the columns. `eager`: a version is only
        answered from when all of its components have been read, so that no request waits for files. `driven`: the folder is
        read by calls of `follow` only, not by questions.
        """
        self.folder = folder
        self._following = Following.of(folder, types or {})
        self.clock = clock or RealClock()
        identity = self._following.store.identity()
        assert identity is not None
        self.uid, self.job = identity.uid, identity.job
        self._maker = Maker() if eager else None
        self._files = Files(RealDisk(), folder, Cache(cache or default_folder(), identity.uid, self._maker))
        self._tail = Tail(folder, self.clock)
        self.follow_every = follow_every
        self._eager = eager
        self._driven = driven
        self._lock = threading.RLock()
        self._looked = float("-inf")
        self._current: dict[Consistency, Current] = {}
        self._lost: dict[Consistency, int] = {}  # the highest number that no longer counts
        self._older: OrderedDict[str, Version] = OrderedDict()
        self._making: dict[str, Future[ComponentState]] = {}
        self._background: ThreadPoolExecutor | None = None
        self._last: Look | None = None
        self.problem = ""
        """Why the newest checkpoint cannot be read; empty if it can."""

    def close(self) -> None:
        if self._maker is not None:
            self._maker.close()
        if self._background is not None:
            self._background.shutdown(cancel_futures=True)

    # ---- which version --------------------------------------------------------------------------------------------

    def answer(self, selection: Selection, make: Callable[[Version], T]) -> tuple[T, Stamp]:
        """What `make` makes of the version that a selection asks for. It is called again with a newer version if files of the
        first one have been pruned meanwhile.
        """
        for left in reversed(range(READS)):
            current = self.current(selection)
            try:
                return make(current.version), self.stamp(current)
            except Refused as gone:
                if gone.code != STATE_FILE.code or not left or selection.at is not None:
                    raise
                with self._lock:
                    self._following.forget()
                    self._looked = float("-inf")
                self.clock.sleep(self.follow_every)
        raise AssertionError("unreachable")

    def current(self, selection: Selection = NEWEST) -> Current:
        """The version that a selection asks for. Waits for `at_least`, and refuses when its time is over (SW-QUERY-BEHIND)."""
        if selection.at is not None:
            return self._at(selection.at)
        self.refresh()
        found = self._newest(selection.consistency)
        if selection.at_least is None or found.version.checkpoint >= selection.at_least:
            return found
        deadline = self.clock.monotonic() + selection.timeout
        while found.version.checkpoint < selection.at_least:
            if self.clock.monotonic() >= deadline:
                raise behind(selection.at_least, found.version.checkpoint)
            self.clock.sleep(self.follow_every)
            self.refresh()
            found = self._newest(selection.consistency)
        return found

    def stamp(self, current: Current) -> Stamp:
        age = max(0.0, round(self.clock.now() - current.version.written, 3))
        return Stamp(current.version.epoch, current.committed, age, current.regressed, current.possibly_undone)

    def contains(self, epoch: int, fence: int) -> bool:
        """True if a checkpoint that was completed once is in the past of what counts now, or is the newest one."""
        look = self._last
        return look is not None and not _is_lost(look, epoch, fence)

    def known(self) -> Mapping[str, Known]:
        """The components that keep state."""
        self.refresh()
        return self._newest(Consistency.COMMITTED).version.known

    def _newest(self, consistency: Consistency) -> Current:
        if consistency is Consistency.LATEST:
            return self._latest()
        found = self._current.get(consistency)
        if found is None:
            raise JobFailed(
                "SW-QUERY-NO-STATE",
                f"no checkpoint of {self.folder} can be read: {self.problem or 'there is none'}",
                "wait until the job has started; `streamwork checkpoints job.py --verify` shows what is wrong with files",
            )
        return found

    def _latest(self) -> Current:
        """What the tasks have published over the newest checkpoint. That checkpoint alone if there is nothing, or they do not
        publish. What was published by a gang that no longer counts is lost until a later checkpoint is there.
        """
        self._tail.read(self._newest(Consistency.PREPARED).version.known)
        base = self._newest(Consistency.PREPARED)
        version, regressed = self._tail.over(base.version), base.regressed or base.version.epoch < self._tail.lost
        if version is base.version:
            return replace(base, regressed=regressed)
        return Current(version, committed=False, regressed=regressed, possibly_undone=True)

    # ---- following ------------------------------------------------------------------------------------------------

    def refresh(self) -> bool:
        """Look for newer manifests, if the last look is some time ago. True if there is something new."""
        return False if self._driven else self.follow()

    def follow(self) -> bool:
        """As `refresh`, also where questions do not."""
        if self.clock.monotonic() - self._looked < self.follow_every:
            return False
        with self._lock:
            if self.clock.monotonic() - self._looked < self.follow_every:
                return False
            try:
                return self._advance()
            finally:
                self._looked = self.clock.monotonic()

    def _advance(self) -> bool:
        """1, 2."""
        for left in reversed(range(READS)):
            try:
                look = self._following.look()
                if look is None:
                    return False
                self._last = look
                committed = self._version(look, look.newest(prepared=False))
                prepared = self._version(look, look.newest(prepared=True))
                self.problem = look.problems[0] if look.problems else ""
            except (Refused, OSError) as error:
                self._following.forget()
                if left and (isinstance(error, OSError) or error.code in _GONE):
                    self.clock.sleep(self.follow_every)
                    continue
                if not self._current or (isinstance(error, Refused) and error.code not in _GONE):
                    raise
                self.problem = str(error)
                return False
            for consistency, version in ((Consistency.COMMITTED, committed), (Consistency.PREPARED, prepared)):
                if version is not None:
                    self._publish(look, consistency, version)
            return True
        return False

    def _version(self, look: Look, manifest: Manifest | None) -> Version | None:
        if manifest is None:
            return None
        mine = {current.version.sha256: current.version for current in self._current.values()}
        mine.update(self._older)
        found = mine.get(manifest.sha256)
        if found is not None and found.known == look.known:
            return found
        version = self._of(look, manifest)
        newest = max(self._current.values(), key=lambda one: (one.version.fence, one.version.epoch), default=None)
        if newest is not None:
            version.origin = newest.version.handed_on()
        for name, made in list(self._making.items()):
            if made.done():
                del self._making[name]
                if made.exception() is None:
                    version.origin[name] = made.result()
        if self._eager:
            version.load()
            self._rebuild(version)
        elif newest is not None:
            for name in newest.version.loaded:
                if name in version.known:
                    version.component(name)
        return version

    def _of(self, look: Look, manifest: Manifest) -> Version:
        gone = {name for name, fence in look.dropped.items() if fence > manifest.fence}
        chains = {name: chains for name, chains in manifest.components.items() if name not in gone}
        written = look.written[manifest.epoch]
        return Version(manifest.epoch, manifest.fence, manifest.sha256, written, self._files, chains, look.known)

    def _rebuild(self, version: Version) -> None:
        """Of components whose deltas outweigh the rest, in the background: no request waits for it."""
        for name, state in version.loaded.items():
            if state.outgrown and name not in self._making:
                if self._background is None:
                    self._background = ThreadPoolExecutor(1, "streamwork-query")
                self._making[name] = self._background.submit(state.rebuilt, self._files, version.epoch)

    def _publish(self, look: Look, consistency: Consistency, version: Version) -> None:
        before = self._current.get(consistency)
        fell_back = (
            before is not None
            and before.version.sha256 != version.sha256
            and _is_lost(look, before.version.epoch, before.version.fence)
        )
        if fell_back:
            assert before is not None
            self._lost[consistency] = max(self._lost.get(consistency, 0), before.version.epoch)
        same = before is not None and before.version.sha256 == version.sha256
        regressed = fell_back or version.epoch <= self._lost.get(consistency, 0) or (same and before.regressed)  # type: ignore[union-attr]
        self._current[consistency] = Current(version, version.epoch in look.completed, regressed)

    # ---- older checkpoints and savepoints -------------------------------------------------------------------------

    def _at(self, at: str) -> Current:
        kind, _, name = at.partition(":")
        if kind == "checkpoint" and (number := number_of(name)) is not None:
            return self._checkpoint(number)
        if kind == "savepoint":
            return Current(self._savepoint(check_name(name, "savepoint")), True, False)
        raise WrongUse("SW-QUERY-AT", f"{at[:80]!r} names no checkpoint", "give checkpoint:NUMBER or savepoint:NAME")

    def _checkpoint(self, number: int) -> Current:
        with self._lock:
            self.refresh()
            look = self._last
            manifest = None if look is None else next((m for m in look.manifests if m.epoch == number), None)
            if look is None or manifest is None:
                kept = [] if look is None else sorted(one.epoch for one in look.manifests)
                raise WrongUse(
                    "SW-QUERY-AT",
                    f"checkpoint {number} is not kept, or does not count",
                    f"these are kept: {', '.join(map(str, kept))}; more with --retain, or as savepoints",
                )
            newest = {current.version.sha256: current.version for current in self._current.values()}
            version = newest.get(manifest.sha256) or self._kept(manifest.sha256, lambda: self._of(look, manifest))
            return Current(version, number in look.completed, False)

    def _savepoint(self, name: str) -> Version:
        folder = self.folder / SAVEPOINTS / name
        savepoint = Savepoint.open(self._files.disk, folder)
        record = savepoint.record
        if record.uid != self.uid:
            raise WrongUse("SW-QUERY-AT", f"savepoint {name!r} is of another job", "name a savepoint of this job")

        def make() -> Version:
            known = {}
            for node in stateful(savepoint.graph):
                chains = savepoint.chains.get(node.id, {})
                mine = self.known().get(node.id)
                defaults = {} if mine is None else mine.defaults
                schemas = [savepoint.files.schema(ref) for chain in chains.values() for ref in chain]
                if not schemas and mine is None:
                    continue
                columns = pa.unify_schemas(schemas) if schemas else mine.shape.schema  # type: ignore[union-attr]
                known[node.id] = Known(shape_of(node, columns), defaults)
            files = Files(self._files.disk, folder, self._files.cache)
            sha = record.manifest_sha256
            return Version(record.epoch, record.fence, sha, record.created, files, savepoint.chains, known)

        with self._lock:
            return self._kept(f"{name}/{record.seal}", make)

    def _kept(self, key: str, make: Callable[[], Version]) -> Version:
        if key not in self._older:
            self._older[key] = make()
            while len(self._older) > OLDER:
                self._older.popitem(last=False)
        self._older.move_to_end(key)
        return self._older[key]


def _is_lost(look: Look, epoch: int, fence: int) -> bool:
    """True if a checkpoint is not in the past of what counts now."""
    newest = look.newest(prepared=True)
    later = next((start for after, start in sorted(look.starts.items()) if after > fence > 0), None)
    return (later is not None and epoch > later.epoch) or (newest is not None and newest.epoch < epoch)


_GONE = (STATE_FILE.code, "SW-CHECKPOINT-DAMAGED")


def behind(wanted: int, epoch: int) -> JobFailed:
    return JobFailed(
        "SW-QUERY-BEHIND",
        f"checkpoint {wanted} was requested, and the newest one is {epoch}",
        "ask again later, or with a longer timeout",
    )
