"""``streamwork compare``: two versions of a job over the same input, from one savepoint."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from types import TracebackType
from typing import Self

import click
from rich.status import Status

from streamwork.cli.compare_text import show_comparison
from streamwork.cli.output import JSON, cell, console, print_json, say
from streamwork.comparison.comparing import RUNS, Asked, compare
from streamwork.comparison.report import Writer, check_folder
from streamwork.comparison.trial import Version
from streamwork.epoch.job_folder import open_store
from streamwork.epoch.savepoints.graph_record import GraphRecord
from streamwork.epoch.savepoints.origin import CHECKPOINT, Origin, savepoint_at
from streamwork.epoch.start_records import StartRecords
from streamwork.epoch.store import Store
from streamwork.job import params
from streamwork.job.jobfile import JobFile, load_job
from streamwork.statefiles.diff import EXAMPLES
from streamwork.wording import plural
from streamwork.world import RealClock

OUT = "comparison"
LINE_SECONDS = 2.0


@click.command("compare")
@click.argument("jobfile_a", metavar="A[:NAME]")
@click.argument("jobfile_b", metavar="[B[:NAME]]", required=False)
@click.option("--root", type=click.Path(path_type=Path), help="The root of the job  [default: .streamwork beside A]")
@click.option(
    "--from", "origin", required=True, metavar="WHAT", help="savepoint:NAME, checkpoint:N, or the PATH of a savepoint."
)
@click.option(
    "--events", type=click.IntRange(1), default=100_000, show_default=True, help="How many events both versions read."
)
@click.option("--param", multiple=True, metavar="NAME=VALUE", help="A parameter of B. Repeat for several.")
@click.option("--param-a", multiple=True, metavar="NAME=VALUE", help="A parameter of A. Repeat for several.")
@click.option("--drop-state", multiple=True, metavar="ID", help="B begins without the state of this component.")
@click.option(
    "--limit", type=click.IntRange(0), default=EXAMPLES, show_default=True, help="Examples of each kind of difference."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path(OUT),
    show_default=True,
    help="The folder of comparison.json and differences.parquet.",
)
@click.option("--exit-code", is_flag=True, help="Exit with 1 if there are differences.")
@JSON
def compare_command(
    jobfile_a: str,
    jobfile_b: str | None,
    root: Path | None,
    origin: str,
    events: int,
    param: tuple[str, ...],
    param_a: tuple[str, ...],
    drop_state: tuple[str, ...],
    limit: int,
    out: Path,
    exit_code: bool,
    as_json: bool,
) -> None:
    """Run the job files A and B over the same input, from one savepoint, and show what differs in their outputs and their state.

    Without B, it is A with other parameters (--param). Nothing is written but the folder --out: sinks, logs and the job's folder
    are left alone, and the job may run meanwhile.
    """
    check_folder(out)
    loaded = load_job(jobfile_a)
    root = (root or loaded.default_root).absolute()
    found, ran = _origin(open_store(root, loaded.job.name), origin)
    a = _version("A", jobfile_a, ran, params.parse(param_a))
    b = _version("B", jobfile_b or jobfile_a, ran, params.parse(param), drop_state)
    with (
        tempfile.TemporaryDirectory(prefix="streamwork-compare-") as scratch,
        _Progress(events) as progress,
        redirect_stdout(sys.stderr),  # of job code that prints
    ):
        result = compare(Asked(a, b, found, root, events, limit), Path(scratch), RealClock(), progress.tell)
        writer = Writer(out)
        writer.write_differences(result.differences())
    comparison = writer.write_report(result.comparison)
    if as_json:
        print_json(comparison)
    else:
        show_comparison(comparison)
    if exit_code and not comparison.same:
        raise SystemExit(1)


def _origin(store: Store, text: str) -> tuple[Origin, params.Values]:
    """Where both begin, and the parameters that the job had there."""
    starts = StartRecords(store.disk, store.folder / "fences")
    found = Origin.find(store, starts, text)
    if text.startswith(CHECKPOINT):
        return found, tuple(starts.params().items())
    record: GraphRecord = savepoint_at(store, text).graph
    return found, tuple(record.params.items())


def _version(
    label: str, jobfile: str, ran: params.Values, given: Mapping[str, str], drop_state: tuple[str, ...] = ()
) -> Version:
    """The job of a file with the parameters that it ran with, as far as it still asks for them, and those that are given."""
    loaded: JobFile = load_job(jobfile, given)
    known = {name: value for name, value in params.texts(ran).items() if name in loaded.job.params}
    loaded = load_job(jobfile, {**known, **given})
    return Version(label, jobfile, loaded.job, loaded.job.params, drop_state)


class _Progress:
    """One changing line on a terminal, a line now and then elsewhere; both on standard error."""

    def __init__(self, events: int) -> None:
        self._events = events
        self._status: Status | None = None
        self._said = time.monotonic()

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._status = console(err=True).status("starting")
            self._status.start()
        return self

    def tell(self, run: str, done: int) -> None:
        line = f"{run} ({RUNS.index(run) + 1} of {len(RUNS)}): {done:,} of {plural(self._events, 'event')}"
        if self._status is not None:
            self._status.update(cell(line))
        elif time.monotonic() - self._said >= LINE_SECONDS:
            self._said = time.monotonic()
            say(line, err=True)

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._status is not None:
            self._status.stop()
