"""``streamwork console``: web pages about the jobs of a root, and `run --console`, which starts them beside a run."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from streamwork.cli.output import JSON, print_json, say
from streamwork.cli.server_options import ALLOW_HOST
from streamwork.errors import WrongUse
from streamwork.query.connection import TOKEN
from streamwork.serving.access import Endpoint, token

T = TypeVar("T")
PORT = 8701
LISTEN = click.option(
    "--listen",
    metavar="[ADDRESS:]PORT",
    help=f"Where to listen, on 127.0.0.1 unless an ADDRESS is given; port 0: any free port. Requests need the token in {TOKEN}, "
    f"or one made in the root; the address that is printed has it  [default: {PORT}, or a free port if that is taken]",
)
ACTIONS = "--allow-actions"


@click.command("console")
@click.argument("root", type=click.Path(path_type=Path), default=Path(".streamwork"))
@LISTEN
@ALLOW_HOST
@click.option(
    ACTIONS,
    is_flag=True,
    help="Pages may stop jobs, create savepoints and replay dead letters. Otherwise they only show.",
)
@click.option(
    "--jobfile",
    "job_files",
    multiple=True,
    metavar="JOBFILE[:NAME]",
    help="With --allow-actions: the code of a job, which a replay of dead letters and a savepoint of a job at rest need. May be "
    "repeated. It is imported by processes of its own.",
)
@JSON
def console_command(
    root: Path,
    listen: str | None,
    names: tuple[str, ...],
    allow_actions: bool,
    job_files: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show the jobs of ROOT (by default .streamwork) in a browser, until Ctrl-C."""
    from streamwork.console.application import ConsoleServer  # what the server needs is imported by it only
    from streamwork.serving.limits import Limits
    from streamwork.serving.server import Listening

    if job_files and not allow_actions:
        raise WrongUse("SW-USAGE", "--jobfile is for actions", "add --allow-actions, or leave it out")
    if not root.is_dir():
        raise WrongUse(
            "SW-ROOT-EMPTY",
            f"{root} is not a folder",
            "give the root of your jobs: .streamwork beside the job file, unless `run --root` named another",
        )
    where = root.absolute()
    secret = token(where, TOKEN)
    console = ConsoleServer(where, Limits(), lambda problem: say(problem, err=True), allow_actions, job_files)
    known = frozenset(name.lower() for name in names)

    def listening(endpoint: Endpoint) -> Listening:
        return Listening(console.application, endpoint, secret, known)

    try:
        server = _on_a_free_port(listening) if listen is None else listening(Endpoint.parse(listen))
        opens = f"{server.url}/#token={secret.secret}"

        def ready() -> None:
            if as_json:
                shown = {"url": server.url, "open": opens, "root": str(where), "token": secret.where}
                print_json({**shown, "actions": allow_actions})
            else:
                say(f"console of {where} at {opens}")
            sys.stdout.flush()

        with contextlib.suppress(KeyboardInterrupt):
            server.run(ready)
    finally:
        console.close()


def _on_a_free_port(listening: Callable[[Endpoint], T]) -> T:
    try:
        return listening(Endpoint.parse(str(PORT)))
    except WrongUse:
        return listening(Endpoint.parse("0"))
