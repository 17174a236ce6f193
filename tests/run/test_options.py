"""`RunOptions` is the one list of run options: the command line and `dev` are derived from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from streamwork import Retry, WrongUse
from streamwork.cli.project_commands import dev_command
from streamwork.cli.run_command import run_command
from streamwork.cli.run_options import run_options
from streamwork.job.jobfile import default_root
from streamwork.run.mode import Mode
from streamwork.run.options import RunOptions, defaults, flags

HOME = Path("/jobs")
OF_THE_CALLER = {"module_folder", "command"}
OF_THE_COMMAND = {"jobfile", "metrics", "serve", "console", "log_format", "trace", "explain", "as_json"}

ids = st.from_regex(r"[A-Za-z0-9_-]{1,8}", fullmatch=True)
durations = st.floats(0.001, 1e6)
policies = st.sampled_from(["fail", "drop", "dead-letter", "retry", str(Retry(times=3, within=0.5, then="drop"))])
roots = st.sampled_from([default_root(HOME), Path("/other/root"), Path("/-r")])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "mode": st.sampled_from(Mode),
    "master": st.sampled_from(["local[2]", "spark://host:7077"]),
    "until_caught_up": st.booleans(),
    "checkpoint_every": durations,
    "retain": st.integers(1, 9),
    "take_over": st.booleans(),
    "standby": st.booleans(),
    "lease": durations,
    "semantics": st.just("at-least-once"),
    "tracking": st.sampled_from(["checkpoint", "acknowledge"]),
    "backpressure": st.sampled_from(["sources", "upstream", "drop"]),
    "drop_state": st.lists(ids).map(tuple),
    "drop_request": st.text("0123456789abcdef", max_size=8),
    "change_semantics": st.booleans(),
    "accept_divergence": st.booleans(),
    "refill": st.lists(ids).map(tuple),
    "restart": st.booleans(),
    "on_error": st.dictionaries(ids, policies),
    "queryable_latest": st.booleans(),
    "param": st.dictionaries(ids, st.text(max_size=9)),
    "spark_log": st.booleans(),
    "from_": st.sampled_from(["savepoint:before-v2", "checkpoint:42", "/elsewhere/before-v2"]),
    "input": st.dictionaries(ids, st.sampled_from(["earliest", "latest", "time:2026-01-31T12:00Z"])),
    "accept_input": st.booleans(),
    "rewind_output": st.booleans(),
    "fork": ids,
}


def parsed(words: list[str]) -> RunOptions:
    """The options that the command line reads from these words."""
    found: list[RunOptions] = []

    @click.command()
    @run_options()
    def command(root: Path | None, **given: Any) -> None:
        found.append(RunOptions.parse(root=root or default_root(HOME), **given))

    result = CliRunner().invoke(command, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return found[0]


def test_each_option_is_on_the_command_line_or_set_by_the_caller() -> None:
    fields = set(RunOptions.__struct_fields__)
    assert set(flags()) == fields - OF_THE_CALLER
    assert {"root", *VALUES} == set(flags()), "the round trip below covers each of them"
    assert {one.name for one in run_command.params} == set(flags()) | OF_THE_COMMAND
    assert {one.name for one in dev_command.params} - {"jobfile", "as_json"} < set(flags())


@settings(max_examples=200)
@given(st.fixed_dictionaries({"root": roots}, optional=VALUES))
def test_the_command_line_reads_back_what_options_write(values: dict[str, Any]) -> None:
    if values.get("mode") is not Mode.LIVE:
        values.pop("queryable_latest", None)
    options = RunOptions(**values)
    assert parsed(options.arguments(HOME)) == options


def test_without_words_each_option_has_its_default() -> None:
    assert parsed([]) == RunOptions(root=default_root(HOME))
    assert RunOptions(root=default_root(HOME)).arguments(HOME) == []
    none: dict[str, Any] = dict.fromkeys(defaults())
    assert RunOptions.parse(root=HOME, **none) == RunOptions(root=HOME), "None is the default"


@pytest.mark.parametrize(
    ("values", "cause"),
    [
        ({"retain": 0}, "retain=0"),
        ({"lease": 0}, "lease=0.0"),
        ({"lease": "soon"}, "'soon' is not a duration"),
        ({"mode": "fast"}, "mode 'fast' is not known"),
        ({"semantics": "mostly-once"}, "mostly-once"),
        ({"tracking": "guess"}, "guess"),
        ({"backpressure": "wait"}, "wait"),
        ({"semantics": "exactly-once", "tracking": "acknowledge"}, "has no meaning with exactly-once"),
        ({"on_error": {"work": "ignore"}}, "ignore"),
        ({"on_error": ["work"]}, "names no policy"),
        ({"mode": "local", "queryable_latest": True}, "does not work with --mode local"),
    ],
)
def test_options_that_make_no_sense_are_refused(values: dict[str, Any], cause: str) -> None:
    with pytest.raises(WrongUse, match=cause):
        RunOptions.parse(root=HOME, **values)


def test_an_unknown_option_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="speed"):
        RunOptions.parse(root=HOME, speed=11)


def test_policies_are_read_from_text_and_from_a_mapping() -> None:
    texts = RunOptions.parse(root=HOME, on_error=["a=drop", "b=fail", "a=dead-letter"])
    assert texts.on_error == {"a": "dead-letter", "b": "fail"}
    assert RunOptions.parse(root=HOME, on_error={"a": Retry(times=2)}).on_error == {"a": "retry:times=2"}
