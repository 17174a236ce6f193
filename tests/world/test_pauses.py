"""Settings of a process in live mode, and that they end with the block."""

from __future__ import annotations

import gc
import sys

from streamwork.world.pauses import SWITCH_SECONDS, keep_loaded, short_pauses, short_turns


def test_the_settings_of_the_process_end_with_the_block() -> None:
    sys.setswitchinterval(0.005)
    before = sys.getswitchinterval(), gc.get_freeze_count()
    with short_pauses():
        keep_loaded()
        assert sys.getswitchinterval() < before[0] and abs(sys.getswitchinterval() - SWITCH_SECONDS) < 1e-6
        assert gc.get_freeze_count() > 1_000, "what is loaded is not walked through"
    assert (sys.getswitchinterval(), gc.get_freeze_count()) == before


def test_the_last_of_several_blocks_restores_the_setting() -> None:
    """Servers in threads may end in another order than they began in."""
    before = sys.getswitchinterval()
    some, others = short_turns(), short_turns()
    some.__enter__()
    others.__enter__()
    some.__exit__(None, None, None)
    assert sys.getswitchinterval() <= SWITCH_SECONDS + 1e-9
    others.__exit__(None, None, None)
    assert sys.getswitchinterval() == before
