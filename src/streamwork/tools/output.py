"""What the commands have in common: an answer for people, or one JSON object for programs."""

from __future__ import annotations

from typing import Any

import click
import msgspec

JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


def print_json(value: Any) -> None:
    plain = msgspec.to_builtins(value, str_keys=True)
    click.echo(msgspec.json.format(msgspec.json.encode(plain), indent=2).decode())
