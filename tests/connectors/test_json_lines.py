from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sample import Payment
from source_ends import end_of
from streamwork import JobFailed, JsonLines, Refused
from streamwork.components import Event
from streamwork.connectors import json_lines


class Timed(Event):
    at: datetime


def line(card: str, amount: Any) -> str:
    return json.dumps({"card": card, "amount": amount}) + "\n"


def read(source: JsonLines[Payment], start: int = 0, end: int | None = None) -> tuple[list[Payment], int]:
    pieces = list(source.read("0", start, end_of(source, "0", start, 10**9) if end is None else end))
    return [event for piece in pieces for event in piece.events], sum(piece.dropped for piece in pieces)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "payments.jsonl"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(max_size=12), max_size=40), st.integers(1, 7), st.integers(3, 64))
def test_slices_of_any_size_give_every_line_once_in_order(
    monkeypatch: pytest.MonkeyPatch, file: Path, cards: list[str], max_events: int, block: int
) -> None:
    monkeypatch.setattr(json_lines, "BLOCK", block)
    file.write_text("".join(line(card, i) for i, card in enumerate(cards)))
    source = JsonLines(file, Payment)
    at, got = 0, []
    while (end := end_of(source, "0", at, max_events)) > at:
        events, _ = read(source, at, end)
        assert len(events) <= max_events
        got, at = got + events, end
    assert got == [Payment(card, i) for i, card in enumerate(cards)]
    assert at == file.stat().st_size


def test_a_line_that_is_still_being_written_waits(file: Path) -> None:
    source = JsonLines(file, Payment)
    whole = line("a", 1)
    file.write_text(whole + line("b", 2)[:-4])
    assert end_of(source, "0", 0, 100) == len(whole)
    file.write_text(whole + line("b", 2)[:-1])  # all of it but the newline
    assert read(source)[0] == [Payment("a", 1), Payment("b", 2)]
    end = end_of(source, "0", 0, 100)
    file.write_text(whole + line("b", 2) + line("c", 3))
    assert read(source, end)[0] == [Payment("c", 3)]


def test_empty_lines_and_unknown_fields_are_passed_over(file: Path) -> None:
    file.write_text("\n" + line("a", 1) + "\n\r\n" + '{"card": "b", "amount": 2, "more": []}\n')
    assert read(JsonLines(file, Payment)) == ([Payment("a", 1), Payment("b", 2)], 0)


BAD = [
    ('{"card": "x", "amount": 1.5}', "amount"),
    ('{"card": "x", "amount": true}', "amount"),
    ('{"card": "x", "amount": 9223372036854775808}', "amount"),
    ('{"card": null, "amount": 1}', "card"),
    ('{"card": "x"}', "amount"),
    ("[1]", None),
    ("{", None),
    ("\udcff", None),
]


@pytest.mark.parametrize(("bad", "field"), BAD)
def test_a_bad_line_names_file_line_and_field(file: Path, bad: str, field: str | None) -> None:
    good = "".join(line("a", i) for i in range(3))
    file.write_bytes((good + bad + "\n" + line("b", 1)).encode(errors="surrogateescape"))
    with pytest.raises(JobFailed) as caught:
        read(JsonLines(file, Payment))
    assert caught.value.code == "SW-SOURCE-BAD-EVENT"
    assert f"{file} line 4" in caught.value.cause
    if field:
        assert f"field '{field}'" in caught.value.cause
    with pytest.raises(JobFailed, match="line 4"):  # the number is that in the file, not in the slice
        read(JsonLines(file, Payment), start=len(line("a", 0)))


@pytest.mark.parametrize(("bad", "field"), BAD)
def test_bad_lines_are_dropped_and_counted_if_asked(file: Path, bad: str, field: str | None) -> None:
    file.write_bytes((line("a", 1) + bad + "\n" + line("b", 2)).encode(errors="surrogateescape"))
    assert read(JsonLines(file, Payment, on_error="drop")) == ([Payment("a", 1), Payment("b", 2)], 1)


def test_a_naive_time_is_refused(file: Path) -> None:
    file.write_text('{"at": "2026-01-01T00:00:00Z"}\n{"at": "2026-01-01T00:00:00"}\n')
    with pytest.raises(JobFailed, match="line 2, field 'at': expected datetime with a time zone"):
        list(JsonLines(file, Timed).read("0", 0, file.stat().st_size))


def test_a_missing_file(file: Path) -> None:
    with pytest.raises(JobFailed, match="SW-SOURCE-MISSING"):
        end_of(JsonLines(file, Payment), "0", 0, 1)


def test_a_file_that_lost_what_was_read(file: Path) -> None:
    file.write_text(line("a", 1))
    with pytest.raises(Refused, match="SW-SOURCE-SHRUNK"):
        end_of(JsonLines(file, Payment), "0", 1000, 1)
