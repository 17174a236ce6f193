"""``streamwork serve``: answers questions about the state of jobs over HTTP, and `run --serve`, which starts it beside a run."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streamwork.cli.job_arguments import find
from streamwork.cli.output import JSON, print_json, say
from streamwork.cli.server_options import ALLOW_HOST, LISTEN
from streamwork.errors import WrongUse
from streamwork.query.connection import TOKEN
from streamwork.serving.access import Endpoint, token

if TYPE_CHECKING:
    from streamwork.query.server.routes import Further

STOP_SECONDS = 10.0


@click.command("serve")
@click.argument("job", metavar="JOBFILE[:NAME] | JOB | ROOT")
@click.option("--root", type=click.Path(path_type=Path), help="The root; JOB is then the job's name.")
@LISTEN
@ALLOW_HOST
@click.option(
    "--cache", type=click.Path(path_type=Path), help="The folder for mapped snapshots  [default: the user's cache]"
)
@JSON
def serve_command(
    job: str, root: Path | None, listen: str, names: tuple[str, ...], cache: Path | None, as_json: bool
) -> None:
    """Answer questions about the state of a job, or of all jobs of a root, over HTTP until Ctrl-C. It only reads files."""
    where, only = _what(job, root)
    serve(where, only, listen, as_json, names, cache)


def serve(
    where: Path,
    only: str | None,
    listen: str,
    as_json: bool,
    names: tuple[str, ...] = (),
    cache: Path | None = None,
    further: Further | None = None,
) -> None:
    """Serve the jobs of a root, or one of them, until Ctrl-C; with `further`, more than their state."""
    from streamwork.query.server.followed import Jobs  # what the server needs is imported by it only
    from streamwork.query.server.routes import Questions
    from streamwork.serving.limits import Limits
    from streamwork.serving.server import Listening

    endpoint, secret = Endpoint.parse(listen), token(where, TOKEN)
    jobs = Jobs(where, only, cache)
    try:
        questions = Questions(jobs, Limits(), lambda problem: say(problem, err=True), further=further)
        listening = Listening(questions.application, endpoint, secret, frozenset(name.lower() for name in names))

        def ready() -> None:
            if as_json:
                print_json({"url": listening.url, "jobs": jobs.names(), "root": str(where), "token": secret.where})
            else:
                asked = only or f"all jobs of {where}"
                say(f"serving {asked} at {listening.url}, bearer token in {secret.where}")
            sys.stdout.flush()

        with contextlib.suppress(KeyboardInterrupt):
            listening.run(ready)
        questions.close()
    finally:
        jobs.close()


def _what(job: str, root: Path | None) -> tuple[Path, str | None]:
    """(root, the only job to serve)"""
    if root is None and Path(job).is_dir():
        return Path(job).absolute(), None
    if root is None and not Path(job.partition(":")[0]).is_file():
        raise WrongUse(
            "SW-QUERY-JOB", f"{job!r} is neither a job file nor a root", "give a JOBFILE, a ROOT, or --root ROOT JOB"
        )
    return find(job, root)


@contextlib.contextmanager
def beside(words: Sequence[str], note: Callable[[str], None]) -> Iterator[None]:
    """A command that serves, in a process of its own until the block ends, so that it takes nothing from the driver's process."""
    command = [sys.executable, "-m", "streamwork", *words]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        thread = threading.Thread(target=_noted, args=(process.stdout, note), daemon=True)
        thread.start()
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
            thread.join()


def _noted(lines: Iterator[str], note: Callable[[str], None]) -> None:
    for line in lines:
        note(line.rstrip("\n"))
