"""What the commands print: text for people, or one JSON object for programs.

Text from elsewhere (input, file names, messages of other programs) may hold characters that steer a terminal. So commands print
through `say`, `console` and `print_json` alone, which write such characters out.
"""

from __future__ import annotations

import sys
from typing import Any, TextIO

import click
import msgspec
from rich.console import Console
from rich.text import Text

from streamwork.errors import printable

DROP = click.option(
    "--drop-state",
    multiple=True,
    metavar="ID",
    help="Drop the stored state of a component, once: it was removed from the job, or begins with empty state.",
)
REFILL = click.option(
    "--refill",
    multiple=True,
    metavar="SINK",
    help="If this sink's target is lost, write the output of the kept checkpoints again. For several, say it again.",
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


def say(text: object = "", err: bool = False) -> None:
    """Print a line, or several."""
    click.echo(printable(str(text)), err=err)


def console(file: TextIO | None = None, err: bool = False, width: int | None = None) -> Console:
    """A console for tables and colours. Give it text from elsewhere as `cell(text)`."""
    return Console(file=file, stderr=err, highlight=False, width=width)


def cell(text: str) -> Text:
    """Text without markup, for a console or a table."""
    return Text(printable(text))


def print_json(value: Any) -> None:
    plain = msgspec.to_builtins(value, str_keys=True)
    say_json(msgspec.json.format(msgspec.json.encode(plain), indent=2))


def say_json(encoded: bytes) -> None:
    """Print JSON. Outside of ASCII, characters stand in strings only: there an escape means the same."""
    text = encoded.decode()
    if not _has_all(sys.stdout.encoding, text):
        text = "".join(c if c.isascii() else _escaped(c) for c in text)
    if not text.isprintable():
        text = "".join(c if c.isprintable() or c == "\n" else _escaped(c) for c in text)
    click.echo(text)


def _has_all(encoding: str | None, text: str) -> bool:
    try:
        text.encode(encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
