"""`RestorePlan`: what each instance of each component is restored from.

    component -> instance -> pieces, each some key groups of a chain of files below some folder; and the cast of their rows

A restart reads chains of the job's own folder, whole and as they are: then the plan is in place, and instances read its `chains`.
Any other plan (files of a savepoint, other numbers of instances, other columns) is carried out by a start before the first epoch,
which writes the state anew (`epoch.recovery.rewriting`). So a chain never mixes layouts or columns.
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
    CHANGED = "changed"  # its parallelism or the columns of its state
    GONE = "gone"


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

    @classmethod
    def as_stored(cls, folder: Path, chains: Mapping[str, tuple[FileRef, ...]]) -> ComponentPlan:
        """Each instance goes on with the chain of that number."""
        return cls({instance: (Piece(folder, chain),) for instance, chain in chains.items()})

    def is_in_place(self, folder: Path) -> bool:
        """True if each instance goes on with one chain of that folder, whole and as it is."""
        return all(
            len(pieces) == 1 and pieces[0].groups is None and pieces[0].folder == folder
            for pieces in self.pieces.values()
        )


@dataclass(frozen=True)
class RestorePlan:
    """The plan of a job whose own folder is `folder`."""

    folder: Path
    components: Mapping[str, ComponentPlan]
    changes: Mapping[str, Change] = field(
        default_factory=dict
    )  # of every component that has state, now or in what is stored

    @property
    def is_in_place(self) -> bool:
        """True if instances can read the files as they lie there."""
        return all(component.is_in_place(self.folder) for component in self.components.values())

    @property
    def chains(self) -> FileChains:
        """The chain of each instance. The plan must be in place."""
        assert self.is_in_place, "the state is to be written anew first"
        return {
            name: {instance: pieces[0].chain for instance, pieces in component.pieces.items()}
            for name, component in self.components.items()
        }
