"""`RunOptions`: how to run a job. The one list of run options.

``streamwork run``, ``streamwork dev`` and ``Job.run`` are derived from it or compared with it (tests/run/test_options.py):

    cli.run_options          the command line's options, made from the fields that have a `Flag`
    RunOptions.parse         options from values as people write them: "500ms", "local", Retry(...)
    RunOptions.arguments     options as words of the command line; `parse` reads them back
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import msgspec

from streamwork.components.duration import seconds
from streamwork.errors import WrongUse
from streamwork.hosts.master import DEFAULT_MASTER
from streamwork.job import Retry, Settings, params
from streamwork.job.backpressure import Backpressure
from streamwork.job.jobfile import default_root
from streamwork.job.retry import policy
from streamwork.job.semantics import Semantics, Tracking
from streamwork.run.mode import Mode

OVERRIDES = ("checkpoint_every", "retain", "lease", "semantics", "tracking", "backpressure")
"""Options that replace a setting of the job, if they are given."""


class Flag(msgspec.Struct, frozen=True):
    """An option on the command line."""

    name: str
    help: str
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    hidden: bool = False
    negated: bool = False  # the flag turns the option off


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to run a job, checked. None leaves the choice to the job."""

    mode: Annotated[
        Mode,
        Flag(
            "--mode",
            "microbatch: on Spark, one Spark job per checkpoint. live: on Spark, tasks that run all the time, for results within "
            "milliseconds. batch: on Spark, one checkpoint over all input, in a folder and "
            "with targets of its own. local: in this process, without Spark.",
            choices=tuple(mode.value for mode in Mode),
        ),
    ] = Mode.MICROBATCH
    root: Annotated[Path, Flag("--root", "Folder of state and checkpoints  [default: .streamwork beside JOBFILE]")]
    master: Annotated[str, Flag("--master", "Spark master: local[N], or spark://HOST:PORT.")] = DEFAULT_MASTER
    until_caught_up: Annotated[bool, Flag("--until-caught-up", "Stop when all present input has been processed.")] = (
        False
    )
    checkpoint_every: Annotated[
        float | None,
        Flag("--checkpoint-every", 'Shortest time between checkpoints, such as "500ms" or "1s".', "DURATION"),
    ] = None
    retain: Annotated[
        int | None, Flag("--retain", "Number of completed checkpoints to keep  [default: the job's, 3]", "N")
    ] = None
    take_over: Annotated[
        bool, Flag("--take-over", "Take the job over without waiting for another driver's lease to expire.")
    ] = False
    standby: Annotated[
        bool,
        Flag(
            "--standby",
            "Wait, ready to start, while another driver runs the job, and take it over when that driver is gone.",
        ),
    ] = False
    lease: Annotated[
        float | None,
        Flag(
            "--lease", "A driver that shows no sign of life for so long is dead  [default: the job's, 10s]", "DURATION"
        ),
    ] = None
    semantics: Annotated[
        str | None,
        Flag(
            "--semantics",
            "What a failure may cost  [default: the job's, exactly-once]",
            choices=tuple(one.value for one in Semantics),
        ),
    ] = None
    tracking: Annotated[
        str | None,
        Flag(
            "--tracking",
            "How at-least-once knows that an event is done  [default: the job's, checkpoint]",
            choices=tuple(one.value for one in Tracking),
        ),
    ] = None
    backpressure: Annotated[
        str | None,
        Flag(
            "--backpressure",
            "What happens when an instance lags, in the modes live and local; components with a policy of their own keep it  "
            "[default: the job's, sources]",
            choices=tuple(one.value for one in Backpressure),
        ),
    ] = None
    drop_state: Annotated[
        tuple[str, ...],
        Flag(
            "--drop-state",
            "Drop the stored state of a component, once: it was removed from the job, or is to start with empty state. "
            "ID.FIELD drops one field of its record. Repeat for several.",
            "ID",
        ),
    ] = ()
    drop_request: Annotated[
        str, Flag("--drop-request", "Runs with the same text drop state once in all.", hidden=True)
    ] = ""
    change_semantics: Annotated[
        bool, Flag("--change-semantics", "Continue although the job has run with other semantics so far.")
    ] = False
    accept_divergence: Annotated[
        bool, Flag("--accept-divergence", "Catch up although rows in a sink may then differ from the state.")
    ] = False
    from_: Annotated[
        str | None,
        Flag(
            "--from",
            "Begin with the state and the positions of a savepoint or of an older checkpoint: savepoint:NAME, checkpoint:N, "
            "or the PATH of a savepoint's folder.",
            "WHAT",
        ),
    ] = None
    fork: Annotated[str | None, Flag("--as", "Run the fork of this name.", "NAME")] = None
    input: Annotated[
        dict[str, str],
        Flag(
            "--input",
            "With --from: where a source is read from, instead of the position that goes with the state: earliest, latest, or "
            "time:2026-01-31T12:00Z. Repeat for several.",
            "SOURCE=PLACE",
        ),
    ] = {}
    accept_input: Annotated[
        bool, Flag("--accept-input", "With --input: events may be skipped, or counted twice, as a refused start says.")
    ] = False
    rewind_output: Annotated[
        bool, Flag("--rewind-output", "With --from: remove what sinks have beyond that checkpoint, where they can.")
    ] = False
    refill: Annotated[
        tuple[str, ...],
        Flag(
            "--refill",
            "If this sink's target is lost, write the output of the kept checkpoints again. Repeat for several.",
            "SINK",
        ),
    ] = ()
    restart: Annotated[
        bool, Flag("--no-restart", "End the run at the first failure, instead of restarting the job.", negated=True)
    ] = True
    on_error: Annotated[
        dict[str, str],
        Flag(
            "--on-error",
            "How to handle events that fail in a component: fail, drop, dead-letter, or "
            "retry:times=5,within=1min,then=fail. Repeat for several.",
            "COMPONENT=POLICY",
        ),
    ] = {}
    queryable_latest: Annotated[
        bool,
        Flag(
            "--queryable-latest",
            "With --mode live: let state behind the newest checkpoint be queried (streamwork query --consistency latest).",
        ),
    ] = False
    param: Annotated[
        dict[str, str],
        Flag("--param", "The value of a parameter that the job file asks for. Repeat for several.", "NAME=VALUE"),
    ] = {}
    spark_log: Annotated[
        bool, Flag("--spark-log", "Show Spark's own output (otherwise it goes to spark.log in the job's folder).")
    ] = False
    module_folder: Path | None = None  # where Spark's workers import the job file from
    command: tuple[str, ...] = ()  # the command that started the run, for errors that advise another one

    def __post_init__(self) -> None:
        if self.queryable_latest and self.mode is not Mode.LIVE:
            raise WrongUse(
                "SW-JOB-SETTING",
                f"--queryable-latest does not work with --mode {self.mode.value}: state changes with each checkpoint there",
                "leave it out, or use --mode live",
            )
        self.settings(Settings(semantics=Semantics.AT_LEAST_ONCE.value))  # checks what is overridden; fits any tracking
        for on_error in self.on_error.values():
            policy(on_error)

    @classmethod
    def parse(cls, **given: Any) -> RunOptions:
        """Options from values as people write them; None is the default. `root` is required. An unknown name is a TypeError."""
        known = {name: value for name, value in given.items() if value is not None}
        return cls(**{name: _PARSERS[name](value) if name in _PARSERS else value for name, value in known.items()})

    def settings(self, chosen: Settings) -> Settings:
        """The settings of a job, with the overrides of this run."""
        given = {name: getattr(self, name) for name in OVERRIDES}
        changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if self.semantics is not None and self.tracking is None:
            changes["tracking"] = None  # the job's own belongs to the job's semantics
        if not self.restart:
            changes["restart"] = None
        return msgspec.structs.replace(chosen, **changes)

    def arguments(self, home: Path) -> list[str]:
        """The words of ``streamwork run`` that give these options; `home` is the folder of the job file."""
        words: list[str] = []
        usual = {**defaults(), "root": default_root(home)}
        for name, flag in flags().items():
            if (value := getattr(self, name)) != usual[name]:
                words += [word for text in _texts(value) for word in _words(flag.name, text)]
        return words


