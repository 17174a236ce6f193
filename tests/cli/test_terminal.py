"""Nothing that comes from input steers the terminal: each command prints such characters escaped."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamwork
from commands import call
from streamwork.cli import output
from streamwork.errors import JobFailed, printable

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\u202eevil\x00"
SOURCE = Path(streamwork.__file__).parent

JOB = """
from pathlib import Path
from streamwork import Event, Job, JsonLines, Operator, SqliteSink

here = Path(__file__).parent

class Said(Event):
    text: str

class Picky(Operator[Said, Said]):
    def apply(self, event, collector):
        raise ValueError(event.text)

def build(name, **options):
    job = Job(name, checkpoint_every=0)
    source = job.source(JsonLines(here / "in.jsonl", Said), id="said")
    source.apply(Picky(), id="picky", **options).sink(SqliteSink(here / f"{name}.db", "out"), id="out")
    return job

failing, lettered = build("failing"), build("lettered", on_error="dead-letter")
"""


PAST_IT = {"click.echo", "click.secho", "print", "Console", "sys.stdout.write", "sys.stderr.write"}


def is_harmless(text: str) -> bool:
    return all(c.isprintable() or c in "\n\t" for c in text)


@settings(max_examples=200)
@given(st.text())
def test_what_is_printed_is_printable_and_json_means_the_same(text: str) -> None:
    assert is_harmless(printable(text))
    assert is_harmless(str(JobFailed("SW-X", text, text)))
    encoded = output.msgspec.json.encode({"text": text}) if text.isascii() or _whole(text) else b'{"text": ""}'
    printed: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output.click, "echo", printed.append)
        output.say_json(encoded)
    assert is_harmless(printed[0])
    assert json.loads(printed[0]) == json.loads(encoded)


def _whole(text: str) -> bool:
    return not any("\ud800" <= c <= "\udfff" for c in text)


@pytest.mark.proves("terminal escapes in the input")
def test_hostile_input_through_every_command(tmp_path: Path) -> None:
    (tmp_path / "hostile_input.py").write_text(JOB)
    line = json.dumps({"text": HOSTILE}, ensure_ascii=False)
    (tmp_path / "in.jsonl").write_text(line + "\n")
    root = tmp_path / ".streamwork"
    run = ("run", f"{tmp_path / 'hostile_input.py'}:failing", "--mode", "local", "--until-caught-up", "--no-restart")
    code, out, errors = call(*run)
    assert code == 1 and "evil" in errors and is_harmless(out + errors)
    code, out, errors = call("run", f"{tmp_path / 'hostile_input.py'}:lettered", "--mode", "local", "--until-caught-up")
    assert code == 0 and is_harmless(out + errors)
    seen = ""
    for command in (("dead-letters", "list"), ("status",), ("checkpoints",)):
        for more in ((), ("--json",)):
            code, out, errors = call(*command, "--root", root, "lettered", *more)
            assert code == 0 and is_harmless(out + errors), command
            seen += out
    assert "evil" in seen
    letter = json.loads(call("dead-letters", "list", "--root", root, "lettered", "--json")[1])["dead_letters"][0]
    assert HOSTILE in letter["error"], "in JSON the text is whole"
    code, out, errors = call("dead-letters", "show", "--root", root, "lettered", letter["id"])
    assert "evil" in out and is_harmless(out + errors)
    (tmp_path / "in.jsonl").write_bytes(b'{"text": "' + HOSTILE.encode() + b'"\n')  # no JSON: the line is shown
    (tmp_path / "failing.db").unlink()
    code, out, errors = call(*run, "--root", tmp_path / "other")
    assert "SW-SOURCE-BAD-EVENT" in errors and "evil" in errors and is_harmless(out + errors)


@pytest.mark.proves("escapes in output")
def test_without_escaping_the_check_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("streamwork.cli.output.printable", "streamwork.cli.progress.printable"):
        monkeypatch.setattr(name, str)
    with pytest.raises(AssertionError):
        test_hostile_input_through_every_command(tmp_path)


def test_commands_print_through_one_place() -> None:
    """`click.echo`, `print`, a console of one's own and writing to a stream would all go past it."""
    found = []
    rooms = ("run", "observe", "cli")  # benchmarks print numbers of their own, in processes of their own
    for path in sorted(path for room in rooms for path in (SOURCE / room).rglob("*.py")):
        if path.name in ("output.py", "progress.py"):
            continue
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        found += [f"{path.name}:{call.lineno}" for call in calls if ast.unparse(call.func) in PAST_IT]
    assert found == []
