"""The import contracts cover every package, and packages that are read by several front ends print nothing."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

REPO = Path(__file__).parents[1]
SOURCE = REPO / "src" / "streamwork"
CONTRACTS = tomllib.loads((REPO / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
PRINTS = {"print", "click", "rich", "sys.stdout", "sys.stderr"}
SILENT = ("run", "observe")


def modules() -> set[str]:
    """The packages and modules directly below `streamwork`."""
    return {path.parent.name for path in SOURCE.glob("*/__init__.py")} | {
        path.stem for path in SOURCE.glob("*.py") if path.stem != "__init__"
    }


def contract(name: str) -> dict[str, list[str]]:
    return next(one for one in CONTRACTS if one["name"] == name)


def test_each_package_has_one_layer() -> None:
    (layers,) = [one for one in CONTRACTS if one["type"] == "layers" and one["containers"] == ["streamwork"]]
    named = [name for layer in layers["layers"] for name in layer.replace(" ", "").split("|")]
    assert layers["exhaustive"]
    assert sorted(named) == sorted(modules())


@pytest.mark.parametrize(
    ("name", "exempt"),
    [
        ("Only hosts, the command line and benchmarks import Spark", {"hosts", "cli", "bench", "__main__"}),
        ("Only the command line and benchmarks import libraries that print", {"cli", "bench", "__main__"}),
    ],
)
def test_a_contract_about_a_library_lists_every_other_package(name: str, exempt: set[str]) -> None:
    assert {one.removeprefix("streamwork.") for one in contract(name)["source_modules"]} == modules() - exempt


def printing(code: str) -> set[str]:
    """The ways of printing that a module uses."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found.add(node.func.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found.add(f"{node.value.id}.{node.attr}")
        elif isinstance(node, ast.Import):
            found |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {(node.module or "").partition(".")[0], *(f"{node.module}.{name.name}" for name in node.names)}
    return found & PRINTS


@pytest.mark.parametrize("package", SILENT)
def test_runs_and_read_models_print_nothing(package: str) -> None:
    files = sorted((SOURCE / package).rglob("*.py"))
    assert files
    assert {file.name: found for file in files if (found := printing(file.read_text()))} == {}


@pytest.mark.parametrize(
    "code",
    [
        "print('x')",
        "import click",
        "from rich.table import Table",
        "import sys; sys.stdout.write('x')",
        "from sys import stderr",
    ],
)
def test_the_check_finds_each_way_of_printing(code: str) -> None:
    assert printing(code)


def test_packages_do_not_list_their_imports() -> None:
    """Such lists go stale; the contracts say it, and are checked."""
    for file in SOURCE.glob("*/__init__.py"):
        assert "Imports " not in (ast.get_docstring(ast.parse(file.read_text())) or ""), file
