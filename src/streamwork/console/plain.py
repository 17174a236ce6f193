"""Read models as JSON: the same values that commands print with ``--json``."""

from __future__ import annotations

from typing import Any

import msgspec

from streamwork.components.position import plain
from streamwork.serving.http import Response

_encoder = msgspec.json.Encoder()


def to_plain(value: Any) -> Any:
    return msgspec.to_builtins(value, str_keys=True, enc_hook=plain)


def in_json(value: Any) -> Response:
    return Response(body=encoded(value))


def encoded(value: Any) -> bytes:
    return _encoder.encode(to_plain(value))
