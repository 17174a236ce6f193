"""`prepare` makes msgspec analyse the classes that the console decodes, before the console has threads.

msgspec 0.22 analyses a class when it first decodes it, without a lock: two threads that do so at the same time crash the process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import msgspec

PACKAGE = "streamwork."


def prepare() -> None:
    """Analyse every struct of Streamwork that is imported by now."""
    for kind in _below(msgspec.Struct):
        if kind.__module__.startswith(PACKAGE):
            with contextlib.suppress(TypeError, NameError):  # it is only encoded
                msgspec.json.Decoder(kind, dec_hook=_never)


def _below(kind: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for one in kind.__subclasses__():
        yield one
        yield from _below(one)


def _never(kind: type, value: object) -> object:
    raise NotImplementedError(f"no {kind} is decoded here")
