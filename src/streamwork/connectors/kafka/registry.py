"""A schema registry: schemas by their number, over HTTP."""

from __future__ import annotations

import base64
import time
import urllib.error
import urllib.request
from collections.abc import Mapping

import msgspec

from streamwork.connectors.address import HIDDEN, Address
from streamwork.errors import JobFailed, WrongUse

ATTEMPTS = 5
SECONDS = 10.0
_PAUSE = 0.2


class _Answer(msgspec.Struct):
    schema: str
    schemaType: str = "AVRO"  # noqa: N815  the registry's word
    references: list[msgspec.Raw] = []


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

    def schema(self, number: int) -> str:
        """The text of a schema. A schema never changes under its number, so the answer may be kept."""
        headers = msgspec.json.decode(self._headers.whole, type=dict[str, str])
        headers["Accept"] = "application/vnd.schemaregistry.v1+json, application/json"
        url = f"{self.url}/schemas/ids/{number}"
        for attempt in range(ATTEMPTS):
            try:
                with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=SECONDS) as found:
                    answer = msgspec.json.decode(found.read(), type=_Answer)
                    break
            except (urllib.error.URLError, OSError, msgspec.MsgspecError) as error:
                if isinstance(error, urllib.error.HTTPError):
                    error.close()
                if isinstance(error, urllib.error.HTTPError) and error.code == 404:
                    raise ValueError(f"the schema registry {self.url} has no schema {number}") from None
                if attempt == ATTEMPTS - 1 or (isinstance(error, urllib.error.HTTPError) and error.code < 500):
                    raise JobFailed(
                        "SW-KAFKA-REGISTRY",
                        self._headers.redact(
                            f"schema {number} of the schema registry {self.url} cannot be read: {error}"
                        ),
                        "check the registry's address and the rights of its user; the job continues from its last checkpoint",
                        about_setup=True,
                    ) from None
                time.sleep(_PAUSE * 2**attempt)
        if answer.schemaType != "AVRO":
            raise ValueError(f"schema {number} is of type {answer.schemaType}, not AVRO")
        if answer.references:
            raise ValueError(f"schema {number} refers to other schemas of the registry, which AvroFormat does not read")
        return answer.schema
