"""``streamwork demo``: the card network by default; ``streamwork demo card-usage``: the README's first job."""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from streamwork.cli.network.demo import Demo, Ending, Interrupted, Options
from streamwork.cli.network.lines import Lines
from streamwork.cli.network.state import Show
from streamwork.cli.network.summary import Summary, summary_lines
from streamwork.cli.network.system import Places
from streamwork.cli.output import JSON, console, print_json, say
from streamwork.errors import JobFailed, WrongUse

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LEAST_SECONDS = 5.0


@click.command("network")
@click.option(
    "--seconds",
    type=click.FloatRange(min=LEAST_SECONDS),
    default=Options().seconds,
    show_default=True,
    help="Seconds of transactions. The start and the end take about half a minute more.",
)
@click.option("--forever", is_flag=True, help="Until Ctrl-C, which counts what was sent, and prints the summary.")
@click.option(
    "--rate",
    type=click.FloatRange(10, 5000),
    default=Options().rate,
    show_default=True,
    help="Transactions per second.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the transactions, and of the faults.")
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Leave all files in DIR, which must be empty or new.",
)
@JSON
def network_command(seconds: float, forever: bool, rate: float, seed: int, keep: Path | None, as_json: bool) -> None:
    """Run a card network in a box: fraud detection and system usage, which are killed now and then, and recover.

    Exits with 1 if a total is wrong at the end.
    """
    options = Options(seconds=None if forever else seconds, rate=rate, seed=seed)
    try:
        with _folder(keep) as folder:
            summary = run_demo(options, folder, as_json)
    except Interrupted:
        say("ended at once; nothing was counted", err=True)
        sys.exit(130)
    if as_json:
        print_json(summary)
    else:
        for line in summary_lines(summary):
            say(line)
        if keep is not None:
            say(f"the files are in {keep.absolute()}")
    sys.exit(0 if summary.right else 1)


def run_demo(options: Options, folder: Path, as_json: bool) -> Summary:
    ending = Ending()
    before = {number: signal.signal(number, ending.ask) for number in SIGNALS}
    show = _show(as_json)
    try:
        return Demo(options, Places(folder), show, ending).run()
    except TimeoutError as error:
        raise JobFailed(
            "SW-DEMO-FAILED", str(error), "run `streamwork doctor`; with --keep DIR the demo leaves its files in DIR"
        ) from None
    finally:
        show.close()
        for number, handler in before.items():
            signal.signal(number, handler)


def _show(as_json: bool) -> Show:
    if as_json or not sys.stdout.isatty():
        return Lines(err=as_json)
    from streamwork.cli.network.screen import Screen

    return Screen(console())


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """A folder that is removed after the block, unless it is to be kept."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="streamwork-demo-", ignore_cleanup_errors=True) as made:
            yield Path(made)
        return
    folder = keep.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise WrongUse("SW-DEMO-FOLDER", f"{folder} is not empty", "give --keep a new folder")
    yield folder
