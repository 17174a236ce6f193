"""What waits in a channel is processed within a quarter of a second, and a receiver does not wait for its sender.

A sender that fills the channel whenever it has room, and a receiver with a rate, are simulated. Credit arrives late and in steps.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from streamwork.flow.drain import FIRST, LEAST, SECONDS, Drain
from streamwork.flow.gauge import Bound, Gauge
from streamwork.job.backpressure import Backpressure

BOUND = 65_536
ROUND = 0.01


class Simulated:
    def __init__(self, adapts: bool = True) -> None:
        self.now = 0.0
        self.gauge = Gauge(Bound(BOUND), Backpressure.UPSTREAM, lambda: self.now, Drain() if adapts else None)
        self.waiting = self.unsaid = 0  # at the receiver; taken, and not yet known to the sender
        self.owed = 0.0
        self.processed = 0

    def run(self, rate: float, seconds: float) -> float:
        """The most that waited, in seconds of the receiver's work, in the second half of the time."""
        until, most, begun = self.now + seconds, 0.0, self.now
        piece = max(8, int(rate * ROUND / 16))
        while self.now < until:
            for _ in range(10_000):
                if self.gauge.stops_sender:
                    break
                self.gauge.add(piece, 0)
                self.waiting += piece
            self.now += ROUND
            self.owed += rate * ROUND
            taken = min(int(self.owed), self.waiting)
            self.owed = min(self.owed - taken, rate * ROUND + 1)
            self.waiting -= taken
            self.unsaid += taken
            self.processed += taken
            if self.unsaid >= 256 or not self.waiting:
                said, self.unsaid = self.unsaid, 0
                if said:
                    self.gauge.take(said, 0)
            if self.now > begun + seconds / 2:
                most = max(most, self.waiting / rate)
        return most


@settings(max_examples=20)
@given(rate=st.floats(200.0, 5e6))
def test_what_waits_is_processed_in_time_and_the_receiver_is_busy(rate: float) -> None:
    one = Simulated()
    one.run(rate, 2 * FIRST / rate + 3.0)
    assert one.run(rate, 3.0) <= 2 * SECONDS + LEAST / rate
    before = one.processed
    one.run(rate, 2.0)
    assert one.processed - before >= 0.85 * min(rate, BOUND / (2 * ROUND)) * 2.0


@settings(max_examples=20)
@given(first=st.floats(1e3, 1e6), then=st.floats(1e3, 1e6))
def test_it_follows_a_receiver_whose_rate_changes(first: float, then: float) -> None:
    one = Simulated()
    one.run(first, 3.0)
    one.run(then, 2 * BOUND / then + 3.0)  # what has been sent by then is processed first
    assert one.run(then, 3.0) <= 2 * SECONDS + LEAST / then


def test_control_a_bound_in_events_alone_holds_a_slow_receiver_for_half_a_minute() -> None:
    assert Simulated(adapts=False).run(2_000.0, 2.0) > 30.0


def test_a_receiver_that_is_hardly_used_keeps_its_number() -> None:
    drain = Drain()
    for number in range(1_000):
        drain.waits(float(number))
        drain.took(1, 0, number + 0.001)
    assert drain.events == Drain().events


def test_a_clock_that_is_set_back_does_no_harm() -> None:
    drain = Drain()
    drain.waits(100.0)
    drain.took(10, 5, 50.0)
    drain.took(5, 0, 50.2)
    assert drain.events >= LEAST
