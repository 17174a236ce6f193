"""The output of commands: text, or one JSON object.

Text from outside (input, file names, messages of other programs) may contain terminal control characters. Commands print only
through `say`, `console` and `print_json`, which escape them.
"""

from __future__ import annotations

import sys
from typing import Any, TextIO

import click
import msgspec
from rich.console import Console
from rich.text import Text

from streamwork.components.position import plain
from streamwork.errors import printable

JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


def say(text: object = "", err: bool = False) -> None:
    """Print a line, or several."""
    click.echo(printable(str(text)), err=err)


def console(file: TextIO | None = None, err: bool = False, width: int | None = None) -> Console:
    """A console for tables and colours. Text from outside must be passed as `cell(text)`."""
    return Console(file=file, stderr=err, highlight=False, width=width)


def cell(text: str) -> Text:
    """Text without markup, for a console or a table."""
    return Text(printable(text))


def print_json(value: Any) -> None:
    builtins = msgspec.to_builtins(value, str_keys=True, enc_hook=plain)
    say_json(msgspec.json.format(msgspec.json.encode(builtins), indent=2))


def say_json(encoded: bytes) -> None:
    """Print JSON."""
    click.echo(json_text(encoded, sys.stdout))


def write_json(encoded: bytes, stream: TextIO) -> None:
    """One line of JSON, at once."""
    print(json_text(encoded, stream), file=stream, flush=True)


def json_text(encoded: bytes, stream: TextIO) -> str:
    """JSON for a stream. Characters outside of ASCII occur in strings only, where an escape is equivalent."""
    text = encoded.decode()
    if not _has_all(stream.encoding, text):
        text = "".join(c if c.isascii() else _escaped(c) for c in text)
    if not text.isprintable():
        text = "".join(c if c.isprintable() or c == "\n" else _escaped(c) for c in text)
    return text


def _has_all(encoding: str | None, text: str) -> bool:
    try:
        text.encode(encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
