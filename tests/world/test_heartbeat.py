"""The sign of life: it comes while everything else is busy, survives a bad disk, and ends when it is to."""

from __future__ import annotations

import threading
import time

from streamwork.world.heartbeat import Heartbeat


def test_it_beats_while_the_main_thread_is_busy_and_then_no_more() -> None:
    beats: list[float] = []
    with Heartbeat(lambda: beats.append(time.monotonic()), every=0.02):
        until = time.monotonic() + 60
        while len(beats) < 5 and time.monotonic() < until:
            sum(range(1000))
    assert len(beats) >= 5
    count = len(beats)
    time.sleep(0.1)
    assert len(beats) == count
    assert not [thread for thread in threading.enumerate() if thread.name == "streamwork-heartbeat"]


def test_a_disk_that_fails_costs_beats_but_not_the_heart() -> None:
    tried: list[int] = []

    def beat() -> None:
        tried.append(1)
        if len(tried) < 3:
            raise OSError(28, "No space left on device")

    with Heartbeat(beat, every=0.01):
        until = time.monotonic() + 60
        while len(tried) < 5 and time.monotonic() < until:
            time.sleep(0.01)
    assert len(tried) >= 5


def test_a_long_lease_does_not_hold_up_the_end() -> None:
    began = time.monotonic()
    with Heartbeat(lambda: None, every=3600):
        pass
    assert time.monotonic() - began < 600
