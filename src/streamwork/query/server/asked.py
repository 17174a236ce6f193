"""Requests as questions: the parameters of a query string, and keys as text or JSON.

A key of several parts is given part by part: `/state/by-order/shop-01/7`, or `?from=shop-01&from=7`. Parts that text cannot
express, such as null, come as a JSON list: `?key_json=["shop-01",null]`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from streamwork.errors import WrongUse
from streamwork.query.answer import NEWEST, Selection
from streamwork.query.shape import Shape
from streamwork.query.state import LIMIT, Span, window_span
from streamwork.serving.http import Request, malformed, too_large

SELECTION = ("at", "consistency", "at_least", "timeout")
SPAN = ("from", "from_json", "to", "to_json", "prefix", "prefix_json", "after", "after_json", "limit")
WINDOWS = ("since", "until", "limit", "key_json")
LONGEST_WAIT = 60.0
MOST_KEYS = 200_000


def check(request: Request, allowed: Iterable[str]) -> None:
    """Refuses a parameter that a route does not have."""
    for name in request.parameters:
        if name not in allowed:
            raise malformed(f"there is no parameter {name[:40]!r} here")


def one(request: Request, name: str) -> str | None:
    found = request.parameters.get(name)
    if found is None:
        return None
    if len(found) > 1:
        raise malformed(f"the parameter {name} comes more than once")
    return found[0]


def number(request: Request, name: str) -> int | None:
    text = one(request, name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise malformed(f"{name}={text[:40]!r} is not a number")
    return int(text)


def selection(request: Request) -> Selection:
    if not request.parameters:
        return NEWEST
    text = one(request, "timeout")
    try:
        timeout = 5.0 if text is None else float(text)
    except ValueError:
        timeout = -1.0
    if not 0 <= timeout <= LONGEST_WAIT:
        raise malformed(f"timeout={str(text)[:40]!r} is not a number of seconds up to {LONGEST_WAIT:.0f}")
    return Selection.of(
        one(request, "at"), one(request, "consistency") or "committed", number(request, "at_least"), timeout
    )


def key(request: Request, shape: Shape, parts: Sequence[str], fewer: bool = False) -> tuple[Any, ...]:
    """The key in the path, or in `key_json`."""
    text = one(request, "key_json")
    if text is None:
        return shape.parts(shape.from_plain(tuple(parts)), fewer)
    if parts:
        raise malformed("the key is in the path and in key_json")
    return from_json(shape, decoded(text), fewer)


def from_json(shape: Shape, given: Any, fewer: bool = False) -> tuple[Any, ...]:
    return shape.parts(shape.from_plain(given), fewer)


def decoded(text: str | bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise malformed(f"this is not JSON: {str(error)[:80]}") from None


def span(request: Request, shape: Shape, most: int) -> Span:
    """Keys in order. Refuses more rows than `most` (SW-SERVE-SIZE)."""

    def bound(name: str) -> tuple[Any, ...] | None:
        parts, text = request.parameters.get(name), one(request, f"{name}_json")
        if parts is not None and text is not None:
            raise malformed(f"{name} and {name}_json exclude each other")
        if text is not None:
            return from_json(shape, decoded(text), fewer=True)
        return None if parts is None else shape.parts(shape.from_plain(parts), fewer=True)

    return Span(bound("from"), bound("to"), bound("prefix"), bound("after"), limited(request, most))


def windows(request: Request, shape: Shape, parts: Sequence[str], most: int) -> Span:
    since, until = (moment(request, name) for name in ("since", "until"))
    return window_span(shape, key(request, shape, parts, fewer=True), since, until, limited(request, most))


def moment(request: Request, name: str) -> datetime | None:
    text = one(request, name)
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise malformed(f"{name}={text[:40]!r} is not a time such as 2026-01-02T03:04:05Z") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def limited(request: Request, most: int) -> int:
    limit = number(request, "limit")
    if limit is not None and limit > most:
        raise too_large(f"limit={limit} is too large", f"ask for at most {most:,} rows, and go on with after=")
    return min(LIMIT, most) if limit is None else limit


class Keys(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request for many keys."""

    keys: list[Any]


def plain_keys(body: bytes) -> list[Any]:
    """Many keys, as JSON has them."""
    try:
        found = msgspec.json.decode(body, type=Keys).keys
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise malformed(f'the body is not {{"keys": [...]}}: {str(error)[:80]}') from None
    if len(found) > MOST_KEYS:
        raise too_large(f"the number of keys, {len(found):,}, is too large", f"ask for at most {MOST_KEYS:,} at a time")
    return found


def keys(body: bytes, shape: Shape) -> list[Any]:
    """Many keys; each is its only part, or a list of parts."""
    found = plain_keys(body)
    if shape.key_is_text:
        return found  # `Shape.key_batch` checks them
    checked = [from_json(shape, one) for one in found]
    return [parts[0] for parts in checked] if len(shape.key) == 1 else checked


class Statement(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request for SQL."""

    sql: str


def statement(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=Statement).sql
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise WrongUse(
            "SW-SERVE-REQUEST", f'the body is not {{"sql": "SELECT ..."}}: {str(error)[:80]}', "send JSON"
        ) from None
