"""What an error tells people to type works as typed."""

from __future__ import annotations

import ast
import itertools
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from commands import call, error
from sample import payments, run_job, summing_job
from streamwork import Job, ListSource, Refused, SqliteSink
from streamwork.__main__ import cli
from streamwork.epoch.fences import Fences
from streamwork.errors import WrongUse
from streamwork.run import drivers
from streamwork.run.options import RunOptions
from streamwork.world import RealClock, RealDisk, RealProcesses
from streamwork.world.heartbeat import Heartbeat

REPO = Path(__file__).parents[2]
COMMAND = re.compile(r"`(streamwork [^`]+)`")
IN_DOCS = re.compile(r"^(?:\$ )?(streamwork .+?)(?:\s+#.*|\s+<.*|\s+\|.*|\s*\\)?$", re.MULTILINE)


# ---- every command in every message --------------------------------------------------------------------------------


def texts(tree: ast.AST) -> Iterator[str]:
    """Every string of a module but its docstrings; X stands for what is filled in."""
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(p.value if isinstance(p, ast.Constant) else filled(ast.unparse(p)) for p in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told | parts:
            yield node.value


def filled(expression: str) -> str:
    """What is filled in: most is one word; `where` and `shlex.join` bring a root and a job."""
    return "--root R JOB" if "where" in expression or "--root" in expression else "X"


def commands() -> list[tuple[str, str]]:
    found = []
    for path in sorted((REPO / "src").rglob("*.py")):
        if path.parts[-2:] == ("bench", "page.py"):  # it writes a page, on which they are then found
            continue
        for text in texts(ast.parse(path.read_text())):
            found += [(path.name, command) for command in COMMAND.findall(text)]
    for path in [REPO / "README.md", *sorted((REPO / "docs").rglob("*.md"))]:
        for block in re.findall(r"```sh\n(.*?)```", path.read_text(), re.DOTALL):
            found += [(path.name, command) for command in IN_DOCS.findall(block)]
    return found


def parse(line: str) -> list[str]:
    """The names of the command and its arguments; raises click.UsageError if the real parser does not take the line."""
    command: click.Command = cli
    words, names = shlex.split(line)[1:], []
    context: click.Context | None = None
    while isinstance(command, click.Group):
        context = click.Context(command, info_name=command.name, parent=context)
        name, inner, words = command.resolve_command(context, words)
        assert inner is not None
        names.append(name or "")
        command = inner
    try:
        context = command.make_context(names[-1], list(words), parent=context)
    except click.exceptions.Exit:
        return names  # --help
    about = {parameter.metavar for parameter in command.params if isinstance(parameter, click.Argument)}
    job = context.params.get("job", "")
    if "JOBFILE[:NAME] | JOB" in about and context.params["root"] is None and ".py" not in job:
        raise click.UsageError(f"{line}: {job} is taken for a file")
    return names


@pytest.mark.parametrize(("where", "line"), commands())
def test_every_command_in_a_message_or_on_a_page_is_understood(where: str, line: str) -> None:
    parse(line.replace("JOBFILE[:NAME]", "job.py"))


@pytest.mark.parametrize(
    "line", ["streamwork stop JOB", "streamwork halt --root R JOB", "streamwork log create X", "streamwork run"]
)
def test_the_check_notices_what_does_not_work(line: str) -> None:
    with pytest.raises(click.UsageError):
        parse(line)


def test_the_check_finds_commands() -> None:
    found = {place for place, _ in commands()}
    assert {"dead_letters.py", "letter_commands.py", "settings.py", "session.py", "operating.md"} <= found


# ---- typed ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["local", "microbatch"])
def test_the_command_that_stops_a_driver_that_is_alive(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And Spark is not started to find out that there is one."""
    root = tmp_path / "a root"
    job = summing_job(payments(10), tmp_path / "out.db")
    run_job(job, root)
    holder = Fences(RealDisk(), root / "summing", RealClock(), RealProcesses())
    holder.claim(lease=1.0)
    monkeypatch.setattr(drivers, "start_spark_host", lambda *_: pytest.fail("Spark was started"))
    with Heartbeat(holder.beat, 0.05), pytest.raises(Refused, match="SW-DRIVER-ALIVE") as caught:
        run_job(job, root, mode, lease=1.0)
    (line,) = COMMAND.findall(caught.value.action)
    holder.end()
    code, told, errors = call(*shlex.split(line)[1:])
    assert (code, told) == (0, "not running; the last checkpoint is 1\n"), errors


PROMISES = {
    "at-most-once": ("at-most-once", None),
    "checkpoint": ("at-least-once", "checkpoint"),
    "acknowledge": ("at-least-once", "acknowledge"),
    "exactly-once": ("exactly-once", None),
}


@pytest.mark.parametrize(("old", "new"), list(itertools.permutations(PROMISES, 2)))
def test_the_options_that_run_a_job_as_before(tmp_path: Path, old: str, new: str) -> None:
    """Whatever the job says for itself, what the action names is what it ran with."""

    def job(name: str) -> Job:
        semantics, tracking = PROMISES[name]
        made = Job("echo", semantics=semantics, tracking=tracking, checkpoint_every=0)
        source = made.source(ListSource(payments(5)), id="payments")
        source.sink(SqliteSink(tmp_path / "out.db", "out"), id="out")
        return made

    run_job(job(old), tmp_path / "root")
    with pytest.raises(Refused, match="SW-SEMANTICS-CHANGED") as caught:
        run_job(job(new), tmp_path / "root")
    named = re.findall(r"--(semantics|tracking) (\S+)", caught.value.action)
    run_job(job(new), tmp_path / "root", **dict(named))
    run_job(job(new), tmp_path / "root", change_semantics=True)
    assert RunOptions(root=tmp_path, **dict(named)).settings(job(new).settings).promise == job(old).settings.promise


BUILT = """
from pathlib import Path
from sample import payments, summing_job

here = Path(__file__).parent


def build(database):
    return summing_job(payments(10), here / database)


job, backfill = build("usage.db"), build("backfill.db")
if __name__ == "__main__":
    backfill.run(root=here / "other", until_caught_up=True)
"""


def test_two_jobs_of_one_name_are_told_apart_by_their_variables(tmp_path: Path) -> None:
    file = tmp_path / f"{tmp_path.name}.py"
    file.write_text(BUILT)
    for target in (file, f"{file}:summing"):
        several = error("run", target, "--explain")
        assert several["code"] == "SW-JOBFILE-SEVERAL"
        assert several["cause"].endswith("has several jobs: job (summing), backfill (summing)")
        for name in ("job", "backfill"):
            assert f"{file}:{name}" in several["action"]
    code, _, errors = call("run", f"{file}:backfill", "--mode", "local", "--until-caught-up")
    assert code == 0, errors
    assert (tmp_path / "backfill.db").exists() and not (tmp_path / "usage.db").exists()


def test_a_variable_goes_before_the_name_of_another_job(tmp_path: Path) -> None:
    file = tmp_path / f"{tmp_path.name}.py"
    file.write_text("from streamwork import Job\nusage, other = Job('clicks'), Job('usage')\n")
    from streamwork.job.jobfile import load_job

    assert load_job(f"{file}:usage").job.name == "clicks"
    assert load_job(f"{file}:clicks").job.name == "clicks"
    assert load_job(f"{file}:other").job.name == "usage"
    with pytest.raises(WrongUse, match=r"SW-JOBFILE-NO-JOB.*found: usage \(clicks\), other \(usage\)"):
        load_job(f"{file}:nobody")


def test_the_command_that_goes_on_after_python_job_py(tmp_path: Path) -> None:
    """It names the job and the root that were meant."""
    poisoned = BUILT.replace("payments(10)", "[*payments(10), Payment('card-1', -1)]").replace(
        "import payments", "import Payment, payments"
    )
    file = tmp_path / "poisoned.py"
    file.write_text(poisoned.replace('here / "other", ', 'here / "other", restart=False, '))
    ran = subprocess.run(
        [sys.executable, str(file)],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(REPO / "tests")},
    )
    line = ran.stderr.partition("and continue: ")[2].strip().splitlines()[0].rstrip(")'\" ")
    assert line.startswith(f"streamwork run {file}:backfill --mode local --root {tmp_path / 'other'} "), ran.stderr
    code, _, errors = call(*shlex.split(line)[1:])
    assert code == 0, errors
    assert (tmp_path / "other" / "summing" / "dead-letters" / "sums").is_dir()
