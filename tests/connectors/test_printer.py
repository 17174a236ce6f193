"""`print()` writes values as a person reads them."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from streamwork.connectors.printer import Printer


def test_times_are_iso_text(capsys: pytest.CaptureFixture[str]) -> None:
    moment = dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC)
    times = pa.array([moment], pa.timestamp("us", tz="UTC"))
    batch = pa.record_batch({"card": ["c7"], "at": times, "day": [moment.date()], "amount": [1.5]})
    Printer().observe("seen-print", batch)
    shown = capsys.readouterr().out
    assert shown == "seen: card='c7', at=2026-01-02T03:04:05.000006+00:00, day=2026-01-02, amount=1.5\n"
