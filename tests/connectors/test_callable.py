from __future__ import annotations

import re
from typing import Any

import pytest

from connectors.kits import batch, seen
from sample import Seen
from streamwork import CallableSink, JobFailed, Refused, RowsRejected
from streamwork.components import SinkKind, WriteStopped


def opened(function: Any, **options: Any) -> Any:
    sink: Any = CallableSink(function, **options)
    sink.open(Seen)
    return sink


def test_every_event_is_given_to_the_function() -> None:
    got: list[Any] = []
    sink = opened(got.append)
    assert sink.kind is SinkKind.APPEND and not sink.kind.keeps_ledger
    sink.write(batch(seen(1, 2)))
    sink.write(batch(seen(3)))
    assert got == seen(1, 2, 3)


def test_or_lists_of_them_but_no_empty_ones() -> None:
    got: list[Any] = []
    sink = opened(got.append, lists=True)
    sink.write(batch(seen(1, 2)))
    sink.write(batch(seen(3)))
    sink.write(batch(seen(3)).slice(0, 0))
    assert got == [seen(1, 2), seen(3)]


def breaks(event: Any) -> None:
    if event == seen(2)[0] or event == seen(1, 2, 3):
        raise ValueError("no good")


def rejects(event: Any) -> None:
    raise RowsRejected("not wanted")


def refuses(event: Any) -> None:
    raise Refused("SW-X", "a", "b")


@pytest.mark.parametrize(
    ("function", "place", "error"),
    [
        (breaks, 1, "SW-SINK-FUNCTION: .*breaks raised ValueError: no good, given Seen"),
        (rejects, 0, "not wanted"),
        (refuses, 0, "SW-X"),
    ],
)
def test_what_the_function_raises_stops_at_its_event(function: Any, place: int, error: str) -> None:
    with pytest.raises(WriteStopped) as stopped:
        opened(function).write(batch(seen(1, 2, 3)))
    assert stopped.value.written == place
    assert re.search(error, str(stopped.value.error))


def test_what_it_raises_for_a_list() -> None:
    with pytest.raises(JobFailed, match="SW-SINK-FUNCTION"):
        opened(breaks, lists=True).write(batch(seen(1, 2, 3)))
    with pytest.raises(RowsRejected):
        opened(rejects, lists=True).write(batch(seen(1)))
