"""The bearer token of HTTP requests, and the address that a server listens on."""

from __future__ import annotations

import ipaddress
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from streamwork.errors import Refused, WrongUse

LOOPBACK = "127.0.0.1"
FILE = "access.token"
"""The token file in the root. Only its owner can read it. It is created by the first start that needs it."""
MOST_TOKEN = 4096


@dataclass(frozen=True)
class Token:
    """A secret, and where to find it. The secret does not appear in `repr`."""

    secret: str
    where: str

    def __repr__(self) -> str:
        return f"Token(in {self.where})"


def token(root: Path, variable: str) -> Token:
    """The token in the environment, or that of the root, which is created if it does not exist."""
    if given := os.environ.get(variable, "").strip():
        return Token(given, f"the environment variable {variable}")
    path = root / FILE
    try:
        root.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            return Token(_read(path), str(path))
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            made = secrets.token_urlsafe(32)
            file.write(made + "\n")
    except OSError as error:
        raise Refused(
            "SW-ACCESS-TOKEN",
            f"{path} cannot be read or written: {error}",
            f"make it readable and writable for the user that runs the job, or set {variable}",
        ) from error
    return Token(made, str(path))


def _read(path: Path) -> str:
    found = path.read_bytes()[:MOST_TOKEN].decode("ascii", "replace").strip()
    if not found or not found.isprintable():
        raise Refused(
            "SW-ACCESS-TOKEN",
            f"{path} holds no token",
            "remove the file: the next start creates a new one, and prints its path",
        )
    if path.stat().st_mode & 0o077:
        raise Refused(
            "SW-ACCESS-TOKEN", f"{path} can be read by other users of this machine", f"chmod 600 {path}, or remove it"
        )
    return found


@dataclass(frozen=True)
class Endpoint:
    """An address and a port to listen on; port 0 is any free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """``PORT`` on loopback, or ``ADDRESS:PORT``, with an IPv6 address in brackets."""
        host, colon, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]") if colon else LOOPBACK
        try:
            ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
            if not (port.isascii() and port.isdigit() and int(port) < 1 << 16):
                raise ValueError
        except ValueError:
            raise WrongUse(
                "SW-SERVE-PORT",
                f"{text!r} is not an address to listen on",
                "give PORT (on 127.0.0.1) or ADDRESS:PORT, such as 9100, 0.0.0.0:9100 or [::]:9100",
            ) from None
        return cls(LOOPBACK if host == "localhost" else host, int(port))

    @property
    def is_loopback(self) -> bool:
        return ipaddress.ip_address(self.host).is_loopback

    @property
    def is_ipv6(self) -> bool:
        return ":" in self.host

    def name(self, port: int) -> str:
        """``HOST:PORT``, as in a URL."""
        return f"[{self.host}]:{port}" if self.is_ipv6 else f"{self.host}:{port}"
