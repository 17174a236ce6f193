"""The policy of `on_error=Retry(...)`, alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamwork import KeyedOperator, Operator, Retry, WrongUse
from streamwork.components.operator import check_batches
from streamwork.job.retry import policy

RETRIES = st.builds(
    Retry,
    times=st.none() | st.integers(1, 30),
    within=st.none() | st.floats(0.1, 1000),
    then=st.sampled_from([None, "fail", "drop", "dead-letter"]),
    first=st.floats(0.01, 5),
    factor=st.floats(1, 10),
    most=st.floats(5, 60),
)


@given(RETRIES)
@settings(deadline=None)
def test_pauses_grow_and_end_when_they_should(retry: Retry) -> None:
    elapsed, pauses = 0.0, []
    while len(pauses) < 50 and (pause := retry.pause(len(pauses) + 1, elapsed)) is not None:
        pauses.append(pause)
        elapsed += pause
    assert all(0 < pause <= float(retry.most) for pause in pauses)
    grown = pauses if retry.times is not None and len(pauses) == retry.times else pauses[:-1]
    assert grown[:-1] == sorted(grown[:-1]), "the last one may be cut"
    assert retry.times is None or len(pauses) <= retry.times
    assert retry.within is None or elapsed <= float(retry.within) + 1e-6
    if len(pauses) < 50:
        spent = retry.within is not None and elapsed >= float(retry.within) - 1e-6
        assert len(pauses) == retry.times or spent


@given(RETRIES)
@settings(deadline=None)
def test_its_text_says_all_of_it(retry: Retry) -> None:
    again = Retry.parse(str(retry))
    names = ("limit", "times", "then", "factor")
    assert [getattr(again, name) for name in names] == [getattr(retry, name) for name in names]
    assert [again.pause(n, 0.0) for n in range(1, 9)] == [retry.pause(n, 0.0) for n in range(1, 9)]
    assert policy(str(retry)) == (retry.then, again)


@pytest.mark.parametrize(
    "wrong",
    [
        {"times": 0},
        {"times": True},
        {"within": 0},
        {"within": "x"},
        {"factor": 0.5},
        {"first": "0s"},
        {"most": "1ms"},
        {"then": "x"},
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(WrongUse, match="SW-JOB-SETTING"):
        Retry(**wrong)


def test_whole_columns_are_retried_only_where_nothing_is_kept() -> None:
    class Columns(Operator[Any, Any]):
        def apply_batch(self, *_: Any) -> None: ...

    class Keyed(KeyedOperator[Any, Any, Any]):
        def apply_batch(self, *_: Any) -> None: ...

    check_batches(Columns(), None, retries=True)
    for operator, then in ((Columns(), "drop"), (Keyed(), None)):
        with pytest.raises(WrongUse, match="SW-OPERATOR-BATCH"):
            check_batches(operator, then, retries=True)
