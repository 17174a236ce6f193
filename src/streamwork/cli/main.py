"""The command line. Exit codes: 0 success, 1 the job failed, 2 wrong use, 3 refused because it is not safe."""

from __future__ import annotations

import sys

import click

import streamwork
from streamwork.cli.check_command import check_command
from streamwork.cli.compare_command import compare_command
from streamwork.cli.console_command import console_command
from streamwork.cli.explain_command import explain_command
from streamwork.cli.history_command import history_command
from streamwork.cli.job_commands import checkpoints_command, status_command, stop_command
from streamwork.cli.job_log_command import job_log_command
from streamwork.cli.lambda_commands import lambda_group
from streamwork.cli.letter_commands import letters_group
from streamwork.cli.log_commands import log_group
from streamwork.cli.output import cell, console, print_json, say
from streamwork.cli.project_commands import demo_group, dev_command, doctor_command, new_command
from streamwork.cli.query_command import query_command
from streamwork.cli.rescale_command import rescale_command
from streamwork.cli.run_command import run_command
from streamwork.cli.savepoint_commands import savepoint_group
from streamwork.cli.savepoint_diff import diff_command
from streamwork.cli.serve_command import serve_command
from streamwork.cli.state_commands import state_group
from streamwork.cli.state_edit_commands import edit_command, import_command
from streamwork.errors import JobFailed, StreamworkError, WrongUse
from streamwork.world import print_anything


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(streamwork.__version__, prog_name="streamwork")
def cli() -> None:
    """Stateful stream processing for Python people, on Spark, with state in open files."""


for command in (
    run_command,
    new_command,
    dev_command,
    log_group,
    letters_group,
    status_command,
    stop_command,
    checkpoints_command,
    history_command,
    explain_command,
    job_log_command,
    check_command,
    rescale_command,
    savepoint_group,
    state_group,
    compare_command,
    serve_command,
    query_command,
    console_command,
    lambda_group,
    doctor_command,
    demo_group,
):
    cli.add_command(command)
savepoint_group.add_command(diff_command)
state_group.add_command(edit_command)
state_group.add_command(import_command)


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
    except OSError as error:  # other than those of a run, which handles its own
        action = "restore the file or folder, or make it readable for this user, and try again"
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
