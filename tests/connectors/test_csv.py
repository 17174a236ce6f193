from __future__ import annotations

import csv
import io
import math
import pickle
import sqlite3
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sample import Payment, Summing, expected_journal, run_job
from source_ends import end_of
from streamwork import Csv, Digits, Event, Job, JobFailed, Refused, SqliteSink, WrongUse
from streamwork.connectors import csv_lines


class Note(Event):
    text: str
    number: int


class Everything(Event):
    text: str
    whole: int
    real: float
    flag: bool
    raw: bytes
    when: datetime
    day: date
    price: Annotated[Decimal, Digits(12, 2)]
    maybe_text: str | None
    maybe_whole: int | None
    maybe_when: datetime | None


def read(source: Csv[Any], start: int = 0, end: int | None = None) -> tuple[list[Any], int]:
    pieces = list(source.read("0", start, end_of(source, "0", start, 10**9) if end is None else end))
    return [event for piece in pieces for event in piece.events], sum(piece.dropped for piece in pieces)


def in_slices(source: Csv[Any], max_events: int) -> tuple[list[Any], int, int]:
    at, got, dropped = 0, [], 0
    while (end := end_of(source, "0", at, max_events)) > at:
        events, bad = read(source, at, end)
        assert len(events) + bad <= max_events
        got, dropped, at = got + events, dropped + bad, end
    return got, dropped, at


def written(rows: Sequence[Sequence[Any]], **options: Any) -> bytes:
    out = io.StringIO()
    csv.writer(out, **options).writerows(rows)
    return out.getvalue().encode()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "data.csv"


small = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
texts = st.text(st.sampled_from('ab",;\n\r \U0001f600ä') | st.characters(exclude_categories=["Cs"]), max_size=8)


@small
@given(
    notes=st.lists(st.builds(Note, texts, st.integers(-9, 9)), max_size=20),
    max_events=st.integers(1, 7),
    block=st.integers(1, 40),
    delimiter=st.sampled_from(",;\t|"),
    ending=st.sampled_from(["\r\n", "\n"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    bom=st.booleans(),
)
def test_slices_of_any_size_give_what_the_csv_module_wrote(
    monkeypatch: pytest.MonkeyPatch,
    file: Path,
    notes: list[Note],
    max_events: int,
    block: int,
    delimiter: str,
    ending: str,
    quoting: Any,
    bom: bool,
) -> None:
    # The csv module leaves a lone carriage return unquoted, where it looks like a part of the line's end.
    quoting = csv.QUOTE_ALL if any("\r" in note.text for note in notes) else quoting
    monkeypatch.setattr(csv_lines, "BLOCK", block)
    rows = [["more", "number", "text"], *(["x", n.number, n.text] for n in notes)]
    data = written(rows, delimiter=delimiter, lineterminator=ending, quoting=quoting)
    file.write_bytes((b"\xef\xbb\xbf" if bom else b"") + data)
    source = Csv(file, Note, delimiter=delimiter)
    got, dropped, at = in_slices(source, max_events)
    assert (got, dropped) == (notes, 0)
    assert at == (file.stat().st_size if notes else 0)


@small
@given(
    data=st.lists(st.sampled_from([b'"', b",", b"\n", b"\r\n", b"a", b"1", b"\xff", b"x,1\n"]), max_size=40),
    limit=st.integers(4, 30),
    sizes=st.tuples(st.integers(1, 5), st.integers(1, 60)),
    bounded=st.booleans(),
)
def test_whatever_the_bytes_are_slices_agree_with_reading_at_once(
    monkeypatch: pytest.MonkeyPatch,
    file: Path,
    data: list[bytes],
    limit: int,
    sizes: tuple[int, int],
    bounded: bool,
) -> None:
    monkeypatch.setattr(csv_lines, "QUOTED_LIMIT", limit)
    file.write_bytes(b"".join(data))
    source = Csv(file, Note, on_error="drop", header=["text", "number"], bounded=bounded)
    whole = read(source)
    monkeypatch.setattr(csv_lines, "BLOCK", sizes[1])
    got, dropped, at = in_slices(source, sizes[0])
    assert (got, dropped) == whole
    if bounded:
        assert at == file.stat().st_size, "nothing is left behind"


times = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))
whole = st.integers(-(2**63), 2**63 - 1)
everything = st.builds(
    Everything,
    text=texts,
    whole=whole,
    real=st.floats(allow_nan=False),
    flag=st.booleans(),
    raw=st.binary(max_size=8),
    when=times,
    day=st.dates(),
    price=st.decimals("-9999999999", "9999999999", places=2),
    maybe_text=st.none() | texts.filter(bool),
    maybe_whole=st.none() | whole,
    maybe_when=st.none() | times,
)


