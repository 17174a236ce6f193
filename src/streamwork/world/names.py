"""Parses numbers in file names. All readers use this parser, so that they ignore the same stray files."""

from __future__ import annotations

EPOCH_DIGITS = 12
OFFSET_DIGITS = 20


def number_of(text: str, digits: int = 0) -> int | None:
    """The number in a name with exactly `digits` digits, or, with 0, without leading zeros. None if the text is anything else.

    Only ASCII digits count: `str.isdigit` is also true of digits of other scripts and of superscripts.
    """
    if not (text.isascii() and text.isdigit()):
        return None
    if digits:
        return int(text) if len(text) == digits else None
    return int(text) if text == "0" or (text[0] != "0" and len(text) <= OFFSET_DIGITS) else None
