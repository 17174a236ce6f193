"""The progress of event time: the minimum over inputs, against a plain computation; idleness; resuming."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamwork.flow.lineage import NEVER
from streamwork.flow.progress import Progress, rises

INPUTS = ("in/0", "in/1", "2.0>3.0")


def progress(**known: int | None) -> Progress:
    made = Progress()
    made.expect(INPUTS)
    return made


@given(st.lists(st.tuples(st.sampled_from(INPUTS), st.integers(0, 50)), max_size=40))
def test_the_minimum_is_that_over_all_inputs(steps: list[tuple[str, int]]) -> None:
    made, known = progress(), dict[str, int]()
    for name, time in steps:
        if time <= known.get(name, NEVER):
            continue
        known[name] = time
        found = made.advance(name, np.array([time]))
        wanted = min(known.values()) if len(known) == len(INPUTS) else None
        assert made.minimum == wanted == (None if found is None else found[-1])
        assert made.of(name) == time
    assert made.partitions("in") == {name[3:]: at for name, at in known.items() if name.startswith("in/")}


@given(st.lists(st.integers(0, 30), min_size=1, max_size=30), st.lists(st.integers(0, 30), max_size=5))
def test_many_advances_at_once_equal_one_after_another(times: list[int], others: list[int]) -> None:
    one, many = progress(), progress()
    for made in (one, many):
        for number, at in enumerate(others[:2]):
            made.advance(INPUTS[1 + number], np.array([at]))
    before, places = rises(np.array(times), None)
    raised = np.array(times)[places]
    assert before.tolist() == [max(times[:n], default=NEVER) for n in range(len(times))]
    found = many.advance(INPUTS[0], raised)
    singly = [one.advance(INPUTS[0], np.array([at])) for at in raised.tolist()]
    assert (None if found is None else found.tolist()) == (
        None if singly[-1] is None else [int(some[-1]) for some in singly if some is not None]
    )


def test_an_idle_input_does_not_hold_event_time_back_and_does_not_turn_it_back() -> None:
    made = progress()
    made.advance("in/0", np.array([10]))
    made.advance("in/1", np.array([20]))
    assert made.minimum is None, "one input has brought nothing"
    assert made.mark_idle("2.0>3.0") == 10
    assert made.mark_idle("in/0") == 20
    made.advance("in/0", np.array([12]))
    assert made.minimum == 20, "it wakes up behind the minimum"
    made.advance("2.0>3.0", np.array([40]))
    made.advance("in/1", np.array([30]))
    assert made.minimum == 20, "now it holds event time back again"
    made.advance("in/0", np.array([50]))
    assert made.minimum == 30


@pytest.mark.parametrize(
    ("stored", "minimum"), [({"in/0": 5, "in/1": 3}, 3), ({"in/0": 5, "in/1": None}, None), ({}, None)]
)
def test_it_resumes_where_a_checkpoint_has_stored_it(stored: Any, minimum: int | None) -> None:
    made = Progress()
    made.resume(stored)
    assert made.minimum == minimum
    made.expect(["a"])
    assert made.minimum is None
