"""``streamwork dead-letters``: lists, shows and replays events that failed permanently."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
import msgspec

from streamwork.cli.job_arguments import about_a_job, find
from streamwork.cli.output import JSON, print_json, say
from streamwork.delivery import Letter
from streamwork.epoch.store import Store
from streamwork.errors import WrongUse
from streamwork.job.jobfile import load_job
from streamwork.observe.dead_letters import (
    DeadLetterBook,
    LetterFacts,
    ListedLetter,
    event_of,
    read_letter,
    read_letters,
)
from streamwork.run.replaying import replay
from streamwork.wording import plural
from streamwork.world import RealDisk

MOST_ERROR = 80  # characters in a list

COMPONENT = click.option("--component", metavar="ID", help="Only the letters of one component.")


@click.group("dead-letters")
def letters_group() -> None:
    """List, show and replay events that failed permanently."""


@letters_group.command("list")
@about_a_job
@COMPONENT
@click.option("--last", type=click.IntRange(1), metavar="N", help="Only the N newest, the newest checkpoint first.")
@click.option("--after", metavar="ID", help="With --last: those behind this one in that order.")
@JSON
def list_command(
    job: str, root: Path | None, component: str | None, last: int | None, after: str | None, as_json: bool
) -> None:
    """List the dead letters of a job, oldest checkpoint first."""
    root, name = find(job, root)
    book = DeadLetterBook(root, name)
    if component is not None:
        book.check_component(component)
    if last is None and after is not None:
        raise WrongUse("SW-USAGE", "--after needs --last", "add --last N")
    if last is not None:
        page = read_letters(root, name, last, component, after)
        if as_json:
            print_json(page)
            return
        found = book.find(one.id for one in page.dead_letters)
    else:
        found = book.all(component)
    if as_json:
        shown = [LetterFacts.of(one) for one in found]
        print_json({"job": name, "root": str(root), "count": len(found), "dead_letters": shown})
        return
    say(f"job {name}, root {root}")
    names = ("id", "component", "epoch", "attempts", "replayed", "error")
    table = [names, *map(_line, found)]
    widths = [max(len(row[place]) for row in table) for place in range(len(names) - 1)]
    for row in table if found else ():
        say("  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]))
    say(f"{plural(len(found), 'dead letter')}, {sum(one.replayed for one in found):,} of them replayed")


@letters_group.command("show")
@about_a_job
@click.argument("letter", metavar="ID")
@JSON
def show_command(job: str, root: Path | None, letter: str, as_json: bool) -> None:
    """Show one dead letter in full."""
    root, name = find(job, root)
    if as_json:
        print_json(read_letter(root, name, letter))
        return
    (found,) = DeadLetterBook(root, name).find([letter])
    facts = {**msgspec.structs.asdict(LetterFacts.of(found)), "replayed": "yes" if found.replayed else "no"}
    for fact, value in facts.items():
        say(f"{fact + ':':<11} {value}")
    say("event:" if found.letter.to else "text:")
    say(_pretty(found.letter))


@letters_group.command("replay")
@click.argument("job", metavar="JOBFILE[:NAME]")
@click.option("--root", type=click.Path(path_type=Path), help="The root, if it is not .streamwork beside JOBFILE.")
@click.argument("letters", metavar="[ID]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All events that have not been replayed yet.")
@COMPONENT
@JSON
def replay_command(
    job: str, root: Path | None, letters: tuple[str, ...], everything: bool, component: str | None, as_json: bool
) -> None:
    """Replay dead letters, through the job's inbox. Each is processed once, by the component that failed it.

    It needs the job file: every event is checked against the current type of the component's input before anything is written.
    """
    if root is not None and not Path(job.partition(":")[0]).is_file() and Store(RealDisk(), root, job).identity():
        raise WrongUse(
            "SW-USAGE",
            f"{job} is the name of a job, but a replay needs the job file, to check events against its current types",
            f"`streamwork dead-letters replay --root {shlex.quote(str(root))} JOBFILE --all`, with that file as JOBFILE",
        )
    if everything == bool(letters) or (component is not None and not everything):
        raise WrongUse("SW-USAGE", "which letters?", "name their ids, or use --all [--component ID]")
    loaded = load_job(job)
    root = (root or loaded.default_root).absolute()
    book = DeadLetterBook(root, loaded.job.name)
    graph = loaded.job.graph()
    if component is not None:
        book.check_component(component, [node.id for node in graph.nodes])
    chosen = book.replayable(component) if everything else [one.letter for one in book.find(letters)]
    done = replay(book.store, str(root), graph, chosen)
    if as_json:
        print_json(done)
    elif done.letters:
        say(f"{plural(len(done.letters), 'letter')} will be processed with the next checkpoint of {done.job}")
    else:
        say("nothing to replay")


def _line(one: ListedLetter) -> tuple[str, ...]:
    letter, error = one.letter, " ".join(one.letter.error.split())
    short = error if len(error) <= MOST_ERROR else error[: MOST_ERROR - 4] + " ..."
    replayed = "yes" if one.replayed else "no" if letter.to else "-"
    return (letter.id, letter.component, str(letter.epoch), str(letter.attempts), replayed, short)


def _pretty(letter: Letter) -> str:
    event = event_of(letter)
    return event if isinstance(event, str) else msgspec.json.format(msgspec.json.encode(event), indent=2).decode()
