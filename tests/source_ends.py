"""Asks a source about one partition."""

from __future__ import annotations

from typing import Any

from streamwork import OffsetSource


def end_of(source: OffsetSource[Any], partition: str, start: int, limit: int) -> int:
    """The offset after at most `limit` events from `start`."""
    return source.ends({partition: start}, limit)[partition]


def latest_of(source: OffsetSource[Any], partition: str) -> int:
    return source.latest([partition])[partition]
