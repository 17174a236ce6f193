"""The demo on a terminal: both graphs with their figures, and the last events. `picture` is pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from streamwork.cli.network.reading import ANALYSERS, Sent
from streamwork.cli.network.schedule import Job, Victim
from streamwork.cli.network.state import LIMIT_MS, Note, State, clock, milliseconds
from streamwork.cli.output import cell

BARS = "▁▂▃▄▅▆▇█"
GOOD, BAD, DIM = "green", "bold red", "dim"
FIXED = 17
"""Lines of the picture without the events: the head, and both jobs with their frames."""
LEAST_EVENTS = 2
KEPT = 50
REFRESHES = 4


class Screen:
    """Shows the picture until `close`."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._notes: list[Note] = []
        self._state: State | None = None
        self._live = Live(console=console, screen=True, refresh_per_second=REFRESHES, get_renderable=self._renderable)
        self._live.start()

    def note(self, note: Note) -> None:
        self._notes = [*self._notes, note][-KEPT:]

    def update(self, state: State) -> None:
        self._state = state

    def close(self) -> None:
        self._live.stop()

    def _renderable(self) -> Any:
        return picture(self._state, self._notes, self._console.height)


def picture(state: State | None, notes: Sequence[Note], height: int) -> Group:
    room = max(LEAST_EVENTS, height - FIXED - 2)
    parts: list[Any] = [_head(state)]
    if state is not None:
        parts += [_fraud(state), _usage(state)]
    else:
        room += FIXED - 1
    return Group(*parts, _events(notes[-room:], room))


def _head(state: State | None) -> Table:
    head = Table.grid(expand=True)
    head.add_column(no_wrap=True)
    head.add_column(justify="right", no_wrap=True)
    title = Text.assemble((" Streamwork", "bold"), (" · a card network in a box", DIM))
    if state is None:
        head.add_row(title, "starting ")
        return head
    end = "until Ctrl-C" if state.seconds is None else f"of {clock(state.seconds)}"
    head.add_row(title, Text(f"{state.phase} · {clock(state.traffic)} {end} " if state.traffic else f"{state.phase} "))
    return head


# ---- fraud detection ------------------------------------------------------------------------------------------------


def _fraud(state: State) -> Panel:
    view, sent = state.now.job(Job.FRAUD), state.now.sent
    down = {one.victim for one in state.incidents if one.recovered is None}
    lost = {one.analyser for one in state.incidents if one.recovered is None and one.victim is Victim.ANALYSER}
    whole = bool(down & {Victim.TASK, Victim.FRAUD_DRIVER}) or not view.running
    dots = [_dot(not whole and name in view.processes and name not in lost) for name in ANALYSERS]
    names = [f"{name:<14}" for name in ANALYSERS]
    rest = BAD if whole else ""
    graph = [
        Text.assemble("               ┌▶ ", (names[0], BAD if ANALYSERS[0] in lost else rest), " ", dots[0], " ┐"),
        Text.assemble(
            "gateway ▶ log  ├▶ ",
            (names[1], BAD if ANALYSERS[1] in lost else rest),
            " ",
            dots[1],
            " ├▶ ",
            ("aggregator", rest),
            " ▶ decisions ▶ presenter",
        ),
        Text.assemble("               └▶ ", (names[2], BAD if ANALYSERS[2] in lost else rest), " ", dots[2], " ┘"),
    ]
    body: list[Any] = [*graph, Text(), _rate("decided", state.decided), _latency(sent), _answers(sent), _caught(sent)]
    return _panel(
        "fraud detection · live · at-most-once", view.running and not whole, _checkpoint(state, Job.FRAUD), body
    )


def _latency(sent: Sent | None) -> Text:
    latency = {} if sent is None else sent.latency
    line = Text("latency    ", DIM)
    for name in ("p50", "p99", "max"):
        value = latency.get(f"{name}_ms")
        known = bool(latency.get("decisions"))
        style = "" if not known else GOOD if value is not None and value <= LIMIT_MS else BAD
        line.append(f"{name} ").append(f"{milliseconds(value):>6} ms   ", f"{style} not dim")
    return line.append(f"limit {LIMIT_MS:g} ms")


