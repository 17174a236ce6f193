"""The command line. Exit codes: 0 fine, 1 the job failed, 2 wrong use, 3 refused because it is not safe."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

import streamwork
from streamwork.cli.demo import look, run_demo
from streamwork.cli.dev import develop
from streamwork.cli.doctor import Finding, examine
from streamwork.cli.job_commands import checkpoints_command, status_command, stop_command
from streamwork.cli.letter_commands import letters_group
from streamwork.cli.log_commands import log_group
from streamwork.cli.new import create
from streamwork.cli.output import DROP, JSON, REFILL, cell, console, print_json, say
from streamwork.cli.progress import PlainWatcher, watcher_for
from streamwork.errors import JobFailed, StreamworkError, WrongUse
from streamwork.hosts.archive import prepare as prepare_archive
from streamwork.hosts.master import DEFAULT_MASTER
from streamwork.job import Job, Layout
from streamwork.job.duration import seconds
from streamwork.job.jobfile import load_job
from streamwork.job.semantics import Semantics, Tracking
from streamwork.observe.access import Endpoint, token
from streamwork.observe.metrics_server import TOKEN, serving
from streamwork.run.mode import Mode
from streamwork.run.on_error import parse
from streamwork.run.options import RunOptions
from streamwork.run.outcome import NOT_STARTED, Outcome
from streamwork.run.runner import run
from streamwork.run.stopping import Stop, Stopped
from streamwork.run.watcher import Watcher
from streamwork.world import RealClock, print_anything

MODE = click.option(
    "--mode",
    type=click.Choice([mode.value for mode in Mode]),
    default=Mode.MICROBATCH.value,
    show_default=True,
    help="microbatch: on Spark, one job per checkpoint. batch: on Spark, one checkpoint over everything there is, "
    "in a folder and with targets of its own. local: in this process, without Spark.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(streamwork.__version__, prog_name="streamwork")
def cli() -> None:
    """Stateful stream processing for Python people, on Spark, with state in open files."""


@cli.command("run")
@click.argument("jobfile")
@MODE
@click.option(
    "--root",
    type=click.Path(path_type=Path),
    help="Where state and checkpoints are kept  [default: .streamwork beside JOBFILE]",
)
@click.option(
    "--master", default=DEFAULT_MASTER, show_default=True, help="Spark master: local[N], or spark://HOST:PORT."
)
@click.option("--until-caught-up", is_flag=True, help="Stop when all input that is there has been processed.")
@click.option(
    "--checkpoint-every", metavar="DURATION", help='Shortest time between checkpoints, such as "500ms" or "1s".'
)
@click.option("--retain", type=int, metavar="N", help="How many completed checkpoints to keep  [default: the job's, 3]")
@click.option("--take-over", is_flag=True, help="Do not wait whether another driver is alive: push it out.")
@click.option(
    "--lease", metavar="DURATION", help="A driver without a sign of life for so long is dead  [default: the job's, 10s]"
)
@click.option(
    "--semantics",
    type=click.Choice([one.value for one in Semantics]),
    help="What a failure may cost  [default: the job's, exactly-once]",
)
@click.option(
    "--tracking",
    type=click.Choice([one.value for one in Tracking]),
    help="By what at-least-once knows that an event is done  [default: the job's, checkpoint]",
)
@DROP
@click.option("--drop-request", hidden=True, default="", help="Drop once, however often this is said.")
@click.option("--change-semantics", is_flag=True, help="Go on although the job ran with other semantics until now.")
@click.option(
    "--accept-divergence",
    is_flag=True,
    help="Catch up although a sink may then have other rows than the state tells of.",
)
@REFILL
@click.option(
    "--no-restart", is_flag=True, help="A failure ends the run; otherwise the job is started again a few times."
)
@click.option(
    "--on-error",
    multiple=True,
    metavar="COMPONENT=POLICY",
    help="What becomes of events that a component cannot do: fail, drop, dead-letter, or retry:times=5,within=1min,then=fail. "
    "For several, say it again.",
)
@click.option(
    "--metrics",
    metavar="[ADDRESS:]PORT",
    help="Answer Prometheus as long as the run lasts, on 127.0.0.1 unless an ADDRESS is given; port 0: any that is free. "
    f"Requests need a bearer token: that in {TOKEN}, or one made in the root.",
)
@click.option("--explain", is_flag=True, help="Show how the job would be laid out, and stop.")
@click.option(
    "--spark-log", is_flag=True, help="Show what Spark prints (otherwise it goes to spark.log in the job's folder)."
)
@JSON
@click.pass_obj
def run_command(
    command: tuple[str, ...] | None,
    jobfile: str,
    mode: str,
    root: Path | None,
    master: str,
    until_caught_up: bool,
    checkpoint_every: str | None,
    retain: int | None,
    take_over: bool,
    lease: str | None,
    semantics: str | None,
    tracking: str | None,
    drop_state: tuple[str, ...],
    drop_request: str,
    change_semantics: bool,
    accept_divergence: bool,
    refill: tuple[str, ...],
    no_restart: bool,
    on_error: tuple[str, ...],
    metrics: str | None,
    explain: bool,
    spark_log: bool,
    as_json: bool,
) -> None:
    """Run the job in JOBFILE, or in JOBFILE:NAME if there are several, until Ctrl-C."""
    clock = RealClock()
    stop = Stop(clock)
    click.get_current_context().with_resource(stop.on_signal())  # before the job is loaded, which may take its time
    try:
        with stop.interrupting():
            loaded = load_job(jobfile)
    except Stopped:
        if as_json:
            print_json({"started": NOT_STARTED})
        else:
            say("stopped before it had started")
        return
    if explain:
        _explain(loaded.job, as_json)
        return
    options = RunOptions(
        mode=Mode(mode),
        root=root.absolute() if root is not None else loaded.default_root,
        master=master,
        until_caught_up=until_caught_up,
        checkpoint_every=None if checkpoint_every is None else seconds(checkpoint_every),
        retain=retain,
        lease=None if lease is None else seconds(lease),
        restart=not no_restart,
        take_over=take_over,
        accept_divergence=accept_divergence,
        refill=refill,
        semantics=semantics,
        tracking=tracking,
        change_semantics=change_semantics,
        drop_state=drop_state,
        drop_request=drop_request,
        spark_log=spark_log,
        module_folder=loaded.path.parent,
        on_error=parse(on_error),
        command=command or (),
    )

    def work(watcher: Watcher) -> Outcome:
        if metrics is None:
            return run(loaded.job, options, watcher, clock, stop)
        from streamwork.observe.metrics import exposition

        text = partial(exposition, options.root, options.mode.folder(loaded.job.name), clock)
        with serving(text, Endpoint.parse(metrics), token(options.root, TOKEN), watcher.on_note):
            return run(loaded.job, options, watcher, clock, stop)

    outcome = _watched(as_json, work)
    if as_json:
        print_json(outcome)


@cli.command("new")
@click.argument("name")
@click.option("--folder", type=click.Path(path_type=Path), help="Where to put it all  [default: NAME]")
@JSON
def new_command(name: str, folder: Path | None, as_json: bool) -> None:
    """Write a folder with a small job, a few lines for it to read, and its test."""
    created = create(name, Path(name if folder is None else folder).absolute())
    if as_json:
        print_json(created)
        return
    say(f"wrote {', '.join(created.files)} to {created.folder}")
    say(f"\nwhat to do next:\n  cd {shlex.quote(os.path.relpath(created.folder))}")
    for command in created.next:
        say(f"  {command}")


@cli.command("dev")
@click.argument("jobfile", metavar="JOBFILE[:NAME]")
@click.option(
    "--root",
    type=click.Path(path_type=Path),
    help="Where state and checkpoints are kept  [default: .streamwork beside JOBFILE, as with run]",
)
@DROP
@REFILL
@JSON
def dev_command(
    jobfile: str, root: Path | None, drop_state: tuple[str, ...], refill: tuple[str, ...], as_json: bool
) -> None:
    """Run the job without Spark, and start it anew from its last checkpoint whenever it is saved, until Ctrl-C."""
    output = sys.stderr if as_json else None
    outcome = develop(
        jobfile,
        None if root is None else root.absolute(),
        lambda line: say(line, err=as_json),
        output,
        RealClock(),
        drop_state,
        refill,
    )
    if as_json:
        print_json(outcome)


for command in (log_group, letters_group, status_command, stop_command, checkpoints_command):
    cli.add_command(command)


@cli.command("doctor")
@click.option(
    "--root", type=click.Path(path_type=Path), default=Path(".streamwork"), help="Where jobs will keep their state."
)
@click.option("--prepare", is_flag=True, help="First make an archive of Spark's classes: starts are faster with it.")
@JSON
def doctor_command(root: Path, prepare: bool, as_json: bool) -> None:
    """Check Python, Java, Spark, workers and disk, and say what to do."""
    screen = console()
    if prepare:
        say("starting Spark once, to keep what it loads (about half a minute)", err=True)
        archive = prepare_archive()
        say(f"made {archive} ({archive.stat().st_size / (1 << 20):.0f} MiB)", err=True)

    def tell(finding: Finding) -> None:
        mark = "[green]ok[/green]  " if finding.ok else "[red]FAIL[/red]"
        screen.print(f"{mark} {finding.check:<8}", end=" ")
        screen.print(cell(finding.found), soft_wrap=True)
        if finding.action:
            screen.print(cell(f"     what to do: {finding.action}"), soft_wrap=True)

    findings = examine(root.absolute(), (lambda finding: None) if as_json else tell)
    healthy = all(finding.ok for finding in findings)
    if as_json:
        print_json({"ok": healthy, "findings": findings})
    sys.exit(0 if healthy else 1)


@cli.command("demo")
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=Path(".streamwork/demo"),
    show_default=True,
    help="Where to put it all.",
)
@click.option(
    "--mode",
    type=click.Choice([Mode.MICROBATCH.value, Mode.LOCAL.value]),
    default=Mode.MICROBATCH.value,
    show_default=True,
    help="microbatch: on Spark. local: in this process, without Spark.",
)
@JSON
def demo_command(folder: Path, mode: str, as_json: bool) -> None:
    """Run the README's first job on made-up transactions, and show what it leaves behind."""
    outcome = _watched(as_json, lambda watcher: run_demo(folder.absolute(), Mode(mode), watcher))
    if as_json:
        print_json(outcome)
    else:
        look(folder.absolute(), say)


