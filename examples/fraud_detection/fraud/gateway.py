"""The gateway: checks transactions of the bank and appends them to the log. What it refuses is not logged."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from streamwork import EventLog

from .presenter import Pending, Presenter
from .transaction import Transaction

LARGEST = 64 << 10
"""Bytes of a request."""
LONGEST = 64
"""Characters of an id, a card or a merchant."""
AHEAD = timedelta(minutes=1)
"""A transaction may be so far ahead of this machine's clock."""


class BadTransaction(Exception):
    """A transaction that is refused. `status` is that of HTTP."""

    def __init__(self, status: int, code: str, cause: str, action: str) -> None:
        super().__init__(f"{code}: {cause}; {action}")
        self.status = status
        self.code = code
        self.cause = cause
        self.action = action


class Gateway:
    """Takes transactions, by a direct call or for the HTTP server. Any thread may call it."""

    def __init__(
        self,
        log: EventLog[Transaction],
        presenter: Presenter,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._log = log
        self._presenter = presenter
        self._now = now

    def submit(self, transaction: Transaction) -> Pending:
        """Check a transaction and append it to the log. Returns at once; `Pending.answer` waits for the answer.

        Raises `BadTransaction`.
        """
        return self.submit_all([transaction])[0]

    def submit_all(self, transactions: Sequence[Transaction]) -> list[Pending]:
        """Append several transactions at once, which is faster. If one of them is bad, none is appended."""
        now = self._now()
        for transaction in transactions:
            check(transaction, now)
        expected = [self._presenter.expect(transaction.id) for transaction in transactions]
        try:
            self._log.append(transactions)
        except BaseException:
            for pending in expected:
                self._presenter.withdraw(pending)
            raise
        for pending in expected:
            self._presenter.accept(pending)
        return expected

    def submit_json(self, body: bytes) -> Pending:
        """`submit` of a JSON object with the fields of a transaction. Further fields are ignored."""
        return self.submit(parse(body))


def parse(body: bytes) -> Transaction:
    """The transaction that a JSON object describes. Its values are not checked yet."""
    if len(body) > LARGEST:
        raise too_large()
    try:
        return msgspec.json.decode(body, type=Transaction)
    except msgspec.ValidationError as error:
        if missing := re.search(r"missing required field `(\w+)`", str(error)):
            raise BadTransaction(400, "missing-field", f"there is no {missing[1]}", f"add {missing[1]}") from None
        raise BadTransaction(400, "wrong-type", str(error), "send a value of that type") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadTransaction(400, "malformed", f"not JSON: {error}", "send a JSON object") from None


def too_large() -> BadTransaction:
    return BadTransaction(413, "too-large", f"more than {LARGEST} bytes", "send one transaction, with short fields")


def check(transaction: Transaction, now: datetime) -> None:
    """Refuse values that no transaction has. The constructor of an event checks nothing, so types are checked, too."""
    for name in ("id", "card", "merchant"):
        text: Any = getattr(transaction, name)
        if not isinstance(text, str):
            raise _wrong_type(name, "str", text)
        if not 0 < len(text) <= LONGEST:
            raise _out_of_range(name, f"has {len(text)} characters", f"1 to {LONGEST}")
    for name, low, high in (("latitude", -90.0, 90.0), ("longitude", -180.0, 180.0), ("amount", 0.0, math.inf)):
        number: Any = getattr(transaction, name)
        if not isinstance(number, float):
            raise _wrong_type(name, "float", number)
        if not low <= number <= high or math.isinf(number):  # a NaN is not between
            wanted = "0 or more" if name == "amount" else f"{low:g} to {high:g}"
            raise _out_of_range(name, f"is {number:g}", wanted)
    at: Any = transaction.at
    if not isinstance(at, datetime):
        raise _wrong_type("at", "datetime", at)
    if at.tzinfo is None:
        raise _out_of_range("at", "has no time zone", "a time like 2026-03-01T08:00:00Z")
    if at > now + AHEAD:
        raise _out_of_range("at", f"is {at.isoformat()}", f"a time up to {AHEAD.total_seconds():.0f} s ahead of now")


def _wrong_type(name: str, wanted: str, value: object) -> BadTransaction:
    return BadTransaction(400, "wrong-type", f"{name} is {type(value).__name__}", f"send {name} as {wanted}")


def _out_of_range(name: str, cause: str, wanted: str) -> BadTransaction:
    return BadTransaction(422, "out-of-range", f"{name} {cause}", f"send {name} as {wanted}")
