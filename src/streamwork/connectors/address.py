"""Where a server is: an address that people may see, with a password that they may not."""

from __future__ import annotations

import importlib
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from streamwork.errors import WrongUse

HIDDEN = "***"


class Address:
    """A URL or connection string. Shows itself without its secrets; `whole` is for the driver alone.

    A pickle of it holds the secrets, because workers need them: it is sent to them and never written to a file. A password that
    comes from the surroundings (PGPASSWORD, a password file) is in no pickle.
    """

    __slots__ = ("secrets", "shown", "whole")

    def __init__(self, whole: str, shown: str, secrets: tuple[str, ...]) -> None:
        self.whole = whole
        self.shown = shown
        self.secrets = tuple(s for s in secrets if s)

    @classmethod
    def of_url(cls, url: str, scheme: tuple[str, ...]) -> Address:
        try:
            parts = urlsplit(url)
            password, port = parts.password, parts.port
        except ValueError:
            parts, password, port = urlsplit(""), None, None
        if parts.scheme not in scheme:
            raise wrong_address(" or ".join(f"{s}://..." for s in scheme))
        host = parts.hostname or ""
        user = f"{parts.username or ''}:{HIDDEN}@" if password is not None else ""
        at = f"{user}{host}" + (f":{port}" if port else "")
        query = "&".join(part for part in parts.query.split("&") if not part.startswith("password="))
        asked = [part.partition("=")[2] for part in parts.query.split("&") if part.startswith("password=")]
        secrets = [password or "", *asked]
        return cls(url, urlunsplit((parts.scheme, at, parts.path, query, "")), (*secrets, *map(unquote, secrets)))

    def redact(self, text: str) -> str:
        """What somebody else has said about it, without the secrets."""
        for secret in sorted({self.whole, *self.secrets}, key=len, reverse=True):
            text = text.replace(secret, self.shown if secret == self.whole else HIDDEN)
        return text

    def cause(self, error: Exception) -> Exception | None:
        """The error, to be shown as the cause of another; None if a secret could be read in it."""
        return error if self.redact(f"{error!r}{error}") == f"{error!r}{error}" else None

    def __repr__(self) -> str:
        return self.shown

    def __reduce__(self) -> tuple[Any, ...]:
        return Address, (self.whole, self.shown, self.secrets)


def wrong_address(form: str) -> WrongUse:
    return WrongUse("SW-SINK-ADDRESS", "the address of the sink's server is not understood", f"write it as {form}")


def needed(package: str, extra: str) -> Any:
    """A package that only some sinks need."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise WrongUse(
            "SW-SINK-PACKAGE",
            f"the sink needs the package {package}: {error}",
            f'pip install "streamwork[{extra}]"',
        ) from error
