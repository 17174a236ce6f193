"""Numbers in the names of files: one parser for every kind, so that a stray file is passed over everywhere or nowhere."""

from __future__ import annotations

EPOCH_DIGITS = 12
OFFSET_DIGITS = 20


def number_of(text: str, digits: int = 0) -> int | None:
    """The number that was written into a name with exactly so many digits, or, with 0, without leading zeros; else None.

    Only what this program writes counts: `str.isdigit` is also true of digits of other scripts and of superscripts.
    """
    if not (text.isascii() and text.isdigit()):
        return None
    if digits:
        return int(text) if len(text) == digits else None
    return int(text) if text == "0" or (text[0] != "0" and len(text) <= OFFSET_DIGITS) else None
