"""Snapshots that are ready before the next epoch is prepared. Else it depends on the machine how many epochs they take."""

from __future__ import annotations

import pytest

from streamwork.epoch import Manifest
from streamwork.epoch.compactor import Compactor


def wait_for_snapshots(patch: pytest.MonkeyPatch) -> None:
    begin = Compactor.begin

    def wait(self: Compactor, manifest: Manifest) -> None:
        begin(self, manifest)
        if self._under_way is not None:
            self._under_way.result()

    patch.setattr(Compactor, "begin", wait)