def _answers(sent: Sent | None) -> Text:
    answers = {} if sent is None else sent.answers
    known = sum(answers.values())
    share = f"{answers.get('in time', 0) / known:.1%} in time" if known else "-"
    line = Text("answers    ", DIM).append(share, "not dim")
    for name in ("default: late", "default: missing"):
        line.append(f"   {name} ").append(f"{answers.get(name, 0):,}", "not dim")
    return line


def _caught(sent: Sent | None) -> Text:
    if sent is None:
        return Text("fraud      -", DIM)
    share = f" ({sent.caught / sent.planted:.0%})" if sent.planted else ""
    line = Text("fraud      ", DIM).append(f"{sent.caught:,} of {sent.planted:,} planted caught{share}", "not dim")
    return line.append("   false alarms ").append(f"{sent.flagged - sent.caught:,}", "not dim")


# ---- system usage ---------------------------------------------------------------------------------------------------


def _usage(state: State) -> Panel:
    now, view = state.now, state.now.job(Job.USAGE)
    down = any(one.recovered is None and one.victim.job is Job.USAGE for one in state.incidents)
    style = BAD if down or not view.running else ""
    graph = Text.assemble(
        "log ▶ ", ("look-up ▶ analyser", style), " ▶ usage.db", ("      look-up reads decisions", DIM)
    )
    counted = Text("total      ", DIM).append(f"{now.totals.transactions:,} of {now.logged:,}", "bold not dim")
    counted.append(" in the log   ").append(f"{now.behind:,} behind", "not dim")
    found = Text("judged     ", DIM).append(f"{now.totals.fraudulent:,} fraudulent", "not dim")
    found.append(f"   {now.totals.unknown:,} unknown", "not dim").append("   no verdict is not no fraud")
    body = [graph, _rate("counted", state.counted), counted, found]
    return _panel(
        "system usage · microbatch · exactly-once", view.running and not down, _checkpoint(state, Job.USAGE), body
    )


# ---- parts ----------------------------------------------------------------------------------------------------------


def _dot(up: bool) -> tuple[str, str]:
    return ("●", GOOD) if up else ("✗", BAD)


def _rate(name: str, rates: Sequence[float]) -> Text:
    now = rates[-1] if rates else 0.0
    line = Text(f"{name:<10} ", DIM).append(f"{now:>6,.0f}/s  ", "not dim")
    return line.append(spark(rates[-40:]), "cyan not dim")


def spark(values: Sequence[float]) -> str:
    """A bar for each value, relative to the largest one."""
    top = max(values, default=0.0)
    if top <= 0:
        return BARS[0] * len(values)
    return "".join(BARS[min(len(BARS) - 1, int(max(0.0, value) / top * (len(BARS) - 1) + 0.5))] for value in values)


def _checkpoint(state: State, job: Job) -> str:
    view = state.now.job(job)
    age = "" if view.age is None or not view.checkpoint else f", {view.age:.0f} s ago"
    return f"checkpoint {view.checkpoint:,}{age} · fence {view.fence}"


def _panel(title: str, up: bool, checkpoint: str, body: list[Any]) -> Panel:
    state = (" running ", GOOD) if up else (" down ", BAD)
    return Panel(
        Group(*(_one_line(line) for line in body)),
        title=Text.assemble((f" {title} ·", "bold"), state),
        title_align="left",
        subtitle=Text(f" {checkpoint} ", DIM),
        subtitle_align="right",
        border_style="none" if up else "red",
        padding=(0, 1),
    )


def _one_line(line: Text) -> Text:
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


def _events(notes: Sequence[Note], room: int) -> Panel:
    lines = []
    for note in notes:
        style = "" if note.good is None else GOOD if note.good else BAD
        line = Text(f"{clock(note.at)}  ", DIM)
        line.append_text(cell(note.text))
        line.stylize(f"{style} not dim", 7)
        lines.append(_one_line(line))
    lines += [Text()] * (room - len(lines))
    return Panel(Group(*lines), title=" events ", title_align="left", padding=(0, 1))
