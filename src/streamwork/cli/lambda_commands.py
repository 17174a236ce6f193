"""``streamwork lambda``: batch runs of a lambda, and its merged view.

Errors are raised as they are; `cli.main` turns them into text or JSON and an exit code.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from streamwork.cli.job_arguments import load_as_it_ran, with_job_file
from streamwork.cli.output import JSON, print_json, say
from streamwork.cli.progress import watched
from streamwork.cli.serve_command import serve
from streamwork.cli.server_options import LISTEN
from streamwork.cli.state_text import show_table
from streamwork.hosts.master import DEFAULT_MASTER
from streamwork.lambdas import BatchRun, Stand, View, lambda_of, open_view, run_batch
from streamwork.run.mode import Mode
from streamwork.run.stopping import Stop
from streamwork.run.watcher import Watcher
from streamwork.statefiles.plain_values import plain_lists, plain_rows
from streamwork.wording import plural
from streamwork.world import RealClock


@click.group("lambda")
def lambda_group() -> None:
    """Compute a lambda exactly, in batch runs, and read its merged view."""


@lambda_group.command("run")
@with_job_file
@click.option(
    "--mode",
    type=click.Choice([Mode.BATCH.value, Mode.LOCAL.value]),
    default=Mode.BATCH.value,
    show_default=True,
    help="batch: on Spark. local: in this process.",
)
@click.option("--master", default=DEFAULT_MASTER, help="Spark master: local[N], or spark://HOST:PORT.")
@click.option("--accept-gone", is_flag=True, help="Compute although input that an earlier run has counted is gone.")
@JSON
def run_command(job: str, root: Path | None, mode: str, master: str, accept_gone: bool, as_json: bool) -> None:
    """Compute everything from scratch, up to the newest checkpoint of the streaming job, which may be running. When the run is
    complete, the view shows it.
    """
    clock = RealClock()
    stop = Stop(clock)
    click.get_current_context().with_resource(stop.on_signal())
    loaded, root = load_as_it_ran(job, root)
    definition = lambda_of(loaded.job)

    def work(watcher: Watcher) -> BatchRun:
        return run_batch(
            definition,
            root,
            mode=Mode(mode),
            accept_gone=accept_gone,
            watcher=watcher,
            clock=clock,
            stop=stop,
            master=master,
            module_folder=loaded.path.parent,
        )

    made = watched(as_json, work)
    if as_json:
        print_json(made)
        return
    for note in made.notes:
        say(f"note: {note}")
    say(
        f"run {made.run} of {made.name} is shown: {plural(made.events, 'event')} up to checkpoint {made.checkpoint} of the "
        f"streaming job, {made.seconds:.1f} s"
    )


@lambda_group.command("status")
@with_job_file
@JSON
def status_command(job: str, root: Path | None, as_json: bool) -> None:
    """Show which batch run the view shows, and how far the streaming job is."""
    with _view(job, root) as view:
        stand = view.stand()
    if as_json:
        print_json(stand)
    else:
        say(_stand_text(stand))


@lambda_group.command("get")
@with_job_file
@click.argument("key", nargs=-1, required=True)
@JSON
def get_command(job: str, root: Path | None, key: tuple[str, ...], as_json: bool) -> None:
    """Show the answer for KEY; of a key of several fields, give the value of each."""
    with _view(job, root) as view:
        answer = view.get(view.key_of(key))
    parts = {"record": answer.record, "exact": answer.exact, "recent": answer.recent}
    if as_json:
        print_json({**parts, "is_exact": answer.is_exact, "stand": answer.stand})
        return
    if answer.record is None:
        say(f"no event of {', '.join(key)}")
    else:
        named = {"both": answer.record, "batch run": answer.exact, "behind it": answer.recent}
        names = list(msgspec.structs.asdict(answer.record))
        rows = [[what, *msgspec.structs.asdict(one).values()] for what, one in named.items() if one is not None]
        show_table(["part", *names], rows)
    say(_stand_text(answer.stand))


@lambda_group.command("query")
@with_job_file
@click.argument("sql")
@JSON
def query_command(job: str, root: Path | None, sql: str, as_json: bool) -> None:
    """Answer SQL over the merged view, with DuckDB. The table has the name of the lambda, such as card_spending."""
    with _view(job, root) as view:
        found, stand = view.sql(sql), view.stand()
    if as_json:
        print_json({"stand": stand, "count": found.num_rows, "rows": list(plain_rows(found))})
        return
    show_table(found.schema.names, plain_lists(found))
    say(_stand_text(stand))


@lambda_group.command("serve")
@with_job_file
@LISTEN
@JSON
def serve_command(job: str, root: Path | None, listen: str, as_json: bool) -> None:
    """Answer questions about the merged view over HTTP until Ctrl-C, and about the state of the streaming job, as the command
    serve does. Each answer says which part of it is exact.
    """
    from streamwork.lambdas.http import MergedRoutes  # what the server needs is imported by it only

    loaded, root = load_as_it_ran(job, root)
    definition = lambda_of(loaded.job)
    merged = MergedRoutes(lambda: open_view(definition, root))
    try:
        serve(root, definition.name, listen, as_json, further=merged.further())
    finally:
        merged.close()


def _view(job: str, root: Path | None) -> View[Any]:
    loaded, root = load_as_it_ran(job, root)
    return open_view(lambda_of(loaded.job), root)


def _stand_text(stand: Stand) -> str:
    stream = f"the streaming job is at checkpoint {stand.checkpoint}, written {stand.age:.1f} s ago"
    if stand.run is None or stand.computed is None:
        return f"no batch run yet; {stream}"
    computed = datetime.fromtimestamp(stand.computed, UTC)
    return (
        f"exact up to checkpoint {stand.seam} (batch run {stand.run}, computed {computed:%Y-%m-%d %H:%M:%S} UTC); "
        f"behind it, {stream}"
    )
