"""The address of a server, and the protection of the password in it.

Sinks that write from Spark's workers are pickled and sent there, and Spark stores what it sends in files. The pickle therefore
names a file of the driver instead of holding the password (`SecretsFile`): ``ROOT/JOB/secrets/``, readable only by its owner,
which exists while the driver runs.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from secrets import token_hex
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import msgspec

from streamwork.errors import JobFailed, WrongUse

HIDDEN = "***"


class Address:
    """A URL or connection string. Its `repr` has no secrets; only the driver uses `whole`.

    A pickle made inside `SecretsFile.collecting` holds the path of the secrets file instead of the secrets. A password
    from the environment (PGPASSWORD, a password file) is in neither.
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
        """The text of another program, without the secrets."""
        for secret in sorted({self.whole, *self.secrets}, key=len, reverse=True):
            text = text.replace(secret, self.shown if secret == self.whole else HIDDEN)
        return text

    def cause(self, error: Exception) -> Exception | None:
        """The error, for use as the `__cause__` of another; None if its text contains a secret."""
        return error if self.redact(f"{error!r}{error}") == f"{error!r}{error}" else None

    def __repr__(self) -> str:
        return self.shown

    def __reduce__(self) -> tuple[Any, ...]:
        file = _collecting.get()
        if file is None or self.whole == self.shown:
            return Address, (self.whole, self.shown, self.secrets)
        return _from_file, (str(file.path), self.shown, file.add(self.whole, self.secrets))


class SecretsFile:
    """The complete addresses of a job's servers, in a file that only its owner can read."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"{token_hex(8)}.json"
        self._entries: list[_Entry] = []

    @contextlib.contextmanager
    def collecting(self) -> Iterator[None]:
        """Addresses that are pickled inside the block refer to this file. Call `write` before they are used."""
        before = _collecting.set(self)
        try:
            yield
        finally:
            _collecting.reset(before)

    def write(self) -> None:
        """Write the file, if there are secrets. Removes the files of killed drivers of the job."""
        for left in self.path.parent.glob("*.json"):
            left.unlink(missing_ok=True)
        if self._entries:
            self.path.parent.mkdir(mode=0o700, exist_ok=True)
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.encode(self._entries))

    def add(self, whole: str, secrets: tuple[str, ...]) -> int:
        """Add an address. Returns its place in the file."""
        self._entries.append(_Entry(whole, secrets))
        return len(self._entries) - 1

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


class _Entry(msgspec.Struct, frozen=True):
    whole: str
    secrets: tuple[str, ...]


_collecting: ContextVar[SecretsFile | None] = ContextVar("collecting", default=None)


def _from_file(path: str, shown: str, place: int) -> Address:
    """The complete address, read from the file by a worker."""
    try:
        entries = msgspec.json.decode(Path(path).read_bytes(), type=list[_Entry])
        return Address(entries[place].whole, shown, entries[place].secrets)
    except (OSError, msgspec.DecodeError, IndexError) as error:
        raise JobFailed(
            "SW-SINK-SECRET",
            f"a worker cannot read the password for {shown} from {path}: {type(error).__name__}",
            "run the workers as the user that started the job; or leave the password out of the address, and set it in the "
            "workers' environment (PGPASSWORD) or in a password file there",
        ) from None


def wrong_address(form: str) -> WrongUse:
    return WrongUse("SW-SINK-ADDRESS", "the address of the sink's server is not valid", f"write it as {form}")


def needed(package: str, extra: str) -> Any:
    """Import a package that only some sinks and sources need."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise WrongUse(
            "SW-SINK-PACKAGE",
            f"this sink or source needs the package {package}: {error}",
            f'pip install "streamwork[{extra}]"',
        ) from error
