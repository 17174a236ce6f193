"""`Sessions`: cookies that stand for the token, for the pages of a server.

A browser sends a cookie by itself, also where a page can set no header (server-sent events). The cookie holds its end and a keyed
hash of it, so the server remembers nothing: a restart keeps sessions, another token ends them. No script can read it (HttpOnly),
and no other site can send it (SameSite=Strict). Cookies do not know ports: the name of the cookie has the port, so that two
servers of one machine do not overwrite each other's.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field

SECONDS = 12 * 3600
MOST_COOKIES = 64


@dataclass(frozen=True)
class Sessions:
    """The sessions of the server on this port; `now` is in seconds since 1970."""

    secret: str = field(repr=False)
    port: int
    now: Callable[[], float]

    @property
    def name(self) -> str:
        return f"streamwork-{self.port}"

    def begin(self) -> bytes:
        """The header Set-Cookie of a new session."""
        end = str(int(self.now()) + SECONDS)
        return self._cookie(f"{end}.{self._hash(end)}", SECONDS)

    def end(self) -> bytes:
        """The header Set-Cookie that makes a browser forget its session."""
        return self._cookie("", 0)

    def holds(self, cookies: str | None) -> bool:
        """Whether the header Cookie of a request has a session that is valid now."""
        for pair in (cookies or "").split(";")[:MOST_COOKIES]:
            name, _, value = pair.strip().partition("=")
            end, _, given = value.partition(".")
            if name == self.name and end.isascii() and end.isdigit() and len(end) < 16:
                return hmac.compare_digest(given.encode(), self._hash(end).encode()) and int(end) > self.now()
        return False

    def _hash(self, end: str) -> str:
        text = f"streamwork session of port {self.port} until {end}"
        return hmac.new(self.secret.encode(), text.encode(), hashlib.sha256).hexdigest()

    def _cookie(self, value: str, seconds: int) -> bytes:
        return f"{self.name}={value}; HttpOnly; SameSite=Strict; Path=/; Max-Age={seconds}".encode()
