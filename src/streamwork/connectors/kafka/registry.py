"""A schema registry: schemas by their number, over HTTP."""

from __future__ import annotations

import base64
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from urllib.parse import quote

import msgspec

from streamwork.connectors.address import HIDDEN, Address
from streamwork.errors import JobFailed, WrongUse

ATTEMPTS = 5
SECONDS = 10.0
_PAUSE = 0.2


class _Reference(msgspec.Struct):
    subject: str
    version: int


class _Answer(msgspec.Struct):
    schema: str
    schemaType: str = "AVRO"  # noqa: N815  the registry's word
    references: list[_Reference] = []


class Registry:
    """Its `repr`, and its errors, have no secrets."""

    def __init__(self, url: str, user: str, headers: Mapping[str, str]) -> None:
        if not url.startswith(("http://", "https://")):
            raise WrongUse(
                "SW-KAFKA-SETTING", "the address of the schema registry is not valid", "write it as https://..."
            )
        if "@" in url:
            raise WrongUse(
                "SW-KAFKA-SETTING", "the address of the schema registry has a password", 'write user="NAME:PASSWORD"'
            )
        self.url = url.rstrip("/")
        sent = dict(headers)
        if user:
            sent["Authorization"] = "Basic " + base64.b64encode(user.encode()).decode()
        whole = msgspec.json.encode(sent, order="sorted").decode()
        self._headers = Address(whole, HIDDEN if sent else whole, tuple(sent.values()))

    def __repr__(self) -> str:
        return self.url

    def schema(self, number: int) -> list[str]:
        """The text of a schema, after those of all schemas that it refers to. A schema never changes under its number, so that
        the answer may be kept.
        """
        answer = self._ask(f"schemas/ids/{number}", f"schema {number}")
        if answer.schemaType != "AVRO":
            raise ValueError(f"schema {number} is of type {answer.schemaType}, not AVRO")
        texts: dict[tuple[str, int], str] = {}
        for reference in answer.references:
            self._add(reference, texts)
        return [*texts.values(), answer.schema]

    def _add(self, reference: _Reference, texts: dict[tuple[str, int], str]) -> None:
        """Add a schema that another one refers to, after those that it refers to itself."""
        place = (reference.subject, reference.version)
        if place not in texts:
            path = f"subjects/{quote(reference.subject, safe='')}/versions/{reference.version}"
            found = self._ask(path, f"version {reference.version} of schema {reference.subject}")
            for further in found.references:
                self._add(further, texts)
            texts[place] = found.schema

    def _ask(self, path: str, what: str) -> _Answer:
        headers = msgspec.json.decode(self._headers.whole, type=dict[str, str])
        headers["Accept"] = "application/vnd.schemaregistry.v1+json, application/json"
        request = urllib.request.Request(f"{self.url}/{path}", headers=headers)
        attempt = 0
        while True:
            attempt += 1
            try:
                with urllib.request.urlopen(request, timeout=SECONDS) as found:
                    return msgspec.json.decode(found.read(), type=_Answer)
            except (urllib.error.URLError, OSError, msgspec.MsgspecError) as error:
                if isinstance(error, urllib.error.HTTPError):
                    error.close()
                if isinstance(error, urllib.error.HTTPError) and error.code == 404:
                    raise ValueError(f"the schema registry {self.url} has no {what}") from None
                if attempt == ATTEMPTS or (isinstance(error, urllib.error.HTTPError) and error.code < 500):
                    raise JobFailed(
                        "SW-KAFKA-REGISTRY",
                        self._headers.redact(f"{what} of the schema registry {self.url} cannot be read: {error}"),
                        "check the registry's address and the rights of its user; the job continues from its last checkpoint",
                        about_setup=True,
                    ) from None
                time.sleep(_PAUSE * 2 ** (attempt - 1))
