"""A manifest names each state file once, also when epoch follows epoch and the state does not change."""

from __future__ import annotations

from typing import Any

import pytest

from streamwork import Event, Job, KeyedOperator, ListSource, Record, SqliteSink, StatefulOperator
from streamwork.epoch import Manifest, pruning
from streamwork.epoch.retention import kept
from streamwork.state import compaction, is_snapshot
from streamwork.testing import run

EPOCHS = 12


class Seen(Event):
    key: str
    changes: bool = False


class Count(Record):
    seen: int = 0


class PerInstance(StatefulOperator[Seen, Count, Seen]):
    def setup_instance(self, instance: object, state: Count | None) -> None:
        self.state = state or Count()

    def apply(self, event: Seen, collector: Any) -> None:
        self.state.seen += event.changes
        collector.emit(event)

    def get_state(self) -> Count:
        return self.state


class PerKey(KeyedOperator[Seen, Count, Seen]):
    def apply(self, event: Seen, state: Count, collector: Any) -> None:
        state.seen += 1
        collector.emit(event)


@pytest.mark.parametrize("keyed", [False, True], ids=["instance", "keyed"])
def test_state_that_does_not_change_is_named_once(keyed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "LONGEST_CHAIN", 2)  # so that the keyed state has a snapshot soon
    manifests: list[Manifest] = []

    def watched(line: list[Manifest], *rest: Any) -> list[Manifest]:
        if line[0].epoch:  # a start prunes, too, and begins with the empty manifest
            manifests.append(line[0])
        return kept(line, *rest)

    monkeypatch.setattr(pruning, "kept", watched)
    job = Job("idle")
    seen = job.source(ListSource([], Seen), id="seen")
    if keyed:
        changing = seen.filter(lambda event: event.changes)
        seen = changing.apply(PerKey(), key="key", id="state")
    else:
        seen = seen.apply(PerInstance(), id="state")
    seen.sink(SqliteSink("never-opened.db", "t"), id="out")
    events = [*(Seen("a", changes=True) for _ in range(4)), *(Seen("a") for _ in range(EPOCHS))]
    result = run(job, {"seen": events}, epoch_events=1)
    assert len(result.checkpoints) == len(events) == len({manifest.epoch for manifest in manifests})
    chains = [chain for manifest in manifests for chain in manifest.components["state"].values()]
    assert any(is_snapshot(ref) for chain in chains for ref in chain), "nothing proven without a snapshot"
    for chain in chains:
        assert len({ref.path for ref in chain}) == len(chain), [ref.path for ref in chain]
