"""Times as whole microseconds since 1970, as files, positions, parcels and side columns hold them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def microseconds(at: datetime) -> int:
    return (at - BEGINNING) // _MICROSECOND


def from_microseconds(value: int) -> datetime:
    """Raises OverflowError for a time outside the years 1 to 9999."""
    return BEGINNING + timedelta(microseconds=value)