def _explain(job: Job, as_json: bool) -> None:
    layout = Layout.of(job.graph(), job.settings.groups)
    if as_json:
        print_json({"job": job.name, "chains": layout.chains, "edges": layout.edges, "native": layout.native})
    else:
        say(f"{job.describe()}\n{layout.explain()}")


def _watched(as_json: bool, work: Callable[[Watcher], Outcome]) -> Outcome:
    """Run with somebody watching. With --json, standard output is for the answer alone."""
    watcher = PlainWatcher(sys.stderr) if as_json else watcher_for(sys.stdout)
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        try:
            return work(watcher)
        finally:
            watcher.close()


def main(arguments: list[str] | None = None) -> None:
    """The entry point: turns errors into text or JSON and an exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    as_json = "--json" in given
    print_anything()
    try:
        command = ("streamwork", *given)
        sys.exit(cli.main(given, prog_name="streamwork", standalone_mode=False, obj=command) or 0)
    except click.exceptions.NoArgsIsHelpError as error:
        say(error.format_message())
        sys.exit(2)
    except click.UsageError as error:
        hint = f"{error.ctx.command_path} --help" if error.ctx else "streamwork --help"
        _fail(WrongUse("SW-USAGE", error.format_message(), f"see `{hint}`"), as_json)
    except click.exceptions.Abort:
        sys.exit(130)
    except StreamworkError as error:
        _fail(error, as_json)
    except OSError as error:  # `run` has handled its own
        action = "bring the file or folder back, or let this user read it, and try again"
        _fail(JobFailed("SW-IO-FAILED", str(error), action), as_json)


def _fail(error: StreamworkError, as_json: bool) -> None:
    if as_json:
        print_json({"error": error.to_dict()})
    else:
        screen = console(err=True)
        screen.print(f"[bold red]{error.code}[/bold red]", end=" ")
        screen.print(cell(error.cause), soft_wrap=True)
        screen.print(cell(f"  what to do: {error.action}"), soft_wrap=True)
    sys.exit(error.exit_code)
