"""Settings of a process in live mode, and that they end with the block."""

from __future__ import annotations

import gc
import sys

from streamwork.world.pauses import SWITCH_SECONDS, keep_loaded, short_pauses


def test_the_settings_of_the_process_end_with_the_block() -> None:
    before = sys.getswitchinterval(), gc.get_freeze_count()
    with short_pauses():
        keep_loaded()
        assert sys.getswitchinterval() < before[0] and abs(sys.getswitchinterval() - SWITCH_SECONDS) < 1e-6
        assert gc.get_freeze_count() > 1_000, "what is loaded is not walked through"
    assert (sys.getswitchinterval(), gc.get_freeze_count()) == before
