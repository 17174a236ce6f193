"""`Limits` of a server: sizes, rates and times. A request beyond one of them gets an error, and costs no more than that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    connections: int = 1_000
    head_bytes: int = 64 << 10  # of a request's line and headers
    body_bytes: int = 16 << 20
    request_seconds: float = 20.0  # to send a request
    idle_seconds: float = 75.0  # of a connection between requests
    send_seconds: float = 60.0  # that a client may take to read one piece of an answer
    requests_per_s: float = 50_000.0
    at_work: int = 2  # long requests that are computed at a time
    waiting: int = 64  # long requests that wait for that
    streams: int = 256  # answers that do not end, such as watching, and requests that wait for a checkpoint


class Rate:
    """At most `per_second` calls a second, and as many at once."""

    def __init__(self, per_second: float, now: Callable[[], float]) -> None:
        self._per_second = per_second
        self._now = now
        self._left = per_second
        self._at = now()

    def allows(self) -> bool:
        now = self._now()
        self._left = min(self._per_second, self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
