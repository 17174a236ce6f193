"""`Guard`: decides from the headers of a request whether it may be answered.

1  Host     the name under which the server was reached is its own: a web page cannot reach it under another name (DNS rebinding)
2  Origin   a request that a browser sends for a page is refused, unless the page is the server's own
3  token    the bearer token, compared in constant time; or a browser's session that stands for it (`serving.session`). A request
            that changes something with a session only must name the server's own page as its origin
"""

from __future__ import annotations

import hmac
import ipaddress
from dataclasses import dataclass

from streamwork.errors import WrongUse
from streamwork.serving.access import Endpoint, Token
from streamwork.serving.session import Sessions

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True)
class Guard:
    """`names`: further host names that the server has, such as that of a proxy; None: any name, so only the token decides.
    `sessions`: of a server with pages.
    """

    token: Token
    endpoint: Endpoint
    port: int
    names: frozenset[str] | None = frozenset()
    sessions: Sessions | None = None

    def check(
        self,
        host: str | None,
        origin: str | None,
        authorization: str | None,
        is_open: bool = False,
        cookie: str | None = None,
        changes: bool = False,
    ) -> None:
        """1 to 3. Refuses with SW-SERVE-HOST or SW-SERVE-TOKEN; an open route needs no token. `changes`: the request may change
        something.
        """
        if not self._is_mine(host):
            raise WrongUse(
                "SW-SERVE-HOST",
                f"the request is for the host {str(host)[:80]!r}, which is not a name of this server",
                "use the address that the server has printed, or start it with --allow-host NAME",
            )
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            raise WrongUse(
                "SW-SERVE-HOST",
                f"the request comes from a web page of {origin[:80]!r}",
                "send requests from a program, or from a page of this server",
            )
        if is_open:
            return
        if authorization is None and self.sessions is not None and self.sessions.holds(cookie):
            if changes and origin is None:
                raise WrongUse(
                    "SW-SERVE-HOST",
                    "the request comes with a browser's session, and does not say from which page",
                    "send it from a page of this server; a program sends the bearer token",
                )
            return
        scheme, _, given = (authorization or "").partition(" ")
        self.check_token(given if scheme == "Bearer" else "")

    def check_token(self, given: str) -> None:
        """Refuse what is not the token (SW-SERVE-TOKEN)."""
        if not hmac.compare_digest(given.encode(), self.token.secret.encode()):
            raise WrongUse(
                "SW-SERVE-TOKEN",
                "the request has no bearer token, or a wrong one",
                f"send the header `Authorization: Bearer TOKEN` with the token in {self.token.where}",
            )

    def _is_mine(self, host: str | None) -> bool:
        if self.names is None:
            return True
        if host is None:
            return False
        name, colon, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
        name = (name if colon else host).lower()
        if name in self.names:
            return True
        if (port if colon else "80") != str(self.port):
            return False
        if self.endpoint.is_loopback:
            return name in LOOPBACK_NAMES or name == _bracketed(self.endpoint.host)
        return name == "localhost" or _is_address(name)  # the name of an address cannot be made to lead elsewhere


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
