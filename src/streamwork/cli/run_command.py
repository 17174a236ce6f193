"""``streamwork run``: runs a job from its file.

Errors are raised as they are; `cli.main` turns them into text or JSON and an exit code.
"""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path
from typing import Any

import click

from streamwork.cli.job_arguments import as_fork
from streamwork.cli.output import JSON, print_json, say
from streamwork.cli.progress import watched
from streamwork.cli.run_options import run_options
from streamwork.epoch import Store
from streamwork.job import Job, Layout, params
from streamwork.job.jobfile import load_job
from streamwork.observe.metrics_server import TOKEN, serving
from streamwork.observe.status import read_status
from streamwork.run.options import RunOptions
from streamwork.run.outcome import NOT_STARTED, Outcome
from streamwork.run.runner import run
from streamwork.run.stopping import Stop, Stopped
from streamwork.run.watcher import Watcher
from streamwork.serving.access import Endpoint, token
from streamwork.world import RealClock, RealDisk

PORT = "8700"
"""Of `--serve`."""
CONSOLE_PORT = "0"


@click.command("run")
@click.argument("jobfile")
@run_options()
@click.option(
    "--metrics",
    metavar="[ADDRESS:]PORT",
    help="Serve metrics for Prometheus during the run, on 127.0.0.1 unless an ADDRESS is given; port 0: any free port. "
    f"Requests need a bearer token: the one in {TOKEN}, or one made in the root.",
)
@click.option(
    "--serve",
    metavar="[ADDRESS:]PORT",
    is_flag=False,
    flag_value=PORT,
    help=f"Answer questions about the state during the run, as the command serve does  [without a PORT: {PORT}]",
)
@click.option(
    "--console",
    metavar="[ADDRESS:]PORT",
    is_flag=False,
    flag_value=CONSOLE_PORT,
    help="Show the jobs of the root in a browser during the run, as the command console does  [without a PORT: any free one]",
)
@click.option(
    "--log-format",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="json: one JSON object a line, with time, level, job, epoch, component, code and message.",
)
@click.option(
    "--trace",
    metavar="URL",
    help="Send a trace of each epoch to this collector, by OTLP over HTTP. Without it, OTEL_EXPORTER_OTLP_ENDPOINT decides.",
)
@click.option("--explain", is_flag=True, help="Show the layout of the job, and stop.")
@JSON
@click.pass_obj
def run_command(
    command: tuple[str, ...] | None,
    /,
    jobfile: str,
    root: Path | None,
    metrics: str | None,
    serve: str | None,
    console: str | None,
    explain: bool,
    log_format: str,
    trace: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Run the job in JOBFILE, or in JOBFILE:NAME if there are several, until Ctrl-C."""
    clock = RealClock()
    stop = Stop(clock)
    click.get_current_context().with_resource(stop.on_signal())  # before the job file is imported, which may take long
    try:
        with stop.interrupting():
            loaded = load_job(jobfile, params.parse(given["param"]))
    except Stopped:
        if as_json:
            print_json({"started": NOT_STARTED})
        else:
            say(NOT_STARTED)
        return
    loaded = as_fork(loaded, (root or loaded.default_root).absolute(), given["fork"])
    options = RunOptions.parse(
        root=root or loaded.default_root, module_folder=loaded.path.parent, command=command or (), **given
    )
    if explain:
        _explain(loaded.job, options, as_json)
        return

    def work(watcher: Watcher) -> Outcome:
        servers: list[tuple[str, ...]] = []
        if serve is not None:
            served = ("--root", str(options.root), options.mode.folder(loaded.job.name))
            servers.append(("serve", *served, "--listen", serve))
        if console is not None:
            servers.append(("console", str(options.root), "--listen", console))
        with contextlib.ExitStack() as until_the_end:
            if servers:
                from streamwork.cli.serve_command import beside

                for listen in filter(None, (serve, console)):
                    Endpoint.parse(listen)  # refused before anything is started
                options.root.mkdir(parents=True, exist_ok=True)
            for words in servers:
                until_the_end.enter_context(beside(words, watcher.on_note))
            return measured(watcher)

    def measured(watcher: Watcher) -> Outcome:
        if metrics is None:
            return run(loaded.job, options, watcher, clock, stop, trace)
        from streamwork.observe.metrics import exposition

        status = partial(read_status, options.root, options.mode.folder(loaded.job.name), clock, watch=False)
        with serving(
            lambda: exposition(status()), Endpoint.parse(metrics), token(options.root, TOKEN), watcher.on_note
        ):
            return run(loaded.job, options, watcher, clock, stop, trace)

    outcome = watched(as_json, work, log_format)
    if as_json:
        print_json(outcome)


def _explain(job: Job, options: RunOptions, as_json: bool) -> None:
    """Print the layout that a run would have: with the number of key groups that the root was created with, if there is one."""
    identity = Store(RealDisk(), options.root, options.mode.folder(job.name)).identity()
    layout = Layout.of(job.graph(), job.settings.groups if identity is None else identity.groups)
    if as_json:
        print_json({"job": job.name, "chains": layout.chains, "edges": layout.edges, "native": layout.native})
    else:
        say(f"{job.describe()}\n{layout.explain()}")
