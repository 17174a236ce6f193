"""What a state remembers of keys is bounded by the keys that it has in use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamwork import Event, Record
from streamwork.components import Key
from streamwork.state import KeyedState, StateFiles
from streamwork.state.rows import RowFormat
from streamwork.testing import SimulatedDisk


class Visit(Event):
    user: int


class Visits(Record):
    count: int = 0


def lived(epochs: int) -> KeyedState:
    """Sessions: keys come, are used for some epochs, and are forgotten. Some leave by the file of another worker."""
    rows, files = RowFormat("visits", Visit, Key(("user",)), Visits, 256), StateFiles(SimulatedDisk(), Path("/job"))
    state: Any = rows.new_state()
    chain: Any = ()
    for epoch in range(1, epochs + 1):
        new = range(epoch * 10, epoch * 10 + 10)
        old = range((epoch - 3) * 10, (epoch - 3) * 10 + 10) if epoch > 3 else ()
        state.warm([*new, *old])
        for key in new:
            state.records[key] = Visits(1)
        state.changed.update(new)
        for key in old:
            state.forget(key)
        chain = files.save(rows, state, chain, 0, epoch, "1-a", memory=1)
        state.used(new)
    return state


@pytest.mark.proves("removed keys")
def test_keys_that_were_forgotten_are_not_remembered() -> None:
    state = lived(200)
    assert len(state._recent) <= len(state.records) + 10


@pytest.mark.proves("removal of keys with their records")
def test_where_they_are_remembered_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: as it was."""
    monkeypatch.setattr(KeyedState, "used", lambda self, keys: self._recent.update(keys))
    state = lived(200)
    assert len(state._recent) > len(state.records) + 1_000
