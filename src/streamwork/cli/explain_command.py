"""`streamwork explain`: how a checkpoint works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from streamwork.cli.explain_text import epoch_lines, playback_lines
from streamwork.cli.job_arguments import find
from streamwork.cli.output import JSON, print_json, say
from streamwork.errors import WrongUse
from streamwork.observe.explained import ExplainedEpoch, explain_epoch
from streamwork.testing.playback import Playback, demonstrate
from streamwork.world import RealClock


@click.command("explain")
@click.argument("job", metavar="[JOBFILE[:NAME] | JOB]", required=False)
@click.argument("epoch", type=click.IntRange(min=1), required=False)
@click.option("--root", type=click.Path(path_type=Path), help="The root; JOB is then the job's name.")
@click.option("--simulate", type=int, metavar="SEED", help="Play a small job in the simulator, step by step.")
@click.option(
    "--crash-at", type=click.IntRange(min=1), multiple=True, metavar="STEP", help="With --simulate: crash there."
)
@JSON
def explain_command(
    job: str | None,
    epoch: int | None,
    root: Path | None,
    simulate: int | None,
    crash_at: tuple[int, ...],
    as_json: bool,
) -> None:
    """Explain how a checkpoint works: step by step, with the files of one EPOCH of a job (by default the newest completed
    one), and what the next start does after a kill at each step.
    """
    if (job is None) == (simulate is None) or (crash_at and simulate is None):
        raise WrongUse(
            "SW-USAGE",
            "explain takes either a job, or --simulate SEED",
            "use `streamwork explain JOB` for a job, or `streamwork explain --simulate 1` for a simulated one",
        )
    if simulate is not None:
        playback = demonstrate(simulate, crash_at)
        _print(playback, playback_lines(playback), as_json)
    else:
        assert job is not None
        explained = explain_epoch(*find(job, root), RealClock(), epoch)
        _print(explained, epoch_lines(explained), as_json)


def _print(value: ExplainedEpoch | Playback, lines: Iterator[str], as_json: bool) -> None:
    if as_json:
        print_json(value)
    else:
        for line in lines:
            say(line)
