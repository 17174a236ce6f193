"""Options of the commands that answer over HTTP."""

from __future__ import annotations

import click

from streamwork.query.connection import TOKEN

PORT = "8700"
LISTEN = click.option(
    "--listen",
    metavar="[ADDRESS:]PORT",
    default=PORT,
    show_default=True,
    help=f"Where to listen, on 127.0.0.1 unless an ADDRESS is given; port 0: any free port. Requests need a bearer token: the one "
    f"in {TOKEN}, or one made in the root.",
)
ALLOW_HOST = click.option(
    "--allow-host",
    "names",
    multiple=True,
    metavar="NAME",
    help="A further name of this server in requests, such as that of a proxy. May be repeated.",
)
