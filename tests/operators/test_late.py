"""Which events are late, and what channel `late` says about them."""

import numpy as np
import pyarrow as pa
import pytest

from streamwork import Event, WrongUse
from streamwork.components.columns import to_structs
from streamwork.components.schema import arrow_schema
from streamwork.components.table_operator import NEVER
from streamwork.operators.late import judge, late_type


class Click(Event):
    user: str


def judged(chances, watermarks, minimum, inclusive=True):
    return judge(np.array(chances, np.int64), np.array(watermarks, np.int64), minimum, inclusive)


def test_an_event_is_late_by_the_watermark_of_its_partition():
    assert judged([10, 10, 10], [9, 10, 11], NEVER).late.tolist() == [False, True, True]
    assert judged([10, 10, 10], [9, 10, 11], NEVER, inclusive=False).late.tolist() == [False, False, True]
    assert judged([10], [NEVER], NEVER).late.tolist() == [False]


def test_an_event_without_a_partition_is_late_by_the_minimum():
    found = judged([10, 10], [NEVER, NEVER], 10)
    assert (found.late.tolist(), found.idle.tolist()) == ([True, True], [False, False])


def test_a_partition_that_was_idle_is_the_reason():
    found = judged([10, 10, 10], [5, 12, 5], 11)
    assert (found.late.tolist(), found.idle.tolist()) == ([True, True, True], [True, False, True])


def test_a_late_event_has_its_fields_and_how_late_it_was():
    kind = late_type(Click)
    clicks = pa.RecordBatch.from_arrays([pa.array(["a", "b", "c"])], schema=arrow_schema(Click))
    found = judged([1_000_000] * 3, [3_500_000, 0, 0], 2_000_000).batch(kind, clicks)
    assert to_structs(kind, found) == [kind("a", 2.5, "late"), kind("b", 1.0, "idle"), kind("c", 1.0, "idle")]


def test_a_field_of_that_name_is_refused():
    class Strange(Event):
        late_by: int

    with pytest.raises(WrongUse, match="SW-TYPE-FIELD.*late_by"):
        late_type(Strange)
