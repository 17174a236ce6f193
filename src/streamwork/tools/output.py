"""What the commands have in common: an answer for people, or one JSON object for programs."""

from __future__ import annotations

from typing import Any

import click
import msgspec

JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


def plain(text: str) -> str:
    """Text from elsewhere, for a terminal: what would steer it is written out."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def print_json(value: Any) -> None:
    plain = msgspec.to_builtins(value, str_keys=True)
    click.echo(msgspec.json.format(msgspec.json.encode(plain), indent=2).decode())
