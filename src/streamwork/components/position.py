"""Position: how far a job, or a sink, has read everything that enters the job.

JSON, in manifests, plans and ledgers: ``{"SOURCE/PARTITION": offset, "inbox": number, "clock": microseconds}``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, overload

import msgspec

from streamwork.components.times import from_microseconds

CLOCK = "clock"
"""The component that counts processing time: microseconds since 1970."""
INBOX = "inbox"
"""The component that counts the files of the inbox."""


class Position(Mapping[str, int]):
    """A frozen vector of offsets, by SOURCE/PARTITION, `inbox` and `clock`. A missing component is 0.

    Positions are compared component by component, so two of them may be incomparable. `==` ignores components that are 0, and
    compares with any mapping. Iteration gives the components that were set, in order of their names.

    Raises ValueError for a name that is no component, and for an offset that is not a whole number from 0 on.
    """

    __slots__ = ("_offsets",)
    _offsets: dict[str, int]

    def __init__(self, offsets: Mapping[str, int] | None = None) -> None:
        for name, offset in (offsets or {}).items():
            source, slash, partition = name.partition("/") if isinstance(name, str) else ("", "", "")
            if name not in (CLOCK, INBOX) and not (source and slash and partition):
                raise ValueError(f"{name!r} is no component of a position")
            if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
                raise ValueError(f"{offset!r} is no offset of {name}")
        object.__setattr__(self, "_offsets", dict(sorted((offsets or {}).items())))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a position is frozen")

    def __reduce__(self) -> tuple[type[Position], tuple[dict[str, int]]]:
        return Position, (self._offsets,)

    # ---- components -----------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> int:
        """The offset of a component; 0 if it is missing."""
        return self._offsets.get(name, 0)

    @overload
    def get(self, name: str, default: int = 0, /) -> int: ...
    @overload
    def get(self, name: str, default: Any, /) -> Any: ...
    def get(self, name: str, default: Any = 0, /) -> Any:
        """The offset of a component; `default` if it is missing."""
        return self._offsets.get(name, default)

    def __contains__(self, name: object) -> bool:
        return name in self._offsets

    def __iter__(self) -> Iterator[str]:
        return iter(self._offsets)

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def sources(self) -> set[str]:
        """The ids of the sources that it has components of."""
        return {name.partition("/")[0] for name in self._offsets if "/" in name}

    def of(self, source: str) -> dict[str, int]:
        """The offsets of one source, by partition."""
        names = (name.partition("/") for name in self._offsets)
        return {part: self._offsets[f"{source}/{part}"] for owner, slash, part in names if slash and owner == source}

    def moved(self, offsets: Mapping[str, int]) -> Position:
        """This position with these components instead of its own."""
        return Position({**self._offsets, **offsets})

    def without(self, sources: Collection[str]) -> Position:
        """This position without the components of these sources."""
        return Position({name: at for name, at in self._offsets.items() if name.partition("/")[0] not in sources})

    # ---- order ----------------------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        return self._significant() == {name: offset for name, offset in other.items() if offset != 0}

    def __hash__(self) -> int:
        return hash(frozenset(self._significant().items()))

    def reaches(self, other: Position) -> bool:
        """True if this is at or beyond `other` in every component."""
        return all(self[name] >= offset for name, offset in other.items())

    def beyond(self, other: Position) -> bool:
        """True if this reaches `other` and differs from it."""
        return self.reaches(other) and not other.reaches(self)

    def furthest(self, other: Position) -> Position:
        """The larger offset in each component: the least position that reaches both."""
        return Position({name: max(self[name], other[name]) for name in {*self, *other}})

    def _significant(self) -> dict[str, int]:
        return {name: offset for name, offset in self._offsets.items() if offset}

    # ---- text -----------------------------------------------------------------------------------------------------

    def __str__(self) -> str:
        """``lines/0 at 1,200, clock at 2026-01-31 12:00:00 UTC``."""
        return ", ".join(f"{name} at {_readable(name, at)}" for name, at in self._offsets.items()) or "the beginning"

    def __repr__(self) -> str:
        return f"Position({self._offsets!r})"

    def to_json(self) -> str:
        """The position as it stands in ledgers. The same components give the same text."""
        return msgspec.json.encode(self._offsets).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Position:
        """The position that `to_json` wrote. Raises ValueError (a `msgspec.ValidationError` is one) for anything else."""
        return cls(msgspec.json.decode(text, type=dict[str, int]))


def _readable(name: str, at: int) -> str:
    if name != CLOCK:
        return f"{at:,}"
    try:
        moment = from_microseconds(at)
    except OverflowError:
        return f"{at:,}"
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def plain(value: object) -> object:
    """What msgspec encodes in the place of a position: its `enc_hook`."""
    if isinstance(value, Position):
        return dict(value)
    raise NotImplementedError(f"a {type(value).__name__} cannot be encoded")


def from_plain(kind: type[Any], value: object) -> object:
    """The position that `plain` stands for: msgspec's `dec_hook`."""
    if kind is Position:
        return Position(msgspec.convert(value, dict[str, int]))
    raise NotImplementedError(f"a {kind.__name__} cannot be decoded")
