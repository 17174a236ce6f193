"""A look at the partitions of a source takes a tenth of a second, whatever an event costs and however many partitions there are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamwork.engine.look import FIRST, SECONDS, Look

MOST = 8_192


def looked(look: Look, partitions: int, per_event: float, full: int, looks: int = 60) -> float:
    """Seconds of the last look, where `full` partitions have a backlog."""
    seconds = 0.0
    for _ in range(looks):
        seconds = per_event * full * look.share(partitions, MOST)
        look.took(seconds, full > 0, partitions * MOST)
    return seconds


@given(partitions=st.integers(1, 64), per_event=st.floats(1e-7, 1e-2), data=st.data(), before=st.floats(1e-7, 1e-2))
def test_a_look_takes_about_a_tenth_of_a_second(
    partitions: int, per_event: float, data: st.DataObject, before: float
) -> None:
    full = data.draw(st.integers(1, partitions))
    look = Look()
    looked(look, partitions, before, full)
    seconds, share = looked(look, partitions, per_event, full), look.share(partitions, MOST)
    assert seconds <= 1.1 * SECONDS or share == 1
    assert seconds >= SECONDS / 4 or share == MOST or share * full * per_event >= SECONDS / 4 - full * per_event


def test_one_long_look_is_followed_by_short_ones() -> None:
    look = Look()
    look.took(100 * SECONDS, True, MOST)
    assert FIRST / 20 <= look.share(1, MOST) <= FIRST / 5
    assert looked(look, 1, 1e-6, 1) > 0 and look.share(1, MOST) == MOST


def test_an_idle_source_keeps_its_size() -> None:
    look = Look()
    for _ in range(1_000):
        look.took(0.0, False, MOST)
    assert look.share(1, MOST) == FIRST