def _cell(value: Any) -> Any:
    import base64

    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if isinstance(value, datetime) else value


@small
@given(st.lists(everything, max_size=5))
def test_every_type_comes_back_as_it_was_written(file: Path, events: list[Everything]) -> None:
    names = Everything.__struct_fields__
    file.write_bytes(written([names, *([_cell(getattr(e, name)) for name in names] for e in events)]))
    assert read(Csv(file, Everything)) == (events, 0)


def test_how_values_may_be_written(file: Path) -> None:
    class Row(Event):
        flag: bool
        real: float
        when: datetime
        price: Annotated[Decimal, Digits(5, 2)]
        maybe: str | None

    file.write_text(
        "flag,real,when,price,maybe\nTRUE,1e3,2026-01-01T01:00:00+01:00,1.5,\nfalse,-inf,2026-01-01T00:00Z,7,a\n"
    )
    at = datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))
    assert read(Csv(file, Row))[0] == [
        Row(True, 1000.0, at, Decimal("1.50"), None),
        Row(False, -math.inf, at, Decimal(7), "a"),
    ]


BAD = {
    "whole": ["", "1.0", "1_000", " 1", "٣", "9223372036854775808", "true", "1" * 5000],
    "real": ["", "1,5", "1e999", "1_0.0", "infinity", "0x1"],
    "flag": ["", "1", "yes", "tRUE"],
    "raw": ["a", "%%%%"],
    "when": ["", "2026-01-01", "2026-01-01T00:00:00", "2026-01-01T00:00:00.1234567Z", "yesterday"],
    "day": ["", "2026-02-30", "2026-01-01T00:00:00Z"],
    "price": ["", "1.505", "12345678901.00", "NaN", "1_0", "1E+99999999"],
    "maybe_whole": ["x"],
}
GOOD = {
    "text": "a", "whole": "1", "real": "1.5", "flag": "true", "raw": "", "when": "2026-01-01T00:00:00Z", "day": "2026-01-01",
    "price": "1.50", "maybe_text": "", "maybe_whole": "", "maybe_when": "",
}  # fmt: skip


@pytest.mark.parametrize(("field", "bad"), [(field, bad) for field, values in BAD.items() for bad in values])
def test_a_bad_value_names_file_line_and_field(file: Path, field: str, bad: str) -> None:
    culprit = {**GOOD, "text": "two\nlines", field: bad}
    rows = [list(GOOD), ["three\nlines\n", *list(GOOD.values())[1:]], list(culprit.values()), list(GOOD.values())]
    file.write_bytes(written(rows, lineterminator="\n"))
    with pytest.raises(JobFailed) as caught:
        read(Csv(file, Everything))
    assert caught.value.code == "SW-SOURCE-BAD-EVENT"
    assert f"{file} line 5, field '{field}': expected" in caught.value.cause
    events, dropped = read(Csv(file, Everything, on_error="drop"))
    assert ([e.text for e in events], dropped) == (["three\nlines\n", "a"], 1)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"x", "expected 2 columns, got 1"),
        (b"x,1,2", "expected 2 columns, got 3"),
        (b'"x"y,1', "expected after"),
        (b"\xff,1", "can't decode"),
        (b"x\ry,1", "new-line character"),
    ],
)
def test_a_row_that_is_no_row(file: Path, line: bytes, reason: str) -> None:
    file.write_bytes(b"text,number\na,1\n" + line + b'\n"b",2\n')
    with pytest.raises(JobFailed, match=f"line 3: .*{reason}"):
        read(Csv(file, Note))
    assert read(Csv(file, Note, on_error="drop")) == ([Note("a", 1), Note("b", 2)], 1)


