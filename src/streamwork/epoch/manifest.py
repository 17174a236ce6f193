"""Plans and manifests: the files that say what an epoch reads, and what counts.

A manifest is written twice, byte for byte the same: as *prepared* when all instances have reported, as *completed* when
every sink has it too. Its hash names it in ledgers and in its children. Each file also carries the hash of its own content,
its `seal`, so that one copy alone shows whether it is whole.
"""

from __future__ import annotations

import hashlib
from functools import cached_property

import msgspec

from streamwork.components import Position
from streamwork.engine.idleness import Idleness
from streamwork.epoch.sealed import to_bytes
from streamwork.world import FileRef, check_relative


class Plan(msgspec.Struct, frozen=True, rename={"start": "from", "end": "to"}):
    """The slices of input that an epoch takes, durable before anything is computed.

    By plan, `end` names where the slices end. The ends of others are known by report: of sources without offsets, and of those
    that `reported` names, `end` has no component, and the manifest has what the instances reported (`reported.end_of`).
    """

    epoch: int
    parent: int
    fence: int
    start: Position
    end: Position
    ticks: tuple[int, ...] = ()  # processing-time ticks are input too
    reported: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET  # sources with offsets that are read by report
    seal: str = ""


class SinkPart(msgspec.Struct, frozen=True):
    """The outputs that a manifest stages for one sink: instance -> file."""

    staged: dict[str, FileRef] = {}
    first: bool = False  # the parent does not name this sink: its ledger has no position before this


class Manifest(msgspec.Struct, frozen=True, dict=True):
    """One checkpoint: everything that is needed to go on from it."""

    epoch: int
    parent: int
    parent_sha256: str
    fence: int
    uid: str
    positions: Position
    components: dict[str, dict[str, tuple[FileRef, ...]]]  # component -> instance -> chain of state files
    sinks: dict[str, SinkPart]
    counters: dict[str, dict[str, int]]  # component -> what it counted in this epoch
    fingerprint: str
    watermarks: dict[str, int] = {}
    idle: dict[str, Idleness] | msgspec.UnsetType = msgspec.UNSET  # by source/partition, of sources with `idle_after`
    floors: dict[str, int] | msgspec.UnsetType = (
        msgspec.UNSET
    )  # the minimum behind an exchange, by component, where sources idle
    failed: tuple[FileRef, ...] = ()  # under acknowledging: the events that are not done, with their attempts
    taken: tuple[str, ...] = ()  # files of the inbox that it accounts for, as far as they were not removed before
    letters: dict[str, dict[str, FileRef]] = {}  # component -> by whom -> its dead letters
    basis: int | msgspec.UnsetType = (
        msgspec.UNSET
    )  # of one that only has the state in other files: whose positions it has
    ledgers: dict[str, str] | msgspec.UnsetType = (
        msgspec.UNSET
    )  # sink -> the id in its ledger row, of sinks that were renamed
    seal: str = ""

    def __post_init__(self) -> None:
        """Names are used as paths: refuse those that lead out of the job's folder (file references check themselves)."""
        for path in self.taken:
            check_relative(path)
        for name in (*self.components, *self.sinks, *self.letters, *(i for c in self.components.values() for i in c)):
            check_relative(name)
            if "/" in name:
                raise ValueError(f"{name!r} is no name of a component or instance")

    @property
    def age(self) -> tuple[int, int]:
        """What makes one manifest newer than another: a higher fence, then a higher number."""
        return self.fence, self.epoch

    @property
    def reached_by(self) -> int:
        """The epoch that came to its positions: its own, unless it only has the state of an earlier one in other files."""
        return self.epoch if isinstance(self.basis, msgspec.UnsetType) else self.basis

    @property
    def is_computed(self) -> bool:
        """False of one that a start wrote, without a plan: it has the state of another one in other files, names or folders."""
        staged = any(part.staged for part in self.sinks.values())
        counted = any(count for kinds in self.counters.values() for count in kinds.values())
        return isinstance(self.basis, msgspec.UnsetType) and (staged or counted)

    @property
    def events(self) -> int:
        """How many events its sources gave."""
        return sum(self.counters.get(name, {}).get("processed", 0) for name in self.positions.sources)

    @property
    def files(self) -> dict[str, FileRef]:
        """Every file that it names, by path."""
        named = [ref for instances in self.components.values() for chain in instances.values() for ref in chain]
        named += [ref for sink in self.sinks.values() for ref in sink.staged.values()]
        named += [ref for letters in self.letters.values() for ref in letters.values()]
        named += self.failed
        return {ref.path: ref for ref in named}

    def to_bytes(self) -> bytes:
        return self._bytes

    @cached_property
    def _bytes(self) -> bytes:
        """Made once: it is written twice, and its hash goes to every sink."""
        return to_bytes(self)

    @cached_property
    def as_written(self) -> Manifest:
        """The manifest in the names that components had when it was written; mostly itself."""
        return self

    def written_as(self, written: Manifest) -> Manifest:
        """This manifest, made of one by renaming components: it keeps the bytes and the hash."""
        self.__dict__.update(_bytes=written.to_bytes(), sha256=written.sha256, as_written=written)
        return self

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.to_bytes()).hexdigest()
