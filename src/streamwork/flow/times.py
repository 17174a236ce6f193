"""Times as files and parcels hold them: whole microseconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


def microseconds(at: datetime) -> int:
    return (at - BEGINNING) // timedelta(microseconds=1)


def from_microseconds(value: int) -> datetime:
    return BEGINNING + timedelta(microseconds=value)