def test_a_quote_that_is_never_closed_costs_its_line_and_not_the_file(
    monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    monkeypatch.setattr(csv_lines, "QUOTED_LIMIT", 100)
    rows = [Note("good", i) for i in range(50)]
    file.write_bytes(b'text,number\n"open,1\n' + b"".join(b"good,%d\n" % n.number for n in rows))
    with pytest.raises(JobFailed, match="line 2"):
        read(Csv(file, Note))
    assert in_slices(Csv(file, Note, on_error="drop"), 7)[:2] == (rows, 1)


def test_a_quote_in_the_middle_of_a_value_is_an_ordinary_character(file: Path) -> None:
    file.write_text('text,number\n5" pipe,1\nb,2\n')
    assert read(Csv(file, Note))[0] == [Note('5" pipe', 1), Note("b", 2)]


def test_a_row_that_is_still_being_written_waits(file: Path) -> None:
    source = Csv(file, Note)
    file.write_text("text,nu")
    assert end_of(source, "0", 0, 9) == 0, "not even the header is whole"
    file.write_text("text,number\n")
    assert end_of(source, "0", 0, 9) == 0
    file.write_text('text,number\na,1\n"b\n')
    end = end_of(source, "0", 0, 9)
    assert read(source, 0, end)[0] == [Note("a", 1)]
    assert end_of(source, "0", end, 9) == end
    file.write_text('text,number\na,1\n"b\nb",1')
    assert end_of(source, "0", end, 9) == end, "it could be 12"
    file.write_text('text,number\na,1\n"b\nb",12\n')
    assert read(source, end)[0] == [Note("b\nb", 12)]


def test_a_file_that_is_done_needs_no_last_newline(file: Path) -> None:
    file.write_text('text,number\na,1\n"b\nb",12')
    assert in_slices(Csv(file, Note, bounded=True), 1)[0] == [Note("a", 1), Note("b\nb", 12)]


def test_empty_lines_are_passed_over(file: Path) -> None:
    file.write_text('text,number\n\na,1\n\r\n"",2\n')
    assert read(Csv(file, Note)) == ([Note("a", 1), Note("", 2)], 0)


def test_names_that_are_given_instead_of_a_header(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbf" + b'"1",x,a\n2,y,b\n')
    assert read(Csv(file, Note, header=["number", "ignored", "text"]))[0] == [Note("a", 1), Note("b", 2)]


@pytest.mark.parametrize(
    "header", ["text\n", "text;number\n", "text,number,text\n", "a,1\n", '"text\n', "\xff,\n", "\n"]
)
def test_a_header_without_the_event_s_fields_is_refused(
    monkeypatch: pytest.MonkeyPatch, file: Path, header: str
) -> None:
    monkeypatch.setattr(csv_lines, "QUOTED_LIMIT", 20)
    file.write_bytes(header.encode("latin-1") + b"a,1\n" * 10)
    with pytest.raises(JobFailed, match="SW-SOURCE-HEADER"):
        end_of(Csv(file, Note), "0", 0, 9)


class Nested(Event):
    note: Note


class Tagged(Event):
    tags: list[str]


class Empty(Event):
    pass


@pytest.mark.parametrize(
    ("event", "options", "code"),
    [
        (Nested, {}, "SW-SOURCE-TYPE"),
        (Tagged, {}, "SW-SOURCE-TYPE"),
        (Empty, {}, "SW-SOURCE-TYPE"),
        (Note, {"delimiter": ""}, "SW-JOB-SETTING"),
        (Note, {"delimiter": '"'}, "SW-JOB-SETTING"),
        (Note, {"delimiter": "ä"}, "SW-JOB-SETTING"),
        (Note, {"header": False}, "SW-JOB-SETTING"),
        (Note, {"header": ["text"]}, "SW-JOB-SETTING"),
        (Note, {"header": ["text", "number", "number"]}, "SW-JOB-SETTING"),
        (Note, {"on_error": "skip"}, "SW-JOB-SETTING"),
    ],
)
def test_wrong_use_is_told_at_construction(event: Any, options: dict[str, Any], code: str) -> None:
    with pytest.raises(WrongUse, match=code):
        Csv("x.csv", event, **options)


def test_files_that_are_missing_or_lost_what_was_read(file: Path) -> None:
    with pytest.raises(JobFailed, match="SW-SOURCE-MISSING"):
        end_of(Csv(file, Note), "0", 0, 1)
    file.write_text("text,number\na,1\n")
    with pytest.raises(Refused, match="SW-SOURCE-SHRUNK"):
        end_of(Csv(file, Note), "0", 1000, 1)


def test_the_source_can_be_sent_to_workers(file: Path) -> None:
    file.write_text("text,number\na,1\n")
    assert read(pickle.loads(pickle.dumps(Csv(file, Note))))[0] == [Note("a", 1)]


def test_a_job_reads_a_file_that_grows(file: Path, tmp_path: Path) -> None:
    paid = [Payment(f"card, {i % 3}", i) for i in range(25)]
    job = Job("grown", checkpoint_every=0)
    seen = job.source(Csv(file, Payment, max_events=10), id="payments").apply(Summing(), key="card", id="sums")
    seen.sink(SqliteSink(tmp_path / "out.db", "journal"), id="journal")
    for count in (10, 25):
        file.write_bytes(written([["card", "amount"], *([p.card, p.amount] for p in paid[:count])]))
        run_job(job, tmp_path / "root")
        with sqlite3.connect(tmp_path / "out.db") as db:
            rows = db.execute("SELECT * FROM journal").fetchall()
        assert sorted(rows) == sorted(expected_journal(paid[:count]))


class Named(Event, kw_only=True):
    text: str
    number: int


def test_events_with_keyword_fields(file: Path) -> None:
    file.write_text("number,text\n1,a\n")
    assert read(Csv(file, Named))[0] == [Named(text="a", number=1)]
