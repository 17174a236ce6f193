"""CLOSED, watched over the whole test run: every checkpoint that a test completes in this process accounts for every event."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from streamwork.delivery.counts import not_closed
from streamwork.epoch import Manifest, Store

violations: list[tuple[int, Mapping[str, Mapping[str, int]]]] = []
"""(epoch, component -> what it counted)"""


@contextmanager
def watched() -> Iterator[None]:
    """While it lasts, what does not add up is noted, and goes on: a test that expects a crash must not take it for one."""
    write = Store.write_completed

    def write_completed(store: Store, manifest: Manifest) -> None:
        if wrong := not_closed(manifest.counters):
            violations.append((manifest.epoch, wrong))
        write(store, manifest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "write_completed", write_completed)
        yield
