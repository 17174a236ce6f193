"""`Version`: the state of all components at one manifest. An answer is made of one version, also over several components.

A component is read when it is first requested, from the same component of an older version if there is one.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from streamwork.errors import WrongUse
from streamwork.query.component import Chains, ComponentState, Files
from streamwork.query.following import Known


@dataclass
class Version:
    """`origin`: states of an older version, or the same state rebuilt."""

    epoch: int
    fence: int
    sha256: str
    written: float
    files: Files
    chains: Mapping[str, Chains]
    known: Mapping[str, Known]
    origin: dict[str, ComponentState] = field(default_factory=dict)
    loaded: dict[str, ComponentState] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def checkpoint(self) -> int:
        """The newest checkpoint that is in it."""
        return self.epoch

    def component(self, name: str) -> ComponentState:
        """Refuses a name that no component with state has, and files that are damaged or gone (SW-STATE-DAMAGED)."""
        if (found := self.loaded.get(name)) is not None:
            return found
        if name not in self.known:
            raise unknown(name, self.known)
        with self._lock:
            if name not in self.loaded:
                self.loaded[name] = self._read(name)
                self.origin.pop(name, None)
            return self.loaded[name]

    def load(self) -> None:
        """Read every component."""
        for name in self.known:
            self.component(name)

    def handed_on(self) -> dict[str, ComponentState]:
        """What the next version may begin with."""
        return {**self.origin, **self.loaded}

    def _read(self, name: str) -> ComponentState:
        known, chains = self.known[name], self.chains.get(name, {})
        older = self.origin.get(name)
        if older is not None and older.shape == known.shape and older.defaults.keys() == known.defaults.keys():
            return older.advanced(self.files, chains, self.epoch)
        return ComponentState.read(self.files, known.shape, known.defaults, chains, self.epoch)


def unknown(name: str, known: Mapping[str, object]) -> WrongUse:
    return WrongUse(
        "SW-QUERY-COMPONENT",
        f"there is no component with state named {name[:80]!r}",
        f"use one of: {', '.join(known)}" if known else "this job has no component with state",
    )
