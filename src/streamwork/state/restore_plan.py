"""`RestorePlan`: what each instance of each component is restored from.

    component -> instance -> pieces, each some key groups of a chain of files below some folder; and the cast of their rows

A restart reads chains of the job's own folder, whole and as they are: then the plan is in place, and instances read its `chains`.
Any other plan (files of a savepoint, other numbers of instances, other columns) is carried out by a start before the first epoch,
which rewrites the state (`epoch.recovery.rewriting`). So a chain never mixes layouts or columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from streamwork.state.chain import FileChains
from streamwork.world import FileRef


class Change(Enum):
    """How a component compares with the one whose state is stored."""

    SAME = "same"
    ADDED = "added"  # it has no state yet
    CHANGED = "changed"  # its parallelism, its id, or the columns of its state
    GONE = "gone"


def groups_of(instance: int, count: int, groups: int) -> range:
    """The key groups of an instance: those with ``group * count // groups == instance``."""
    return range(-(-instance * groups // count), -(-(instance + 1) * groups // count))


def overlap(one: range, other: range) -> bool:
    return max(one.start, other.start) < min(one.stop, other.stop)


@dataclass(frozen=True)
class Piece:
    """The rows that an instance takes of a chain of state files."""

    folder: Path  # that the paths of the files are below
    chain: tuple[FileRef, ...]
    groups: range | None = None  # the key groups that it takes; None: all rows


@dataclass(frozen=True)
class ComponentPlan:
    """What the instances of one component are restored from."""

    pieces: Mapping[str, tuple[Piece, ...]]  # by instance
    casts: bool = False  # the rows are brought to other columns
    drops: tuple[str, ...] = ()  # stored fields that are left out
    divides: bool = False  # instance state: the component divides the records of all pieces, which each instance has

    @classmethod
    def as_stored(cls, folder: Path, chains: Mapping[str, tuple[FileRef, ...]]) -> ComponentPlan:
        """Each instance goes on with the chain of that number."""
        return cls({instance: (Piece(folder, chain),) for instance, chain in chains.items()})

    @classmethod
    def by_groups(
        cls, folder: Path, chains: Mapping[str, tuple[FileRef, ...]], count: int, groups: int
    ) -> ComponentPlan:
        """Each of `count` instances takes its key groups, of the chains that hold some of them."""
        pieces: dict[str, tuple[Piece, ...]] = {}
        for instance in range(count):
            mine = groups_of(instance, count, groups)
            pieces[str(instance)] = tuple(
                Piece(folder, chain, mine)
                for before, chain in chains.items()
                if overlap(mine, groups_of(int(before), len(chains), groups))
            )
        return cls(pieces)

    @classmethod
    def divided(cls, folder: Path, chains: Mapping[str, tuple[FileRef, ...]], count: int) -> ComponentPlan:
        """The component divides the records of all chains among `count` instances."""
        every = tuple(Piece(folder, chains[instance]) for instance in sorted(chains, key=int))
        return cls({str(instance): every for instance in range(count)}, divides=True)

    @property
    def stored(self) -> int:
        """Of one that divides: how many instances there are records of."""
        return len(next(iter(self.pieces.values())))

    @property
    def is_changed(self) -> bool:
        """True if its columns or the number of its instances differ from what is stored."""
        return self.casts or self.is_spread

    @property
    def is_spread(self) -> bool:
        """True if the number of its instances differs from what is stored."""
        return self.divides or any(piece.groups is not None for pieces in self.pieces.values() for piece in pieces)

    def is_in_place(self, folder: Path) -> bool:
        """True if each instance goes on with one chain of that folder, whole and as it is."""
        return not (self.casts or self.divides) and all(
            len(pieces) == 1 and pieces[0].groups is None and pieces[0].folder == folder
            for pieces in self.pieces.values()
        )

    @property
    def chains(self) -> Mapping[str, tuple[FileRef, ...]]:
        """The chain of each instance. The plan must be in place."""
        return {instance: pieces[0].chain for instance, pieces in self.pieces.items()}


@dataclass(frozen=True)
class RestorePlan:
    """The plan of a job whose own folder is `folder`."""

    folder: Path
    components: Mapping[str, ComponentPlan]
    changes: Mapping[str, Change] = field(
        default_factory=dict
    )  # of every component that has state, now or in what is stored
    details: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # component -> what is different

    @property
    def is_in_place(self) -> bool:
        """True if instances can read the files as they lie there."""
        return all(component.is_in_place(self.folder) for component in self.components.values())

    @property
    def chains(self) -> FileChains:
        """The chain of each instance. The plan must be in place."""
        assert self.is_in_place, "the state is to be rewritten first"
        return {name: component.chains for name, component in self.components.items()}

    @property
    def summary(self) -> str:
        """What is rewritten, as text."""
        parts = [name for name, part in self.components.items() if not part.is_in_place(self.folder)]
        return "; ".join(f"{name} ({', '.join(self.details.get(name, ())) or 'from elsewhere'})" for name in parts)
