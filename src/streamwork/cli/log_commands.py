"""``streamwork log``: creates, fills, tails and describes logs.

Errors are raised as they are; `cli.main` turns them into text or JSON and an exit code.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

import click
import msgspec
from rich.table import Table

from streamwork.cli.output import JSON, cell, console, print_json, say, say_json
from streamwork.components import Event
from streamwork.components.columns import check_entered
from streamwork.components.duration import seconds
from streamwork.components.field_types import Misfit
from streamwork.errors import JobFailed, WrongUse
from streamwork.job.jobfile import import_file
from streamwork.log import EventLog, FileLocks, Fsync, Isolation, Located, LogInfo, LogReader, Policy, describe
from streamwork.wording import plural

PATH = click.argument("path", type=click.Path(path_type=Path))
_READ = 1 << 20
_SIZE = re.compile(r"(\d+)\s*([KMGT]?)B?", re.IGNORECASE)


@click.group("log")
def log_group() -> None:
    """The embedded event log: partitioned, durable, no server."""


@log_group.command("create")
@PATH
@click.option(
    "--event", "event", required=True, metavar="FILE.py:CLASS", help="The type of the events, or MODULE:CLASS."
)
@click.option("--key", metavar="FIELD[,FIELD...]", help="Events with equal keys go to one partition, in order.")
@click.option("--partitions", type=int, default=1, show_default=True)
@click.option("--groups", type=int, default=256, show_default=True, help="Key groups; a multiple of any parallelism.")
@click.option("--segment-size", default="64MB", show_default=True, help="Begin a new file at this size.")
@click.option("--segment-age", metavar="DURATION", help='Begin a new file at this age, such as "1h".')
@click.option("--retain-size", metavar="SIZE", help="Per partition, keep about so much; consumers keep what they need.")
@click.option("--retain-age", metavar="DURATION", help="Keep events for so long; consumers keep what they need.")
@JSON
def create_command(
    path: Path,
    event: str,
    key: str | None,
    partitions: int,
    groups: int,
    segment_size: str,
    segment_age: str | None,
    retain_size: str | None,
    retain_age: str | None,
    as_json: bool,
) -> None:
    """Create a log in the folder PATH."""
    policy = Policy(
        segment_bytes=_bytes(segment_size),
        segment_age=None if segment_age is None else seconds(segment_age),
        retain_bytes=None if retain_size is None else _bytes(retain_size),
        retain_age=None if retain_age is None else seconds(retain_age),
    )
    fields = None if key is None else tuple(name.strip() for name in key.split(","))
    log = EventLog.create(path, _load_event(event), key=fields, partitions=partitions, groups=groups, policy=policy)
    info = describe(log, FileLocks())
    if as_json:
        print_json(info)
    else:
        by = f"by {', '.join(info.key)}" if info.key else "in turn"
        say(f"made {path.absolute()}: {info.event}, {plural(partitions, 'partition')}, {by}")


@log_group.command("append")
@PATH
@click.option("--fsync", type=click.Choice([mode.value for mode in Fsync]), default="interval", show_default=True)
@JSON
def append_command(path: Path, fsync: str, as_json: bool) -> None:
    """Append events from standard input, one JSON object per line, with all fields (null where allowed).

    A line that is not such an event ends the command with its number; the events before it are kept.
    """
    with EventLog[Event](path, fsync=fsync) as log:
        count = 0
        try:
            for events in _decoded(log.event, sys.stdin.buffer):
                log.append(events)
                count += len(events)
        except _BadLine as bad:
            raise JobFailed(
                "SW-LOG-BAD-LINE",
                f"line {bad.number}: {bad.reason}. The {plural(count, 'event')} before it "
                f"{'was' if count == 1 else 'were'} appended. The line: {bad.text}",
                f"correct the line and append again from line {bad.number} on",
            ) from None
        torn = [str(report) for report in log.recovered]
        ends = log.ends()
    if as_json:
        print_json({"appended": count, "ends": ends, "recovered": log.recovered})
        return
    for report in torn:
        say(report, err=True)
    say(f"appended {count:,} event{'' if count == 1 else 's'}")


@log_group.command("tail")
@PATH
@click.option(
    "-n", "--last", type=click.IntRange(0), default=10, show_default=True, help="How many of the newest events."
)
@click.option("-f", "--follow", is_flag=True, help="Go on with new events as they come, until Ctrl-C.")
@click.option(
    "--isolation",
    type=click.Choice([mode.value for mode in Isolation]),
    default=Isolation.READ_COMMITTED.value,
    show_default=True,
)
@JSON
def tail_command(path: Path, last: int, follow: bool, isolation: str, as_json: bool) -> None:
    """Print the newest events, one JSON object per line; with --json, each with its partition, offset and time."""
    reader = LogReader[Event](path, isolation=isolation)
    show: Callable[[Located], Any] = _placed if as_json else lambda one: one.event
    found: Iterable[Located] = reader.tail_located(last) if follow else reader.last(last)
    for one in found:
        say_json(msgspec.json.encode(show(one)))
        if follow:
            sys.stdout.flush()


@log_group.command("info")
@PATH
@JSON
def info_command(path: Path, as_json: bool) -> None:
    """Show partitions, offsets, sizes, and the consumers with their lag."""
    info = describe(LogReader[Event](path), FileLocks())
    if as_json:
        print_json(info)
    else:
        _show(info)


def _show(info: LogInfo) -> None:
    by = f"by {', '.join(info.key)}" if info.key else "in turn"
    say(
        f"log {info.path}: {info.event}, {plural(info.events, 'event')}, {plural(info.bytes, 'byte')}, partitioned {by}"
    )
    table = Table("partition", "start", "end", "committed", "segments", "bytes", "writer", box=None)
    for p in info.partitions:
        numbers = (f"{n:,}" for n in (p.start, p.end, p.committed_end, p.segments, p.bytes))
        table.add_row(str(p.partition), *numbers, cell(str(p.writer) if p.writer else "-"))
    console().print(table)
    for p in info.partitions:
        if p.error is not None:
            say(f"partition {p.partition}: {p.error['code']} {p.error['cause']}")
    if info.consumers:
        table = Table("consumer", "source", "has read to", "lag", "needs from", box=None)
        for c in info.consumers:
            read, needed = (", ".join(f"{p}: {o:,}" for p, o in found.items()) for found in (c.read, c.offsets))
            table.add_row(cell(c.job or c.uid), cell(c.source), read, f"{c.lag:,}", needed)
        console().print(table)


def _placed(one: Located) -> dict[str, Any]:
    time = datetime.fromtimestamp(one.time / 1_000_000, UTC)
    return {"partition": one.partition, "offset": one.offset, "time": time, "event": one.event}


class _BadLine(Exception):
    def __init__(self, number: int, reason: str, line: bytes) -> None:
        super().__init__(number)
        self.number = number
        self.reason = reason
        self.text = line.decode(errors="replace").strip()[:200]


def _decoded(event: type[Event], stream: BinaryIO) -> Iterator[list[Event]]:
    """Batches of events as they arrive. The events before a bad line come first; then `_BadLine` is raised."""
    decoder, number, rest = msgspec.json.Decoder(event), 0, b""
    while block := stream.read1(_READ) if hasattr(stream, "read1") else stream.read(_READ):
        *lines, rest = (rest + block).split(b"\n")
        yield from _events(event, decoder, lines, number)
        number += len(lines)
    yield from _events(event, decoder, [rest], number)


def _events(event: type[Event], decoder: Any, lines: list[bytes], number: int) -> Iterator[list[Event]]:
    try:  # all at once is much faster; which line was bad is found out only if one was
        events = decoder.decode_lines(b"\n".join(lines))
        check_entered(event, events)
    except (msgspec.MsgspecError, UnicodeDecodeError, Misfit):
        yield from _one_by_one(event, decoder, lines, number)
    else:
        if events:
            yield events


def _one_by_one(event: type[Event], decoder: Any, lines: list[bytes], number: int) -> Iterator[list[Event]]:
    good: list[Event] = []
    for place, line in enumerate(lines, number + 1):
        if not line.strip():
            continue
        try:
            decoded = decoder.decode(line)
            check_entered(event, [decoded])
        except (msgspec.MsgspecError, UnicodeDecodeError, Misfit) as error:
            if good:
                yield good
            reason = f"{error.path}: {error}" if isinstance(error, Misfit) else str(error)
            raise _BadLine(place, reason, line) from None
        good.append(decoded)
    if good:
        yield good


def _load_event(target: str) -> type[Event]:
    module, _, name = target.rpartition(":")
    if not module:
        raise WrongUse("SW-LOG-EVENT", f"{target!r} names no class", "use FILE.py:CLASS or MODULE:CLASS")
    if module.endswith(".py"):
        if not Path(module).is_file():
            raise WrongUse("SW-LOG-EVENT", f"there is no file {Path(module).absolute()}", "use FILE.py:CLASS")
        found = getattr(import_file(Path(module).absolute()), name, None)
    else:
        try:
            found = getattr(importlib.import_module(module), name, None)
        except ImportError as error:
            raise WrongUse("SW-LOG-EVENT", f"{module} cannot be imported: {error}", "use FILE.py:CLASS") from None
    if not (isinstance(found, type) and issubclass(found, Event)):
        raise WrongUse("SW-LOG-EVENT", f"{module} has no Event type {name!r}", "define it: class NAME(Event): ...")
    return found


def _bytes(text: str) -> int:
    """`64MB` as a number of bytes; units are powers of 1024."""
    if (match := _SIZE.fullmatch(text.strip())) is None:
        raise WrongUse("SW-LOG-SETTING", f"{text!r} is no size", "write it like 64MB, 512K or 1000000")
    return int(match[1]) << 10 * " KMGT".index(match[2].upper() or " ")
