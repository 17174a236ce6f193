"""Numbers and their nouns in messages. Imports nothing."""

from __future__ import annotations


def plural(number: int, noun: str, more: str = "") -> str:
    """A number and its noun: ``1 event``, ``2,000 events``. `more` is the plural if it does not end in "s"."""
    return f"{number:,} {noun if number == 1 else more or noun + 's'}"