def flags() -> dict[str, Flag]:
    """Field -> its option on the command line, in the order of `RunOptions`."""
    hints = get_type_hints(RunOptions, include_extras=True)
    known = {name: getattr(hint, "__metadata__", (None,))[0] for name, hint in hints.items()}
    return {name: flag for name, flag in known.items() if isinstance(flag, Flag)}


def defaults() -> dict[str, Any]:
    """Field -> its default. `root` has none."""
    fields = [field for field in msgspec.structs.fields(RunOptions) if not field.required]
    return {one.name: one.default_factory() if one.default is msgspec.NODEFAULT else one.default for one in fields}


def _texts(value: Any) -> Iterable[str | None]:
    """The texts of an option's value, one for each time that it is repeated; None for a flag without a value."""
    match value:
        case bool():
            return [None]
        case Mode():
            return [value.value]
        case float():
            return [f"{Decimal(repr(value)):f}s"]
        case tuple():
            return [str(one) for one in value]
        case dict():
            return [f"{name}={one}" for name, one in value.items()]
        case _:
            return [str(value)]


def _words(option: str, text: str | None) -> list[str]:
    if text is None:
        return [option]
    return [f"{option}={text}"] if text.startswith("-") else [option, text]


def _mode(given: str | Mode) -> Mode:
    try:
        return Mode(given)
    except ValueError:
        known = ", ".join(mode.value for mode in Mode)
        raise WrongUse("SW-JOB-SETTING", f"mode {given!r} is not known", f"use one of: {known}") from None


def _on_error(given: Mapping[str, str | Retry] | Iterable[str]) -> dict[str, str]:
    """Component -> policy, of a mapping or of texts such as "per-card=dead-letter"."""
    if isinstance(given, Mapping):
        return {component: str(chosen) for component, chosen in given.items()}
    found = {}
    for text in given:
        component, equals, chosen = text.partition("=")
        if not equals:
            raise WrongUse(
                "SW-USAGE",
                f"--on-error {text} names no policy",
                "write COMPONENT=fail|drop|dead-letter|retry:times=5,within=1min,then=fail",
            )
        found[component] = chosen
    return found


def _inputs(given: Mapping[str, str] | Iterable[str]) -> dict[str, str]:
    """Source -> place, of a mapping or of texts such as "clicks=latest"."""
    if isinstance(given, Mapping):
        return dict(given)
    found = {}
    for text in given:
        source, equals, place = text.partition("=")
        if not equals:
            raise WrongUse("SW-USAGE", f"--input {text} names no place", "write SOURCE=earliest|latest|time:TIME")
        found[source] = place
    return found


_PARSERS: dict[str, Callable[[Any], Any]] = {
    "mode": _mode,
    "root": lambda given: Path(given).absolute(),
    "checkpoint_every": seconds,
    "lease": seconds,
    "drop_state": tuple,
    "refill": tuple,
    "on_error": _on_error,
    "param": params.parse,
    "input": _inputs,
}
