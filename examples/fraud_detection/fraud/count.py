"""The count: too many transactions of a card in a short time. The window is Streamwork's own; these are its results."""

from __future__ import annotations

from typing import Any

from streamwork import Event

from .score import COUNT, Score, between

WINDOW = "5s"
"""The generator uses a card every five seconds on average. For real cards, take a minute.

A burst across the boundary of two windows is found later, or not at all. `Session` windows have no such boundary, but cost
nearly twice as much for each batch.
"""
LATE = "5s"
"""A transaction may be so much older than others that were read before it, and still be counted."""
USUAL, TOO_MANY = 3.0, 8.0
"""Transactions in one window: up to the first, the score is 0; from the second on, it is 1."""


class Counted(Event):
    """A transaction, and how many its card had in the window so far, including it."""

    id: str
    card: str
    in_window: int


def count_score(counted: Counted) -> Score:
    return Score(counted.id, counted.card, COUNT, between(USUAL, counted.in_window, TOO_MANY))


def late_score(late: Any) -> Score:
    """A transaction that comes too late to be counted is not suspicious for it."""
    return Score(late.id, late.card, COUNT, 0.0)
